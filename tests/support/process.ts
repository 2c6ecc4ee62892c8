import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { type OutgoingHttpHeaders, request } from 'node:http';
import { request as requestSecurely } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach } from '@jest/globals';
import mongoose from 'mongoose';
import {
  findFreePort,
  type RecordedProcess,
  startProcess,
  waitFor,
  waitUntil,
} from '../../scripts/support/service-process.js';
import { findMongod } from '../../src/mongod/binary.js';

import { isStopped } from './replica-set.js';

export { findFreePort, waitFor, waitUntil };

const { MongoClient } = mongoose.mongo;

/** A child process in its own process group. */
export interface TrackedProcess extends RecordedProcess {
  /** Lines of standard error meant for people: neither JSON log lines nor warnings of npm. */
  complaints(): string[];
}

/** A response with the time that it took. */
export interface TimedReply {
  status: number;
  headers: Record<string, string>;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: response bodies have every shape
  body: any;
  took_ms: number;
}

/** The built service, running in its own process. */
export interface RunningService extends TrackedProcess {
  url: string;
  /** The key that the service printed at its start, or BOOTSTRAP_API_KEY. */
  key: string;
  send(method: string, path: string, body?: unknown, headers?: OutgoingHttpHeaders): Promise<TimedReply>;
  /** Creates an object and returns its identifier. */
  create(plural: string, body: object): Promise<string>;
  /** Waits until `/readyz` answers 200. */
  ready(): Promise<void>;
}

/** A mongod that a test starts, stops and kills. */
export interface TestMongod {
  uri: string;
  kill(signal: NodeJS.Signals): Promise<void>;
  /** Starts mongod, also again after a SIGKILL; resolves when it is primary. */
  start(): Promise<void>;
}

/** The folder, processes and connections of a test; `close` ends and removes all of them. */
export interface Sandbox {
  folder: string;
  /** Starts the service as `node dist/src/main.js` or `npm start` without waiting; its data directory is `folder`/data. */
  start(env?: NodeJS.ProcessEnv, how?: 'node' | 'npm'): Promise<TrackedProcess>;
  /** Starts the service and waits until it listens and, unless `ready` is false, is ready. */
  service(env?: NodeJS.ProcessEnv, options?: { how?: 'node' | 'npm'; ready?: boolean }): Promise<RunningService>;
  /** Prepares a mongod for MONGODB_URI without starting it. @param options of mongod's command line, in addition to the usual ones */
  mongod(options?: readonly string[]): Promise<TestMongod>;
  /** Connects the test itself to a database. */
  database(uri: string): mongoose.mongo.Db;
  /** The URI of the embedded database that runs on `data`. */
  embeddedUri(data?: string): Promise<string>;
  embeddedPid(data?: string): Promise<number>;
  close(): Promise<void>;
}

/** Gives the tests of a file a sandbox, or each test its own, which is closed after them. */
export function useSandbox(scope: 'file' | 'each test' = 'file'): Sandbox {
  let current: Sandbox | undefined;
  const open = async () => {
    current = await openSandbox();
  };
  const [before, after] = scope === 'file' ? [beforeAll, afterAll] : [beforeEach, afterEach];
  before(open);
  after(() => current?.close());
  return new Proxy({} as Sandbox, { get: (_target, member) => current?.[member as keyof Sandbox] });
}

/** Creates a sandbox with an empty data directory. */
export async function openSandbox(): Promise<Sandbox> {
  const folder = await mkdtemp(join(tmpdir(), 'service-'));
  const processes: RecordedProcess[] = [];
  const clients: InstanceType<typeof MongoClient>[] = [];

  function track(command: string, args: string[], env: NodeJS.ProcessEnv): TrackedProcess {
    const started = startProcess(command, args, { env, ownGroup: true });
    processes.push(started);
    return {
      ...started,
      complaints: () =>
        started
          .err()
          .split('\n')
          .filter((line) => line !== '' && !/^({|npm (warn|notice))/.test(line)),
    };
  }

  const sandbox: Sandbox = {
    folder,
    async start(env = {}, how = 'node') {
      const { PATH, HOME, MONGOMS_SYSTEM_BINARY } = process.env;
      const binary = MONGOMS_SYSTEM_BINARY ?? (await findMongod({ env: process.env, print: () => undefined })).path;
      const settings = { PATH, HOME, MONGOMS_SYSTEM_BINARY: binary, PORT: '0', MQTT_PORT: 'off', LOG_FORMAT: 'off' };
      const fullEnv = { ...settings, DATA_DIR: join(folder, 'data'), ...env };
      return how === 'npm' ? track('npm', ['start'], fullEnv) : track(process.execPath, ['dist/src/main.js'], fullEnv);
    },
    async service(env = {}, { how = 'node', ready = true } = {}) {
      const started = await sandbox.start(env, how);
      const ended = started.ended.then((code) => {
        throw new Error(`the service ended with ${code}: ${started.err()}`);
      });
      ended.catch(() => undefined);
      const waitFor = (condition: () => boolean) => Promise.race([waitUntil(condition), ended]);
      await waitFor(() => started.out().includes('listening on '));
      const url = /listening on (\S+)/.exec(started.out())?.[1] ?? '';
      const service: RunningService = {
        ...started,
        url,
        get key() {
          return /shown only this once: (\S+)/.exec(started.out())?.[1] ?? env.BOOTSTRAP_API_KEY ?? '';
        },
        send: (method, path, body, headers = {}) =>
          sendRequest(method, url + path, body, { 'service.apikey': service.key, ...headers }),
        async create(plural, body) {
          const reply = await service.send('POST', `/${plural}/`, body);
          if (reply.body.code !== 2001) throw new Error(`cannot create ${plural}: ${reply.text}`);
          return decodeURIComponent(reply.headers.location?.split('/').at(-2) ?? '');
        },
        ready: () => waitUntil(async () => (await sendRequest('GET', `${url}/readyz`)).status === 200),
      };
      if (ready) await Promise.race([service.ready(), ended]);
      return service;
    },
    async mongod(options = []) {
      const { path } = await findMongod({ env: process.env, print: () => undefined });
      const dbPath = await mkdtemp(join(folder, 'mongod-'));
      const port = await findFreePort();
      const address = `mongodb://127.0.0.1:${port}/`;
      let running: TrackedProcess | undefined;
      return {
        uri: `${address}fleet?replicaSet=rs0`,
        async start() {
          const dbArgs = ['--dbpath', dbPath, '--bind_ip', '127.0.0.1', '--port', String(port), '--nounixsocket'];
          running = track(
            path,
            [...dbArgs, '--replSet', 'rs0', '--storageEngine', 'wiredTiger', ...options],
            process.env,
          );
          const config = { _id: 'rs0', members: [{ _id: 0, host: `127.0.0.1:${port}` }] };
          await waitUntil(async () => {
            const limits = { serverSelectionTimeoutMS: 500, socketTimeoutMS: 2_000 };
            const client = new MongoClient(`${address}?directConnection=true`, limits);
            try {
              const admin = client.db('admin');
              if ((await admin.command({ hello: 1 })).isWritablePrimary === true) return true;
              await admin.command({ replSetInitiate: config });
              return false;
            } finally {
              await client.close();
            }
          });
        },
        async kill(signal) {
          running?.kill(signal);
          if (signal === 'SIGKILL') await running?.ended;
          // on a busy machine some threads keep running for a while
          if (signal === 'SIGSTOP') await waitUntil(() => isStopped(running?.pid ?? 0));
        },
      };
    },
    database(uri) {
      const client = new MongoClient(uri, { serverSelectionTimeoutMS: 1_000 });
      clients.push(client);
      return client.db();
    },
    embeddedUri: async (data = 'data') => (await readFile(join(folder, data, 'mongodb.uri'), 'utf8')).trim(),
    embeddedPid: async (data = 'data') => Number(await readFile(join(folder, data, 'db', 'mongod.lock'), 'utf8')),
    async close() {
      await Promise.all(clients.map((client) => client.close()));
      await Promise.all(processes.map((started) => started.stop('SIGKILL')));
      // an embedded mongod outlives a killed service
      for (const data of await readdir(folder)) {
        const pid = await sandbox.embeddedPid(data).catch(() => 0);
        const command = pid > 0 ? await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '') : '';
        if (!command.includes(join(folder, data, 'db'))) continue;
        process.kill(pid, 'SIGKILL');
        await waitUntil(() => !existsSync(`/proc/${pid}`));
      }
      await rm(folder, { recursive: true, force: true });
    },
  };
  await mkdir(join(folder, 'data'));
  return sandbox;
}

/** Sends one request on its own connection, with `body` as JSON unless it is text. */
export async function sendRequest(
  method: string,
  url: string,
  body?: unknown,
  headers: OutgoingHttpHeaders = {},
): Promise<TimedReply> {
  const startedAt = performance.now();
  const content = body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body);
  // Node frames the body of a DELETE only if Content-Length is set
  const framing = content === undefined ? {} : { 'Content-Length': Buffer.byteLength(content) };
  const options = { method, headers: { ...framing, ...headers }, agent: false } as const;
  // the certificate of a test is signed by itself
  const sent = url.startsWith('https:')
    ? requestSecurely(url, { ...options, rejectUnauthorized: false })
    : request(url, options);
  const answered = once(sent, 'response');
  sent.end(content);
  const [response] = await answered;
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString();
  const isJson = String(response.headers['content-type']).startsWith('application/json');
  return {
    status: response.statusCode,
    headers: response.headers,
    text,
    body: isJson && text !== '' ? JSON.parse(text) : undefined,
    took_ms: performance.now() - startedAt,
  };
}
