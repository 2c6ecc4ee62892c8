import { once } from 'node:events';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { type Agent, request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import mongoose, { type mongo } from 'mongoose';
import { findFreePort, type ServiceProcess, startProcess, startServiceProcess } from './service-process.js';

/** A built service with an embedded database and a data folder of its own. */
export interface Instance extends ServiceProcess {
  mqttPort: number;
  databasePort: number;
  /** Key of scope `admin` of the account `demo`. */
  key: string;
  folder: string;
  /** Issues a key with the command-line tool. */
  /** @param limit options such as `--id-device` with an identifier */
  issueKey(account: string, scope: string, ...limit: string[]): Promise<string>;
  /** Connects to the embedded database; `close` ends the connection. */
  database(): Promise<mongo.Db>;
  close(): Promise<void>;
}

export interface Reply {
  status: number;
  /** Code of a status body, 0 without one. */
  code: number;
  headers: NodeJS.Dict<string | string[]>;
  text: string;
  took_ms: number;
}

interface RequestOptions {
  url: string;
  key?: string;
  method?: string;
  path: string;
  body?: string | object | undefined;
  headers?: Record<string, string>;
  timeout_ms?: number;
  /** Keeps connections; default: a connection for the request alone. */
  agent?: Agent;
}

/** A TCP connection and what it has received. */
export interface RawConnection {
  socket: Socket;
  received(): Buffer;
  /** Statuses of the HTTP answers so far. */
  statuses(): number[];
  /** Resolves when the connection is closed by either side. */
  closed: Promise<void>;
}

const key = 'a-key-that-only-a-test-instance-has';

/** Starts the built service on 127.0.0.1, on an empty data folder unless `DATA_DIR` is given, and waits until it is ready. */
export async function startInstance(env: NodeJS.ProcessEnv = {}): Promise<Instance> {
  const folder = await mkdtemp(join(tmpdir(), 'instance-'));
  const { DATA_DIR = join(folder, 'data') } = env;
  const mqttPort = await findFreePort();
  const { PATH, HOME, MONGOMS_SYSTEM_BINARY } = process.env;
  const settings = { HOST: '127.0.0.1', PORT: '0', MQTT_PORT: String(mqttPort), LOG_FORMAT: 'off', LOG_LEVEL: 'fatal' };
  const fullEnv = {
    PATH,
    HOME,
    ...(MONGOMS_SYSTEM_BINARY !== undefined && { MONGOMS_SYSTEM_BINARY }),
    ...settings,
    BOOTSTRAP_API_KEY: key,
    ...env,
    DATA_DIR,
  };
  const service = await startServiceProcess({ env: fullEnv, logFile: join(folder, 'output.log'), timeout_ms: 120_000 });
  const uri = (await readFile(join(DATA_DIR, 'mongodb.uri'), 'utf8')).trim();
  let client: mongo.MongoClient | undefined;
  return {
    ...service,
    mqttPort,
    databasePort: Number(/:(\d+)\//.exec(uri)?.[1]),
    key,
    folder,
    async issueKey(account, scope, ...limit) {
      const user = ['--account', account, '--user', 'tester'];
      const args = ['dist/src/cli/keys.js', 'create', ...user, '--scope', scope, ...limit];
      const tool = startProcess(process.execPath, args, { env: { ...fullEnv, NODE_OPTIONS: '' } });
      if ((await tool.ended) !== 0) throw new Error(`cannot issue a key: ${tool.err()}`);
      return tool.out().trim();
    },
    async database() {
      client ??= new mongoose.mongo.MongoClient(uri);
      return client.db();
    },
    async close() {
      await client?.close();
      await service.stop();
      await stopOrphanedMongod(DATA_DIR);
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** A `mongod` outlives a service that was killed or has crashed. */
async function stopOrphanedMongod(data: string): Promise<void> {
  const pid = Number(await readFile(join(data, 'db/mongod.lock'), 'utf8').catch(() => '0'));
  const command = pid > 0 ? await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '') : '';
  if (command.includes(data)) process.kill(pid, 'SIGKILL');
}

/** Sends one request. @throws Error if the connection fails or time runs out */
export function sendRequest(options: RequestOptions): Promise<Reply> {
  const { url, key: apiKey, method = 'GET', path, body, headers = {}, timeout_ms = 20_000, agent = false } = options;
  const begun_ms = performance.now();
  return new Promise((resolve, reject) => {
    const text = typeof body === 'object' ? JSON.stringify(body) : body;
    const allHeaders = { ...(apiKey !== undefined && { 'service.apikey': apiKey }), ...headers };
    const outgoing = request(url + path, { method, agent, headers: allHeaders }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('close', () => reject(new Error(`${method} ${path}: the answer was cut`)));
      response.on('end', () => {
        const received = Buffer.concat(chunks).toString();
        const code = Number(
          /^\{"code":(\d{4})|^<\?xml[^>]*><response><code>(\d{4})/.exec(received)?.slice(1).join('') ?? 0,
        );
        const { statusCode: status = 0, headers: answered } = response;
        resolve({ status, code, headers: answered, text: received, took_ms: performance.now() - begun_ms });
      });
    });
    outgoing.setTimeout(timeout_ms, () =>
      outgoing.destroy(new Error(`${method} ${path}: no answer within ${timeout_ms} ms`)),
    );
    outgoing.on('error', reject);
    outgoing.end(text);
  });
}

/** Opens a TCP connection to 127.0.0.1; its errors only close it. */
export async function openConnection(port: number): Promise<RawConnection> {
  const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true });
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  socket.on('error', () => undefined);
  // answers the end of the other side, as an ordinary client would
  socket.on('end', () => socket.end());
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  await once(socket, 'connect');
  const received = () => Buffer.concat(chunks);
  const statuses = () =>
    [
      ...received()
        .toString('latin1')
        .matchAll(/HTTP\/1\.1 (\d{3})/g),
    ].map((match) => Number(match[1]));
  return { socket, received, statuses, closed };
}

/** Opens `count` TCP connections, 200 at a time. */
export async function openConnections(port: number, count: number): Promise<RawConnection[]> {
  const connections: RawConnection[] = [];
  while (connections.length < count) {
    const size = Math.min(200, count - connections.length);
    connections.push(...(await Promise.all(Array.from({ length: size }, () => openConnection(port)))));
  }
  return connections;
}

/** Counts the open descriptors of an instance without its connections to the database, whose pool grows with the load. */
export function countDescriptors({ pid, databasePort }: Pick<Instance, 'pid' | 'databasePort'>): number {
  const portInHex = `:${databasePort.toString(16).toUpperCase().padStart(4, '0')}`;
  // columns: number, local address, remote address, state, queues, timer, retransmits, user, timeout, inode
  const rows = readFileSync(`/proc/${pid}/net/tcp`, 'utf8')
    .split('\n')
    .map((line) => line.trim().split(/\s+/));
  const pooled = new Set(rows.filter((row) => row[2]?.endsWith(portInHex)).map((row) => `socket:[${row[9]}]`));
  return readdirSync(`/proc/${pid}/fd`).filter((name) => !pooled.has(readDescriptor(pid, name))).length;
}

/** @returns an empty text for a descriptor that was closed in between */
function readDescriptor(pid: number, name: string): string {
  try {
    return readlinkSync(`/proc/${pid}/fd/${name}`);
  } catch {
    return '';
  }
}

/** Returns the resident memory of a process in MiB; 0 if it has ended, and except on Linux. */
export function readResident_mib(pid: number): number {
  try {
    const [, kib = '0'] = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
    return Math.round(Number(kib) / 1024);
  } catch {
    return 0;
  }
}

/** Awaits `work`. @throws Error that names `what` when time runs out */
export async function awaitWithin<T>(work: Promise<T>, limit_ms: number, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} takes over ${limit_ms} ms`)), limit_ms);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}
