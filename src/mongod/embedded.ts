import { mkdir, readFile, realpath, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../errors.js';
import { writeAtomically } from './atomic-file.js';
import { findMongod, type Mongod } from './binary.js';
import { lockDataDir } from './data-dir-lock.js';
import {
  findFreePort,
  findOrphan,
  type MongodProcess,
  replicaSet,
  rotateLog,
  startMongod,
  stopMongod,
  stopOrphan,
  withAdmin,
} from './mongod-process.js';

type WriteLog = (fields: object, message: string) => void;

export interface EmbeddedOptions {
  dataDir: string;
  env: Readonly<Record<string, string | undefined>>;
  log: { info: WriteLog; warn: WriteLog; error: WriteLog };
  print: (line: string) => void;
}

const database = 'device_platform';
const min_backoff_ms = 100;
const max_backoff_ms = 5_000;
/** A mongod that has run for this long counts as healthy: its next failure starts the backoff over. */
const stable_after_ms = 60_000;
const log_check_period_ms = 60_000;

/**
 * Starts mongod on `dataDir` and keeps it running until `stop` (reference/configuration.md#embedded-database).
 * `stop` ends mongod and unlocks `dataDir`; it may be called more than once.
 * @throws StartError if a living instance uses `dataDir`, or mongod does not start
 * @throws Error if there is no mongod (see findMongod)
 */
export async function startEmbedded(options: EmbeddedOptions): Promise<{ uri: string; stop(): Promise<void> }> {
  const toStartError = (error: unknown) => {
    if (error instanceof StartError) throw error;
    throw new StartError(`DATA_DIR ${options.dataDir} cannot be used: ${messageOf(error)}`);
  };
  await mkdir(options.dataDir, { recursive: true, mode: 0o700 }).catch(toStartError);
  const dataDir = await realpath(options.dataDir);
  const unlock = await lockDataDir(join(dataDir, 'service.lock'), dataDir).catch(toStartError);
  const closers = [unlock];
  const close = async () => {
    for (const closer of closers.toReversed()) await closer();
  };
  try {
    await mkdir(join(dataDir, 'db'), { recursive: true, mode: 0o700 });
    await endOrphan(dataDir, options.log);
    const binary = await findMongod(options);
    const mongod = await startOnFreePort(dataDir, binary);
    closers.push(superviseMongod(mongod, dataDir, binary, options.log));
    await writeAtomically(join(dataDir, 'mongod.json'), JSON.stringify({ port: mongod.port, version: binary.version }));
    // not directConnection: measured, clients reconnect no faster with it after a restart of mongod
    const uri = `mongodb://127.0.0.1:${mongod.port}/${database}?replicaSet=${replicaSet}`;
    const uriFile = join(dataDir, 'mongodb.uri');
    await writeAtomically(uriFile, `${uri}\n`);
    closers.push(() => rm(uriFile, { force: true }));
    options.log.info({ version: binary.version, port: mongod.port, dataDir }, 'embedded database started');
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

/** Finds the URI of the embedded database that runs on `dataDir`, if one does; for tools that join it. */
export async function findEmbeddedUri(dataDir: string): Promise<string | undefined> {
  const uri = (await readFile(join(dataDir, 'mongodb.uri'), 'utf8').catch(() => '')).trim();
  if (uri === '') return undefined;
  try {
    const dbPath = join(await realpath(dataDir), 'db');
    // after a crash another mongod may listen on the port
    return await withAdmin(new URL(uri).host, async (admin) => {
      const { parsed } = await admin.command({ getCmdLineOpts: 1 });
      return parsed.storage.dbPath === dbPath ? uri : undefined;
    });
  } catch {
    return undefined;
  }
}

async function endOrphan(dataDir: string, log: EmbeddedOptions['log']): Promise<void> {
  const pid = await findOrphan(dataDir);
  if (pid === undefined) return;
  log.warn({ pid }, 'ending the embedded database that an earlier instance has left running');
  await stopOrphan(dataDir, pid);
}

/** Starts mongod on the port of the last start if that is free. */
async function startOnFreePort(dataDir: string, binary: Mongod): Promise<MongodProcess> {
  const lastStart = await readLastStart(dataDir);
  try {
    return await startMongod({ dataDir, binary, port: await findFreePort(lastStart?.port ?? 0) });
  } catch (error) {
    // the port was taken between the check and mongod's bind
    if (messageOf(error).includes('Address already in use')) {
      return startMongod({ dataDir, binary, port: await findFreePort(0) });
    }
    const isOtherVersion = lastStart !== undefined && lastStart.version !== binary.version;
    const hint = isOtherVersion ? ` (the data was last used with ${lastStart.version})` : '';
    throw new StartError(`mongod ${binary.version} does not start on ${dataDir}${hint}: ${messageOf(error)}`);
  }
}

/**
 * Restarts mongod whenever it ends, on the same port so that clients find it, with exponential backoff.
 * @returns the function that ends mongod for good
 */
function superviseMongod(first: MongodProcess, dataDir: string, binary: Mongod, log: EmbeddedOptions['log']) {
  const stopping = new AbortController();
  const { signal } = stopping;
  let current = first;
  const restartLoop = async () => {
    for (let failures = 0; ; failures += 1) {
      const startedAt = performance.now();
      const exit = await current.ended;
      if (signal.aborted) return;
      if (performance.now() - startedAt > stable_after_ms) failures = 0;
      log.error({ exit, failures }, 'embedded database is down; starting it again');
      await sleep(Math.min(min_backoff_ms * 4 ** failures, max_backoff_ms), undefined, { signal });
      try {
        current = await startMongod({ dataDir, binary, port: first.port, signal });
        log.info({ port: first.port }, 'embedded database runs again');
      } catch (error) {
        if (signal.aborted) return;
        log.error({ reason: messageOf(error) }, 'embedded database does not start');
      }
    }
  };
  // rejects when the stop interrupts the backoff
  const restarting = restartLoop().catch(() => {});
  const rotation = setInterval(() => {
    rotateLog(join(dataDir, 'mongod.log'), current.child).catch((error: unknown) =>
      log.warn({ reason: messageOf(error) }, 'mongod.log cannot be renamed'),
    );
  }, log_check_period_ms);
  return async () => {
    stopping.abort();
    clearInterval(rotation);
    await stopMongod(current);
    await restarting;
    await stopMongod(current);
    log.info({}, 'embedded database stopped');
  };
}

async function readLastStart(dataDir: string): Promise<{ port: number; version: string } | undefined> {
  try {
    const { port, version } = JSON.parse(await readFile(join(dataDir, 'mongod.json'), 'utf8'));
    return { port: Number(port), version: String(version) };
  } catch {
    return undefined;
  }
}

function messageOf(error: unknown): string {
  return String((error as { message?: unknown } | undefined)?.message ?? error);
}
