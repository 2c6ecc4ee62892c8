import { randomUUID } from 'node:crypto';
import { Agent } from 'node:http';
import supertest from 'supertest';
import { waitFor } from '../../scripts/support/service-process.js';
import { type Config, readConfig } from '../../src/config.js';
import type { Database } from '../../src/db/database.js';
import type { Endpoint } from '../../src/http/context.js';
import type { DeviceLink } from '../../src/mqtt/sessions/device-link.js';
import { issueKey } from '../../src/objects/api-keys.js';
import type { Store } from '../../src/objects/context.js';
import type { Scope } from '../../src/schema/operation.js';
import { type JobName, type StartOptions, startService } from '../../src/service/service.js';
import { takeDatabase } from './databases.js';

type Json = Record<string, unknown>;

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

/** Variables under their names in lower case, and what replaces parts of the service. */
interface Options
  extends Partial<Omit<Config, 'secret_key'>>,
    Partial<Omit<StartOptions, 'config' | 'jobs' | 'clock'>> {
  /** Starts the delivery to webhooks. */
  deliver?: true;
  /** Keeps the event log up to date, as every process does. */
  eventLog?: true;
}

/** Jobs that keep the event log, and what follows from it, up to date. */
const eventJobs: readonly JobName[] = [
  ...(['eventLog', 'statusWatch', 'commandExpiry', 'alarmWatch', 'alarmScans', 'valueReviews', 'valueFills'] as const),
];

/** Dependencies of an upgrade beside the database. */
export const upgradeContext = {
  log: { info() {}, warn() {}, error() {} },
  signal: new AbortController().signal,
  async report() {},
};

/** Starts the service in this process, over real HTTP and with a fresh database on the real mongod; ready when it returns. */
export async function startTestService(options: Options = {}): Promise<TestService> {
  const { deliver = false, eventLog = false, ...given } = options;
  const database = options.uri === undefined ? await takeDatabase() : undefined;
  let warning: object | undefined;
  const log = {
    info() {},
    warn(fields: object) {
      warning = fields;
    },
    error: (fields: object, message: string) => console.error(message, fields),
  };
  let now_ms = Math.floor(Date.now() / 1000) * 1000;
  const running = await startService({
    ...{ uri: database?.uri ?? '', secret_key: 'a key that only tests have', log, print() {}, writeLine() {} },
    // longer than any request takes on a busy machine
    answer_limit_ms: 60_000,
    ...given,
    config: { ...readConfig({ PORT: '0', MQTT_PORT: 'off', CONSOLE: 'off', LOG_FORMAT: 'off' }), ...given },
    clock: () => now_ms,
    jobs: [...(eventLog ? eventJobs : []), ...(deliver ? (['webhooks'] as const) : [])],
  });
  const { url, server, app, store } = running;
  const { db } = store;
  // connections that clients keep are closed by stop() only
  Object.assign(server, { keepAliveTimeout: 0, timeout: 0 });
  const agent = new Agent({ keepAlive: true });
  const isReady = async () => (await db.isReady()) || warning;
  if (database !== undefined) await waitFor(isReady, (ready) => ready === true);
  await database?.markReady();

  function clientWith(key: string | undefined): Api {
    async function send(method: string, path: string, headers: Record<string, string> = {}, body?: string | Buffer) {
      const request = supertest(url)[method.toLowerCase() as 'get'](path).agent(agent).buffer(true).redirects(0);
      // superagent asks for gzip, which costs both sides more than it saves here
      request.set({ 'Accept-Encoding': 'identity', ...(key !== undefined && { 'service.apikey': key }), ...headers });
      return (await (body === undefined ? request : request.send(body))) as unknown as Reply;
    }
    const withJson = (method: string): Api['post'] => {
      const type = { 'Content-Type': 'application/json' };
      const encode = (body: unknown) => (typeof body === 'string' ? body : JSON.stringify(body));
      return (path, body, headers) =>
        body === undefined ? send(method, path, headers) : send(method, path, { ...type, ...headers }, encode(body));
    };
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
    ...{ url, db, store, operations: app.operations, link: app.link },
    now: () => now_ms / 1000,
    advance(seconds) {
      now_ms += seconds * 1000;
      for (const job of db.wakeUps?.eventNames() ?? []) db.wakeUps?.emit(job);
    },
    async client({ account = 'acme', username = 'alice', scope = 'admin' } = {}) {
      const { key } = await issueKey(db, { account, username, scope }, 0);
      return clientWith(key);
    },
    clientWith,
    async stop() {
      await app.live.close();
      server.closeAllConnections();
      await running.stop();
      await database?.release();
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
