import { randomUUID } from 'node:crypto';
import { Agent } from 'node:http';
import type { AddressInfo } from 'node:net';
import supertest from 'supertest';
import { startAlarmScans } from '../../src/alarms/scans.js';
import { startAlarmWatch } from '../../src/alarms/watch.js';
import { createApp, version } from '../../src/app.js';
import { startCommandExpiry } from '../../src/commands/expiry.js';
import { queueCommands } from '../../src/commands/many.js';
import type { Config } from '../../src/config.js';
import type { Database, Log } from '../../src/db/database.js';
import { beginLog, startLogReader } from '../../src/events/log-reader.js';
import { startStatusWatch } from '../../src/events/status-watch.js';
import type { Provider } from '../../src/file-storage/providers/provider.js';
import type { Endpoint } from '../../src/http/context.js';
import { openServer } from '../../src/http/server.js';
import { openVault } from '../../src/lib/vault.js';
import { createMetrics } from '../../src/metrics/metrics.js';
import { migrate } from '../../src/migrations.js';
import type { DeviceLink } from '../../src/mqtt/device-link.js';
import { issueKey } from '../../src/objects/api-keys.js';
import { finishChanges } from '../../src/objects/bulk/journaled-change.js';
import { finishRemovals, replayCompleted } from '../../src/objects/cascade-delete.js';
import { openStore, type SelectionLimits, type Store } from '../../src/objects/context.js';
import { waitForJournaled } from '../../src/objects/journal.js';
import { finishMoves } from '../../src/objects/moves.js';
import { startValueFills, startValueReviews } from '../../src/objects/values/jobs.js';
import type { Scope } from '../../src/schema/operation.js';
import { startDeliverer } from '../../src/webhooks/deliverer.js';

type Json = Record<string, unknown>;

/** Far more than a start takes on a busy machine, and less than the time limit of a test, which would not give the reason. */
const ready_limit_ms = 120_000;

/** The parts of a response that tests look at most. */
export interface Reply {
  status: number;
  headers: Record<string, string>;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: response bodies have every shape
  body: any;
}

/** Sends requests with one API key and, if given, more headers. */
export interface Api {
  get(path: string, headers?: Record<string, string>): Promise<Reply>;
  post(path: string, body?: unknown, headers?: Record<string, string>): Promise<Reply>;
  put(path: string, body?: unknown, headers?: Record<string, string>): Promise<Reply>;
  patch(path: string, body?: unknown, headers?: Record<string, string>): Promise<Reply>;
  delete(path: string, body?: unknown, headers?: Record<string, string>): Promise<Reply>;
  send(method: string, path: string, headers?: Record<string, string>, body?: string | Buffer): Promise<Reply>;
}

export interface TestService {
  url: string;
  db: Database;
  store: Store;
  operations: readonly Endpoint[];
  /** For a broker. */
  link: DeviceLink;
  /** The time of the service's clock in epoch seconds; only `advance` changes it. */
  now(): number;
  advance(seconds: number): void;
  /** Creates a client with a new key. */
  client(options?: { account?: string; username?: string; scope?: Scope }): Promise<Api>;
  /** Creates a client that sends this key, or none. */
  clientWith(key: string | undefined): Api;
  stop(): Promise<void>;
}

interface Options {
  uri?: string;
  base_path?: string;
  api_key_headers?: string[];
  cors_origins?: string[];
  rate_limit_per_minute?: number;
  secret_key?: string;
  filestore_local_root?: string;
  filestore_allow_nets?: string[];
  webhook_allow_nets?: string[];
  /** Starts the delivery to webhooks. */
  deliver?: boolean;
  console_dir?: string;
  console_tiles_url?: string;
  mqtt_port?: number;
  oidc_issuer?: string;
  oidc_client_id?: string;
  oidc_claim?: string;
  oidc_scope?: string;
  providers?: readonly Provider[];
  log?: Log;
  log_format?: Config['log_format'];
  writeLine?: (lines: string) => void;
  countCacheThreshold?: number;
  selectionLimits?: SelectionLimits;
  /** Time after which a request is answered 5031; default: longer than any takes on a busy machine. */
  answer_limit_ms?: number;
  /** Keeps the event log up to date, as every process does. */
  eventLog?: true;
}

/** Dependencies of an upgrade beside the database. */
export const upgradeContext = { log: { info() {}, warn() {}, error() {} }, signal: new AbortController().signal };

/** Starts the service in this process, over real HTTP and with a fresh database on the real mongod; ready when it returns. */
export async function startTestService(options: Options = {}): Promise<TestService> {
  const serverUri = new URL(process.env.TEST_MONGODB_URI ?? '');
  serverUri.pathname = `/test-${randomUUID()}`;
  let warning: object = {};
  const log = options.log ?? {
    info() {},
    warn(fields: object) {
      warning = fields;
    },
    error: (fields: object, message: string) => console.error(message, fields),
  };
  let now_ms = Math.floor(Date.now() / 1000) * 1000;
  const clock = () => now_ms;
  const metrics = createMetrics({ version, readState: () => store.db.readState() });
  const store: Store = openStore({
    pool: metrics.pool,
    uri: options.uri ?? serverUri.href,
    log,
    async maintenance(opened, signal) {
      await migrate(opened.db, { log, signal });
      await finishChanges(opened, [queueCommands], Date.now());
      await finishMoves(opened);
      await finishRemovals(opened);
      await waitForJournaled(opened, signal);
      await replayCompleted(opened, Date.now());
      await beginLog(opened.db);
    },
    countCacheThreshold: options.countCacheThreshold,
    selectionLimits: options.selectionLimits,
  });
  const { db } = store;
  const { server, express } = openServer();
  // connections that clients keep are closed by stop() only
  server.keepAliveTimeout = 0;
  const agent = new Agent({ keepAlive: true });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const { operations, live, link, webhookSender, evaluation } = createApp({
    server,
    express,
    config: {
      base_path: options.base_path ?? '',
      api_key_headers: options.api_key_headers ?? ['service.apikey'],
      cors_origins: options.cors_origins ?? [],
      rate_limit_per_minute: options.rate_limit_per_minute,
      log_format: options.log_format ?? 'off',
      public_url: url,
      filestore_local_root: options.filestore_local_root,
      filestore_allow_nets: options.filestore_allow_nets ?? [],
      webhook_allow_nets: options.webhook_allow_nets ?? [],
      console_tiles_url: options.console_tiles_url,
      mqtt_port: options.mqtt_port,
      oidc_issuer: options.oidc_issuer,
      oidc_client_id: options.oidc_client_id,
      oidc_claim: options.oidc_claim,
      oidc_scope: options.oidc_scope ?? 'openid',
    },
    console_dir: options.console_dir,
    ...(options.providers && { providers: options.providers }),
    vault: openVault(options.secret_key ?? 'a key that only tests have'),
    store,
    log,
    metrics,
    clock,
    writeLine: options.writeLine ?? (() => undefined),
    answer_limit_ms: options.answer_limit_ms ?? 60_000,
  });
  const deliverer = options.deliver
    ? startDeliverer({ ...webhookSender, db, costly: store.costly, log, metrics: metrics.webhooks })
    : undefined;
  if (options.uri === undefined) {
    const deadline = Date.now() + ready_limit_ms;
    while (!(await db.isReady())) {
      if (Date.now() > deadline) throw new Error('the service does not get ready', { cause: warning });
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
  const jobs = options.eventLog
    ? [
        startLogReader({ db, log, metrics: metrics.events }),
        startStatusWatch({ db, log, clock }),
        startCommandExpiry({ db, log, clock, metrics: metrics.commands }),
        startAlarmWatch({ ...evaluation, log, metrics: metrics.alarms }),
        startAlarmScans({ ...evaluation, log }),
        startValueReviews({ db, log, clock }),
        startValueFills({ db, log, clock }),
      ]
    : [];

  function clientWith(key: string | undefined): Api {
    async function send(
      method: string,
      path: string,
      headers: Record<string, string> = {},
      body?: string | Buffer,
    ): Promise<Reply> {
      const request = supertest(url)[method.toLowerCase() as 'get'](path).agent(agent).buffer(true).redirects(0);
      if (key !== undefined) request.set('service.apikey', key);
      for (const [header, value] of Object.entries(headers)) request.set(header, value);
      const reply = await (body === undefined ? request : request.send(body));
      return reply as unknown as Reply;
    }
    const withJson =
      (method: string) =>
      (path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Reply> =>
        body === undefined
          ? send(method, path, headers)
          : send(
              method,
              path,
              { 'Content-Type': 'application/json', ...headers },
              typeof body === 'string' ? body : JSON.stringify(body),
            );
    return {
      get: (path, headers) => send('GET', path, headers),
      post: withJson('POST'),
      put: withJson('PUT'),
      patch: withJson('PATCH'),
      delete: withJson('DELETE'),
      send,
    };
  }

  return {
    url,
    db,
    store,
    operations,
    link,
    now: () => now_ms / 1000,
    advance(seconds) {
      now_ms += seconds * 1000;
    },
    async client({ account = 'acme', username = 'alice', scope = 'admin' } = {}) {
      const { key } = await issueKey(db, { account, username, scope }, 0);
      return clientWith(key);
    },
    clientWith,
    async stop() {
      await Promise.all(jobs.map((job) => job.stop()));
      await live.close();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await deliverer?.stop();
      // mongod keeps a file open for each index: those of all tests are more than a process may have
      if (options.uri === undefined)
        await db
          .collection('projects')
          .db.dropDatabase()
          .catch(() => undefined);
      await db.close();
    },
  };
}

/** Functions that create a resource from its required fields plus `fields`, under a unique name, and return its identifier. */
export function createFixtures(api: Api) {
  let count = 0;
  async function create(plural: string, body: Json): Promise<string> {
    const reply = await api.post(`/${plural}/`, { name: `${plural} ${++count} ${randomUUID().slice(0, 8)}`, ...body });
    if (reply.body.code !== 2001) throw new Error(`cannot create ${plural}: ${reply.text}`);
    return decodeURIComponent(reply.headers.location?.split('/').at(-2) ?? '');
  }
  const fixtures = {
    project: (fields: Json = {}) => create('projects', { id_customer: 'c-1', ...fields }),
    service: async (fields: Json = {}) =>
      create('services', { id_project: fields.id_project ?? (await fixtures.project()), ...fields }),
    group: async (fields: Json = {}): Promise<string> =>
      create('groups', { id_service: fields.id_service ?? (await fixtures.service()), ...fields }),
    asset: async (fields: Json = {}): Promise<string> =>
      create('assets', { id_group: fields.id_group ?? (await fixtures.group()), ...fields }),
    model: (fields: Json = {}) => create('models', fields),
    device: async (fields: Json = {}): Promise<string> =>
      create('devices', {
        type: 'gateway',
        ...(fields.id_group === undefined && fields.id_asset === undefined && { id_group: await fixtures.group() }),
        ...fields,
      }),
  };
  return fixtures;
}

/** Builds a path from percent-encoded segments: `/devices/name%40account/`. */
export function pathOf(...segments: string[]): string {
  return `/${segments.map(encodeURIComponent).join('/')}/`;
}

/** Reads the values of a counter, by its label. */
export async function readCounters(service: TestService, name: string, label: string): Promise<Record<string, number>> {
  const { text } = await service.clientWith(undefined).get('/metrics');
  const lines = text.matchAll(new RegExp(`^${name}\\{${label}="([^"]*)"\\} (\\d+)$`, 'gm'));
  return Object.fromEntries([...lines].map(([, value = '', count]) => [value, Number(count)]));
}
