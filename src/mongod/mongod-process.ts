import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { open, readdir, readFile, rename, stat, statfs } from 'node:fs/promises';
import { type AddressInfo, connect, createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import mongoose from 'mongoose';
import { awaitLater } from '../lib/promises.js';
import { runWithTimeLimit } from '../lib/time-limit.js';
import type { Mongod } from './binary.js';
import { buildUri, type Credentials, type Login } from './credentials.js';

type Client = InstanceType<typeof mongoose.mongo.MongoClient>;
type Db = ReturnType<Client['db']>;

/** A one-member replica set: it elects itself at once. */
export const replicaSet = 'rs0';
const start_timeout_ms = 300_000;
const stop_timeout_ms = 10_000;
const max_log_bytes = 20_000_000;
const max_reason_length = 600;
/** The last lines of a log say why mongod has ended. */
const max_reason_lines = 200;
/** Less free space than this is named beside the reason: mongod prepares as much for its journal. */
const min_free_bytes = 300e6;
/** All that mongod gets of this process's environment, which holds secrets. */
const inheritedVariables = ['PATH', 'HOME', 'TMPDIR', 'TZ', 'LANG', 'LC_ALL', 'LD_LIBRARY_PATH', 'GLIBC_TUNABLES'];
const poll_ms = 20;

/** A mongod started by this process. */
export interface MongodProcess {
  port: number;
  child: ChildProcess;
  /** Resolves when the process has ended: with its exit code or signal, and the reason as far as it is known. */
  ended: Promise<string>;
}

interface StartOptions {
  dataDir: string;
  binary: Mongod;
  credentials: Credentials;
  env: Readonly<Record<string, string | undefined>>;
  port: number;
  signal?: AbortSignal;
}

/**
 * Starts mongod on `dataDir`, with authentication; resolves once it is a primary that the service can log in to.
 * @throws Error with the reason from its log
 */
export async function startMongod({
  dataDir,
  binary,
  credentials,
  env,
  port,
  signal,
}: StartOptions): Promise<MongodProcess> {
  const logFile = join(dataDir, 'mongod.log');
  await rotateLog(logFile);
  const output = await open(logFile, 'a', 0o600);
  const { size: logOffset } = await output.stat();
  const child = spawn(binary.path, buildArguments(dataDir, credentials.keyFile, port), {
    // in its own process group: a signal to the group of npm must not end it before the service has closed
    detached: true,
    stdio: ['ignore', output.fd, output.fd],
    env: Object.fromEntries(inheritedVariables.map((name) => [name, env[name]])),
  });
  const exited = new Promise<string>((resolve) => {
    child.on('error', (error) => resolve(error.message));
    child.once('exit', (code, signal) => resolve(signal ?? `exit code ${code}`));
  });
  const findReason = async (exit: string) => {
    const reasons = await Promise.all([describeSpace(dataDir), readErrors(logFile, logOffset)]).catch(() => []);
    return [exit, ...reasons].join('');
  };
  const ended = awaitLater(exited.then(findReason));
  await output.close();
  const mongod = { port, child, ended };
  const finished = new AbortController();
  try {
    const ending = AbortSignal.any([finished.signal, ...(signal ? [signal] : [])]);
    await Promise.race([
      runWithTimeLimit(start_timeout_ms, ending, (limited) => initialize(`127.0.0.1:${port}`, credentials, limited)),
      ended.then((reason) => {
        throw new Error(reason);
      }),
    ]);
    return mongod;
  } catch (error) {
    await stopMongod(mongod);
    throw error;
  } finally {
    finished.abort();
  }
}

function buildArguments(dataDir: string, keyFile: string, port: number): string[] {
  const files = ['--dbpath', join(dataDir, 'db'), '--logpath', join(dataDir, 'mongod.log'), '--logappend'];
  const net = ['--bind_ip', '127.0.0.1', '--port', String(port), '--nounixsocket'];
  // the oplog would take 5 % of the disk by default, and only change streams read it
  const engine = ['--storageEngine', 'wiredTiger', '--replSet', replicaSet, '--oplogSize', '512', '--noscripting'];
  // without the bypass there is no moment at which a local process could create the first user
  const access = ['--keyFile', keyFile, '--setParameter', 'enableLocalhostAuthBypass=false'];
  // saves hundreds of MB of diagnostic data for MongoDB's support
  const diagnostics = ['--setParameter', 'diagnosticDataCollectionEnabled=false'];
  // reopen: rotateLog renames the log, and SIGUSR1 makes mongod open a new one
  return [...files, '--logRotate', 'reopen', ...net, ...engine, ...access, ...diagnostics];
}

/** Makes mongod a primary, and creates the user of the service, or updates its password. */
async function initialize(host: string, credentials: Credentials, signal: AbortSignal): Promise<void> {
  for (;;) {
    // the driver would retry only twice a second
    while (!(await acceptsTcp(host))) await sleep(poll_ms, undefined, { signal });
    try {
      await initializeOnce(host, credentials, signal);
      return;
    } catch (error) {
      // a mongod whose configuration changes closes its connections
      const { MongoNetworkError, MongoServerSelectionError } = mongoose.mongo;
      if (!(error instanceof MongoNetworkError || error instanceof MongoServerSelectionError)) throw error;
      await sleep(poll_ms, undefined, { signal });
    }
  }
}

async function initializeOnce(host: string, { system, service }: Credentials, signal: AbortSignal): Promise<void> {
  await withAdmin(buildUri(system, host, ''), async (admin, client) => {
    while (!(await admin.command({ hello: 1 })).isWritablePrimary) {
      await configureReplicaSet(admin, client.db('local'), host);
      await sleep(poll_ms, undefined, { signal });
    }
    if (await canLogIn(host, service)) return;
    const { users } = await admin.command({ usersInfo: service.username });
    const command = users.length === 0 ? 'createUser' : 'updateUser';
    await admin.command({ [command]: service.username, pwd: service.password, roles: ['root'] });
  });
}

function canLogIn(host: string, login: Login): Promise<boolean> {
  return withAdmin(buildUri(login, host, ''), (admin) => admin.command({ ping: 1 })).then(
    () => true,
    (error: { codeName?: unknown }) => {
      if (error.codeName === 'AuthenticationFailed') return false;
      throw error;
    },
  );
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

/** Finds the same among all processes: mongod stores its pid only once its storage engine has started. */
export async function findStartingOrphan(dataDir: string): Promise<number | undefined> {
  const dbPath = join(dataDir, 'db');
  for (const pid of await listPids()) if (await isMongodOn(dbPath, pid)) return pid;
  return undefined;
}

async function listPids(): Promise<number[]> {
  if (existsSync('/proc/self/cmdline')) return (await readdir('/proc')).map(Number).filter(Number.isInteger);
  const { stdout } = await promisify(execFile)('ps', ['-axo', 'pid=']);
  return stdout.split('\n').map(Number);
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

/** Names the free space of a folder where there is hardly any. */
export async function describeSpace(folder: string): Promise<string> {
  const { bavail, bsize } = await statfs(folder);
  const free_bytes = bavail * bsize;
  return free_bytes < min_free_bytes ? `; ${Math.floor(free_bytes / 1e6)} MB free` : '';
}

/** The errors that mongod, or the dynamic linker, has logged after `offset`. A full disk cuts a line off. */
async function readErrors(logFile: string, offset: number): Promise<string> {
  const log = await readFile(logFile);
  // rotated since, it is shorter
  const text = log.subarray(offset > log.length ? 0 : offset).toString();
  const errors = text
    .split('\n')
    .slice(-max_reason_lines)
    .flatMap((line) => {
      const { s: severity, msg, attr } = parseLine(line);
      return severity === 'E' || severity === 'F'
        ? [`; ${msg}${attr === undefined ? '' : ` ${JSON.stringify(attr)}`}`]
        : [];
    });
  return errors.join('').slice(0, max_reason_length);
}

/** Parses a line of mongod's log. What is no JSON counts as an error with its text, unless it says otherwise. */
function parseLine(line: string): { s: string | undefined; msg: string; attr?: object } {
  try {
    return JSON.parse(line);
  } catch {
    return { s: line === '' ? undefined : (/"s":"(\w)"/.exec(line)?.[1] ?? 'E'), msg: line };
  }
}

/** Runs `use` on the admin database of the mongod at `uri`, whatever its state in the replica set. */
export async function withAdmin<T>(uri: string, use: (admin: Db, client: Client) => Promise<T>): Promise<T> {
  const timeouts = { serverSelectionTimeoutMS: 2_000, connectTimeoutMS: 2_000, socketTimeoutMS: 30_000 };
  const client = new mongoose.mongo.MongoClient(uri, { directConnection: true, ...timeouts });
  try {
    return await use(client.db('admin'), client);
  } finally {
    await client.close();
  }
}

async function acceptsTcp(host: string): Promise<boolean> {
  const { hostname, port } = new URL(`tcp://${host}`);
  const socket = connect(Number(port), hostname);
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
