import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { link, mkdir, open, readFile, realpath, rename, rm, stat, writeFile } from 'node:fs/promises';
import { type AddressInfo, connect, createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import mongoose from 'mongoose';
import { StartError } from '../errors.js';
import { findMongod, type Mongod } from './binary.js';

type Write = (details: object, message: string) => void;
type Client = InstanceType<typeof mongoose.mongo.MongoClient>;
type Db = ReturnType<Client['db']>;

export interface EmbeddedOptions {
  dataDir: string;
  env: Readonly<Record<string, string | undefined>>;
  log: { info: Write; warn: Write; error: Write };
  print: (line: string) => void;
}

/** One member: elects itself at once, and has no other to take over from. */
const replicaSet = 'rs0';
const database = 'device_platform';
const start_timeout_ms = 300_000;
const stop_timeout_ms = 10_000;
const longest_pause_ms = 5_000;
const settled_ms = 60_000;
const log_limit_bytes = 20_000_000;
const poll_ms = 20;

/**
 * Starts a mongod of our own on `dataDir` and keeps it running until `stop` (contract section 1).
 * `stop` may be called more than once; it ends mongod and frees `dataDir`.
 * @throws StartError if a living instance has `dataDir`, or mongod does not start
 * @throws Error if there is no mongod (see findMongod)
 */
export async function startEmbedded(options: EmbeddedOptions): Promise<{ uri: string; stop(): Promise<void> }> {
  const unusable = (error: unknown) => {
    if (error instanceof StartError) throw error;
    throw new StartError(`DATA_DIR ${options.dataDir} cannot be used: ${messageOf(error)}`);
  };
  await mkdir(options.dataDir, { recursive: true, mode: 0o700 }).catch(unusable);
  const dataDir = await realpath(options.dataDir);
  const release = await lock(join(dataDir, 'service.lock'), dataDir).catch(unusable);
  const closers = [release];
  const close = async () => {
    for (const step of closers.toReversed()) await step();
  };
  try {
    await mkdir(join(dataDir, 'db'), { recursive: true, mode: 0o700 });
    await endLeftOver(dataDir, options.log);
    const binary = await findMongod(options);
    const running = await startOnFreePort(dataDir, binary);
    closers.push(keepRunning(running, dataDir, binary, options.log));
    await writeWhole(join(dataDir, 'mongod.json'), JSON.stringify({ port: running.port, version: binary.version }));
    // directConnection makes clients reconnect no faster after a restart of mongod: measured
    const uri = `mongodb://127.0.0.1:${running.port}/${database}?replicaSet=${replicaSet}`;
    const uriFile = join(dataDir, 'mongodb.uri');
    await writeWhole(uriFile, `${uri}\n`);
    closers.push(() => rm(uriFile, { force: true }));
    options.log.info({ version: binary.version, port: running.port, dataDir }, 'embedded database started');
    let closing: Promise<void> | undefined;
    return {
      uri,
      stop() {
        closing ??= close();
        return closing;
      },
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** The address of the embedded database that runs on `dataDir`, if one does: for tools that join it. */
export async function findEmbeddedUri(dataDir: string): Promise<string | undefined> {
  const uri = (await readFile(join(dataDir, 'mongodb.uri'), 'utf8').catch(() => '')).trim();
  if (uri === '') return undefined;
  try {
    const dbPath = join(await realpath(dataDir), 'db');
    // another mongod may have got the port since
    return await withAdmin(new URL(uri).host, async (admin) => {
      const { parsed } = await admin.command({ getCmdLineOpts: 1 });
      return parsed.storage.dbPath === dbPath ? uri : undefined;
    });
  } catch {
    return undefined;
  }
}

// ---- mongod

interface Running {
  port: number;
  child: ChildProcess;
  /** settles when the process has ended */
  ended: Promise<string>;
}

async function startOnFreePort(dataDir: string, binary: Mongod): Promise<Running> {
  const last = await readLast(dataDir);
  try {
    return await startMongod(dataDir, binary, await freePort(last?.port ?? 0));
  } catch (error) {
    // the port was free when looked at, but not when mongod came to bind it
    if (messageOf(error).includes('Address already in use')) return startMongod(dataDir, binary, await freePort(0));
    const before = last && last.version !== binary.version ? ` (the data was last used with ${last.version})` : '';
    throw new StartError(`mongod ${binary.version} does not start on ${dataDir}${before}: ${messageOf(error)}`);
  }
}

/** @returns once it is a primary that takes writes */
async function startMongod(
  dataDir: string,
  binary: Mongod,
  port: number,
  signal = new AbortController().signal,
): Promise<Running> {
  const logFile = join(dataDir, 'mongod.log');
  await rotate(logFile);
  const output = await open(logFile, 'a', 0o600);
  const begin = (await output.stat()).size;
  const child = spawn(binary.path, argumentsOf(dataDir, port), {
    // a group of its own: a signal to the group of npm must not end it before the service has closed
    detached: true,
    stdio: ['ignore', output.fd, output.fd],
  });
  const ended = new Promise<string>((done) => {
    child.on('error', (error) => done(error.message));
    child.once('exit', (code, signal) => done(signal ?? `exit code ${code}`));
  });
  await output.close();
  const running = { port, child, ended };
  const gaveUp = new AbortController();
  try {
    const failed = ended.then(async (how) => {
      throw new Error(`${how}${await complaints(logFile, begin)}`);
    });
    await Promise.race([untilPrimary(port, AbortSignal.any([signal, gaveUp.signal])), failed]);
    return running;
  } catch (error) {
    await endProcess(running);
    throw error;
  } finally {
    gaveUp.abort();
  }
}

function argumentsOf(dataDir: string, port: number): string[] {
  const place = ['--dbpath', join(dataDir, 'db'), '--logpath', join(dataDir, 'mongod.log'), '--logappend'];
  const net = ['--bind_ip', '127.0.0.1', '--port', String(port), '--nounixsocket'];
  // the oplog is read by nobody else; its default is 5 % of the disk
  const engine = ['--storageEngine', 'wiredTiger', '--replSet', replicaSet, '--oplogSize', '512', '--noscripting'];
  // hundreds of MB for MongoDB's support
  const quiet = ['--setParameter', 'diagnosticDataCollectionEnabled=false'];
  // reopen: the log is renamed by us, then opened anew on SIGUSR1
  return [...place, '--logRotate', 'reopen', ...net, ...engine, ...quiet];
}

async function untilPrimary(port: number, gaveUp: AbortSignal): Promise<void> {
  const limit = AbortSignal.any([gaveUp, AbortSignal.timeout(start_timeout_ms)]);
  // the driver would look twice a second only
  while (!(await answers(port))) await sleep(poll_ms, undefined, { signal: limit });
  const host = `127.0.0.1:${port}`;
  await withAdmin(host, async (admin, client) => {
    while (!(await admin.command({ hello: 1 })).isWritablePrimary) {
      await configure(admin, client.db('local'), host);
      await sleep(poll_ms, undefined, { signal: limit });
    }
  });
}

/** Names the port of this start in the replica set's configuration, where mongod looks for itself. */
async function configure(admin: Db, local: Db, host: string): Promise<void> {
  const config = await local.collection('system.replset').findOne();
  if (config?.members[0].host === host) return;
  const command =
    config === null
      ? { replSetInitiate: { _id: replicaSet, members: [{ _id: 0, host }] } }
      : {
          replSetReconfig: { ...config, version: config.version + 1, members: [{ ...config.members[0], host }] },
          force: true,
        };
  await admin.command(command).catch((error: unknown) => {
    // mongod is still looking for itself at the address of last time: 30 s, if a server there accepts and keeps silent
    if (!['NotYetInitialized', 'AlreadyInitialized'].includes(codeNameOf(error))) throw error;
  });
}

/**
 * Starts mongod again whenever it ends, on its port, so that clients find it; with longer pauses for repeated failures.
 * @returns the function that ends it for good
 */
function keepRunning(first: Running, dataDir: string, binary: Mongod, log: EmbeddedOptions['log']) {
  const stopping = new AbortController();
  const { signal } = stopping;
  let current = first;
  const watch = async () => {
    for (let failures = 0; ; failures += 1) {
      const since = performance.now();
      const how = await current.ended;
      if (signal.aborted) return;
      if (performance.now() - since > settled_ms) failures = 0;
      log.error({ how, failures }, 'embedded database is down; starting it again');
      await sleep(Math.min(100 * 4 ** failures, longest_pause_ms), undefined, { signal });
      try {
        current = await startMongod(dataDir, binary, first.port, signal);
        log.info({ port: first.port }, 'embedded database runs again');
      } catch (error) {
        if (signal.aborted) return;
        log.error({ reason: messageOf(error) }, 'embedded database does not start');
      }
    }
  };
  const watching = watch().catch(() => {}); // a pause cut short by the stop
  const tidying = setInterval(() => {
    rotate(join(dataDir, 'mongod.log'), current.child).catch((error: unknown) =>
      log.warn({ reason: messageOf(error) }, 'mongod.log cannot be renamed'),
    );
  }, 60_000);
  return async () => {
    stopping.abort();
    clearInterval(tidying);
    await endProcess(current);
    await watching;
    await endProcess(current);
    log.info({}, 'embedded database stopped');
  };
}

async function endProcess({ child, ended }: Running): Promise<void> {
  child.kill('SIGTERM');
  const force = setTimeout(() => child.kill('SIGKILL'), stop_timeout_ms);
  await ended;
  clearTimeout(force);
}

/** Ends the mongod that a killed service has left on our files. mongod itself keeps its pid in `mongod.lock`. */
async function endLeftOver(dataDir: string, log: EmbeddedOptions['log']): Promise<void> {
  const dbPath = join(dataDir, 'db');
  const pid = Number(await readFile(join(dbPath, 'mongod.lock'), 'utf8').catch(() => ''));
  // the number may be another process's by now
  const isOurs = async () => {
    const words = pid > 1 ? await commandOf(pid) : [];
    return words.includes('--replSet') && words.includes(dbPath);
  };
  if (!(await isOurs())) return;
  log.warn({ pid }, 'ending the embedded database that an earlier instance has left running');
  const started = performance.now();
  send(pid, 'SIGTERM');
  for (let force = false; await isOurs(); ) {
    await sleep(poll_ms);
    if (force || performance.now() - started < stop_timeout_ms) continue;
    force = true;
    send(pid, 'SIGKILL');
  }
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if (!isCode(error, 'ESRCH')) throw error;
  }
}

/** The words of a living process's command line; none if there is no such process. */
async function commandOf(pid: number): Promise<string[]> {
  if (existsSync('/proc/self/cmdline')) {
    return (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0');
  }
  const ps = promisify(execFile)('ps', ['-o', 'command=', '-p', String(pid)]);
  return (await ps.catch(() => ({ stdout: '' }))).stdout.trim().split(/\s+/);
}

async function rotate(file: string, mongod?: ChildProcess): Promise<void> {
  const { size } = await stat(file).catch(() => ({ size: 0 }));
  if (size < log_limit_bytes) return;
  await rename(file, `${file}.1`);
  mongod?.kill('SIGUSR1');
}

/** What mongod, or the loader, has written about its failure since `begin`. */
async function complaints(logFile: string, begin: number): Promise<string> {
  const lines = (await readFile(logFile)).subarray(begin).toString().split('\n').filter(Boolean);
  const bad = lines.flatMap((line) => {
    if (!line.startsWith('{')) return [line];
    const { s: severity, msg, attr } = JSON.parse(line);
    return severity === 'E' || severity === 'F' ? [`${msg} ${JSON.stringify(attr ?? '')}`] : [];
  });
  return bad
    .map((line) => `; ${line}`)
    .join('')
    .slice(0, 600);
}

async function withAdmin<T>(host: string, use: (admin: Db, client: Client) => Promise<T>): Promise<T> {
  const times = { serverSelectionTimeoutMS: 2_000, connectTimeoutMS: 2_000, socketTimeoutMS: 30_000 };
  const client = new mongoose.mongo.MongoClient(`mongodb://${host}/?directConnection=true`, times);
  try {
    return await use(client.db('admin'), client);
  } finally {
    await client.close();
  }
}

async function answers(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  return new Promise<boolean>((done) => {
    socket.once('connect', () => done(true)).once('error', () => done(false));
  }).finally(() => socket.destroy());
}

/** `wanted` if nobody has it, else any. */
async function freePort(wanted: number): Promise<number> {
  const server = createServer();
  const port = await new Promise<number>((done) => {
    server.once('error', () => done(0));
    server.listen(wanted, '127.0.0.1', () => done((server.address() as AddressInfo).port));
  });
  await new Promise((done) => server.close(done));
  return port === 0 && wanted !== 0 ? freePort(0) : port;
}

async function readLast(dataDir: string): Promise<{ port: number; version: string } | undefined> {
  try {
    const { port, version } = JSON.parse(await readFile(join(dataDir, 'mongod.json'), 'utf8'));
    return { port: Number(port), version: String(version) };
  } catch {
    return undefined;
  }
}

// ---- the lock: one living instance on a folder

/** @returns the function that frees it. @throws StartError if a living process has it */
async function lock(path: string, dataDir: string): Promise<() => Promise<void>> {
  const mine = `${process.pid} ${await startOf(process.pid)} ${randomUUID()}\n`;
  while (true) {
    if (await createWhole(path, mine)) break;
    const theirs = await readFile(path, 'utf8').catch(() => undefined);
    if (theirs === undefined) continue;
    if (await isAlive(theirs)) {
      const pid = theirs.split(' ')[0];
      throw new StartError(`DATA_DIR ${dataDir} is in use by process ${pid} (if that is wrong, remove ${path})`);
    }
    // One at a time may replace what a dead process has left; otherwise two could each take the other's for the old one.
    const unlock = await lock(`${path}.replace`, dataDir);
    try {
      if ((await readFile(path, 'utf8').catch(() => undefined)) !== theirs) continue;
      await writeWhole(path, mine);
      break;
    } finally {
      await unlock();
    }
  }
  return async () => {
    if ((await readFile(path, 'utf8').catch(() => undefined)) === mine) await rm(path, { force: true });
  };
}

async function isAlive(holder: string): Promise<boolean> {
  const [pid = '', start = ''] = holder.trim().split(' ');
  return /^\d+$/.test(pid) && (await startOf(Number(pid))) === start;
}

/** When the process began, in clock ticks since boot: tells it from a later one with its pid. '' if it does not live. */
async function startOf(pid: number): Promise<string> {
  if (existsSync('/proc/self/stat')) {
    const line = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
    // the name before may hold spaces and parentheses
    const fields = line.slice(line.lastIndexOf(')') + 2).split(' ');
    return fields[0] === 'Z' ? '' : (fields[19] ?? '');
  }
  try {
    process.kill(pid, 0);
    return 'unknown';
  } catch (error) {
    return isCode(error, 'EPERM') ? 'unknown' : '';
  }
}

/** No reader ever sees half of it. @returns false if `path` exists */
async function createWhole(path: string, content: string): Promise<boolean> {
  const draft = `${path}.${randomUUID()}`;
  await writeFile(draft, content, { mode: 0o600 });
  try {
    await link(draft, path);
    return true;
  } catch (error) {
    if (isCode(error, 'EEXIST')) return false;
    throw error;
  } finally {
    await rm(draft);
  }
}

/** No reader ever sees half of it. */
async function writeWhole(path: string, content: string): Promise<void> {
  const draft = `${path}.${randomUUID()}`;
  await writeFile(draft, content, { mode: 0o600 });
  await rename(draft, path);
}

function messageOf(error: unknown): string {
  return String((error as { message?: unknown } | undefined)?.message ?? error);
}

function codeNameOf(error: unknown): string {
  return String((error as { codeName?: unknown } | undefined)?.codeName);
}

function isCode(error: unknown, code: string): boolean {
  return (error as { code?: unknown } | undefined)?.code === code;
}
