import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { open, readFile, rename, stat } from 'node:fs/promises';
import { type AddressInfo, connect, createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import mongoose from 'mongoose';
import type { Mongod } from './binary.js';

type Client = InstanceType<typeof mongoose.mongo.MongoClient>;
type Db = ReturnType<Client['db']>;

/** A one-member replica set: it elects itself at once. */
export const replicaSet = 'rs0';
const start_timeout_ms = 300_000;
const stop_timeout_ms = 10_000;
const max_log_bytes = 20_000_000;
const max_reason_length = 600;
const poll_ms = 20;

/** A mongod started by this process. */
export interface MongodProcess {
  port: number;
  child: ChildProcess;
  /** Resolves with the exit code or signal when the process has ended. */
  ended: Promise<string>;
}

interface StartOptions {
  dataDir: string;
  binary: Mongod;
  port: number;
  signal?: AbortSignal;
}

/** Starts mongod on `dataDir`; resolves once it is a primary. @throws Error with the reason from its log */
export async function startMongod({ dataDir, binary, port, signal }: StartOptions): Promise<MongodProcess> {
  const logFile = join(dataDir, 'mongod.log');
  await rotateLog(logFile);
  const output = await open(logFile, 'a', 0o600);
  const { size: logOffset } = await output.stat();
  const child = spawn(binary.path, buildArguments(dataDir, port), {
    // in its own process group: a signal to the group of npm must not end it before the service has closed
    detached: true,
    stdio: ['ignore', output.fd, output.fd],
  });
  const ended = new Promise<string>((resolve) => {
    child.on('error', (error) => resolve(error.message));
    child.once('exit', (code, signal) => resolve(signal ?? `exit code ${code}`));
  });
  await output.close();
  const mongod = { port, child, ended };
  const finished = new AbortController();
  try {
    const failed = ended.then(async (exit) => {
      throw new Error(exit + (await readLogErrors(logFile, logOffset)));
    });
    const signals = [finished.signal, AbortSignal.timeout(start_timeout_ms), ...(signal ? [signal] : [])];
    await Promise.race([waitUntilPrimary(port, AbortSignal.any(signals)), failed]);
    return mongod;
  } catch (error) {
    await stopMongod(mongod);
    throw error;
  } finally {
    finished.abort();
  }
}

function buildArguments(dataDir: string, port: number): string[] {
  const files = ['--dbpath', join(dataDir, 'db'), '--logpath', join(dataDir, 'mongod.log'), '--logappend'];
  const net = ['--bind_ip', '127.0.0.1', '--port', String(port), '--nounixsocket'];
  // the oplog would take 5 % of the disk by default, and only change streams read it
  const engine = ['--storageEngine', 'wiredTiger', '--replSet', replicaSet, '--oplogSize', '512', '--noscripting'];
  // saves hundreds of MB of diagnostic data for MongoDB's support
  const diagnostics = ['--setParameter', 'diagnosticDataCollectionEnabled=false'];
  // reopen: rotateLog renames the log, and SIGUSR1 makes mongod open a new one
  return [...files, '--logRotate', 'reopen', ...net, ...engine, ...diagnostics];
}

async function waitUntilPrimary(port: number, signal: AbortSignal): Promise<void> {
  // the driver would retry only twice a second
  while (!(await acceptsTcp(port))) await sleep(poll_ms, undefined, { signal });
  const host = `127.0.0.1:${port}`;
  await withAdmin(host, async (admin, client) => {
    while (!(await admin.command({ hello: 1 })).isWritablePrimary) {
      await configureReplicaSet(admin, client.db('local'), host);
      await sleep(poll_ms, undefined, { signal });
    }
  });
}

/** Stores the port of this start in the configuration of the replica set, where mongod looks up its own address. */
async function configureReplicaSet(admin: Db, local: Db, host: string): Promise<void> {
  const config = await local.collection('system.replset').findOne();
  if (config?.members[0].host === host) return;
  const command =
    config === null
      ? { replSetInitiate: { _id: replicaSet, members: [{ _id: 0, host }] } }
      : {
          replSetReconfig: { ...config, version: config.version + 1, members: [{ ...config.members[0], host }] },
          force: true,
        };
  await admin.command(command).catch((error: { codeName?: unknown }) => {
    // mongod is still trying its previous address: for 30 s, if a server there accepts connections but never answers
    if (!['NotYetInitialized', 'AlreadyInitialized'].includes(String(error.codeName))) throw error;
  });
}

/** Ends mongod with SIGTERM, after 10 s with SIGKILL. */
export async function stopMongod({ child, ended }: MongodProcess): Promise<void> {
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), stop_timeout_ms);
  await ended;
  clearTimeout(timer);
}

/** Finds the mongod that a killed service has left running on `dataDir`, by the pid that mongod stores in `mongod.lock`. */
export async function findOrphan(dataDir: string): Promise<number | undefined> {
  const dbPath = join(dataDir, 'db');
  const pid = Number(await readFile(join(dbPath, 'mongod.lock'), 'utf8').catch(() => ''));
  return (await isMongodOn(dbPath, pid)) ? pid : undefined;
}

/** Ends an orphan with SIGTERM, after 10 s with SIGKILL. */
export async function stopOrphan(dataDir: string, pid: number): Promise<void> {
  const startedAt = performance.now();
  sendSignal(pid, 'SIGTERM');
  let isForced = false;
  while (await isMongodOn(join(dataDir, 'db'), pid)) {
    await sleep(poll_ms);
    if (isForced || performance.now() - startedAt < stop_timeout_ms) continue;
    isForced = true;
    sendSignal(pid, 'SIGKILL');
  }
}

/** The pid may belong to another process by now, so its command line is compared. */
async function isMongodOn(dbPath: string, pid: number): Promise<boolean> {
  const words = pid > 1 ? await readCommandLine(pid) : [];
  return words.includes('--replSet') && words.includes(dbPath);
}

function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** The words of a living process's command line; none if there is no such process. */
async function readCommandLine(pid: number): Promise<string[]> {
  if (existsSync('/proc/self/cmdline')) {
    return (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0');
  }
  const ps = promisify(execFile)('ps', ['-o', 'command=', '-p', String(pid)]);
  return (await ps.catch(() => ({ stdout: '' }))).stdout.trim().split(/\s+/);
}

/** Renames a log that has grown too large; `mongod` continues in a new one. */
export async function rotateLog(file: string, mongod?: ChildProcess): Promise<void> {
  const { size } = await stat(file).catch(() => ({ size: 0 }));
  if (size < max_log_bytes) return;
  await rename(file, `${file}.1`);
  mongod?.kill('SIGUSR1');
}

/** The errors that mongod, or the dynamic linker, has logged after `offset`. */
async function readLogErrors(logFile: string, offset: number): Promise<string> {
  const lines = (await readFile(logFile)).subarray(offset).toString().split('\n').filter(Boolean);
  const errors = lines.flatMap((line) => {
    if (!line.startsWith('{')) return [line];
    const { s: severity, msg, attr } = JSON.parse(line);
    return severity === 'E' || severity === 'F' ? [`${msg} ${JSON.stringify(attr ?? '')}`] : [];
  });
  return errors
    .map((line) => `; ${line}`)
    .join('')
    .slice(0, max_reason_length);
}

/** Runs `use` on a connection to the admin database. */
export async function withAdmin<T>(host: string, use: (admin: Db, client: Client) => Promise<T>): Promise<T> {
  const timeouts = { serverSelectionTimeoutMS: 2_000, connectTimeoutMS: 2_000, socketTimeoutMS: 30_000 };
  const client = new mongoose.mongo.MongoClient(`mongodb://${host}/?directConnection=true`, timeouts);
  try {
    return await use(client.db('admin'), client);
  } finally {
    await client.close();
  }
}

async function acceptsTcp(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  return new Promise<boolean>((resolve) => {
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
  }).finally(() => socket.destroy());
}

/** Finds a free port: `wanted` unless it is taken. */
export async function findFreePort(wanted: number): Promise<number> {
  const server = createServer();
  const port = await new Promise<number>((resolve) => {
    server.once('error', () => resolve(0));
    server.listen(wanted, '127.0.0.1', () => resolve((server.address() as AddressInfo).port));
  });
  await new Promise((resolve) => server.close(resolve));
  return port === 0 && wanted !== 0 ? findFreePort(0) : port;
}
