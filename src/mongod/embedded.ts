import { readFile, realpath, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../errors.js';
import { writeAtomically } from '../lib/atomic-file.js';
import { awaitLater } from '../lib/promises.js';
import { createRateLimitedLog } from '../lib/rate-limited-log.js';
import { findMongod, type Mongod } from './binary.js';
import { buildUri, type Credentials, loadCredentials } from './credentials.js';
import { createDataDir } from './data-dir.js';
import { lockDataDir } from './data-dir-lock.js';
import {
  findFreePort,
  findOrphan,
  findStartingOrphan,
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

/** Everything that a start of mongod needs, apart from the port. */
interface Installation {
  dataDir: string;
  binary: Mongod;
  credentials: Credentials;
  env: EmbeddedOptions['env'];
}

const lastStartPath = (dataDir: string) => join(dataDir, 'mongod.json');
const uriPath = (dataDir: string) => join(dataDir, 'mongodb.uri');
const database = 'device_platform';
const max_start_attempts = 3;
const min_backoff_ms = 100;
const max_backoff_ms = 5_000;
/** A mongod that has run for this long counts as healthy: its next failure starts the backoff over. */
const stable_after_ms = 60_000;
const log_check_period_ms = 60_000;

/**
 * Starts mongod on `dataDir` and keeps it running until `stop` (reference/configuration.md#embedded-database).
 * `stop` ends mongod and unlocks `dataDir`; it may be called more than once.
 * @throws StartError if `dataDir` cannot be used or a living instance uses it, if there is no mongod or it does not start
 */
export async function startEmbedded(options: EmbeddedOptions) {
  const { log } = options;
  const toStartError = (error: unknown): never => {
    if (error instanceof StartError) throw error;
    throw new StartError(`DATA_DIR ${options.dataDir} cannot be used: ${messageOf(error)}`);
  };
  const dataDir = await createDataDir(options.dataDir).catch(toStartError);
  const unlock = await lockDataDir(join(dataDir, 'service.lock'), dataDir).catch(toStartError);
  const closers = [unlock];
  const close = async () => {
    for (const closer of closers.toReversed()) await closer();
  };
  try {
    const credentials = await loadCredentials(dataDir).catch(toStartError);
    await endOrphan(dataDir, log);
    const installation = { dataDir, binary: await findMongod(options), credentials, env: options.env };
    const mongod = await startFirst(installation, log);
    closers.push(superviseMongod(mongod, installation, log));
    const { version } = installation.binary;
    await writeAtomically(lastStartPath(dataDir), JSON.stringify({ port: mongod.port, version })).catch(toStartError);
    // not directConnection: measured, clients reconnect no faster with it after a restart of mongod
    const uri = buildUri(credentials.service, `127.0.0.1:${mongod.port}`, database, `replicaSet=${replicaSet}`);
    await writeAtomically(uriPath(dataDir), `${uri}\n`).catch(toStartError);
    closers.push(() => rm(uriPath(dataDir), { force: true }));
    log.info({ version, port: mongod.port, dataDir }, 'embedded database started');
    let closing: Promise<void> | undefined;
    return {
      uri,
      version,
      stop() {
        closing ??= awaitLater(close());
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
  const uri = (await readFile(uriPath(dataDir), 'utf8').catch(() => '')).trim();
  if (uri === '') return undefined;
  try {
    const dbPath = join(await realpath(dataDir), 'db');
    // after a crash another mongod may listen on the port
    return await withAdmin(uri, async (admin) => {
      const { parsed } = await admin.command({ getCmdLineOpts: 1 });
      return parsed.storage.dbPath === dbPath ? uri : undefined;
    });
  } catch {
    return undefined;
  }
}

/** Ends the mongod of an earlier instance that was killed. @returns false if there is none */
async function endOrphan(dataDir: string, log: EmbeddedOptions['log'], find = findOrphan): Promise<boolean> {
  const pid = await find(dataDir);
  if (pid === undefined) return false;
  log.warn({ pid }, 'ending the embedded database that an earlier instance has left running');
  await stopOrphan(dataDir, pid);
  return true;
}

/** Starts mongod, on the port of the last start if that is free. @throws StartError */
async function startFirst(installation: Installation, log: EmbeddedOptions['log']): Promise<MongodProcess> {
  const { dataDir, binary } = installation;
  const lastStart = await readLastStart(dataDir);
  let wantedPort = lastStart?.port ?? 0;
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await startMongod({ ...installation, port: await findFreePort(wantedPort) });
    } catch (error) {
      const reason = messageOf(error);
      // the port was taken between the check and mongod's bind
      const isPortTaken = reason.includes('Address already in use');
      if (isPortTaken) wantedPort = 0;
      const canRetry =
        isPortTaken || (reason.includes('DBPathInUse') && (await endOrphan(dataDir, log, findStartingOrphan)));
      if (canRetry && attempt < max_start_attempts) continue;
      const isOtherVersion = lastStart !== undefined && lastStart.version !== binary.version;
      const hint = isOtherVersion ? ` (the data was last used with ${lastStart.version})` : '';
      throw new StartError(`mongod ${binary.version} does not start on ${dataDir}${hint}: ${reason}`);
    }
  }
}

/**
 * Restarts mongod whenever it ends, on the same port so that clients find it, with exponential backoff.
 * @returns the function that ends mongod for good
 */
function superviseMongod(first: MongodProcess, installation: Installation, log: EmbeddedOptions['log']) {
  const stopping = new AbortController();
  const { signal } = stopping;
  let current = first;
  const restartLoop = async () => {
    for (let failures = 0; ; ) {
      const startedAt = performance.now();
      const reason = await current.ended;
      if (signal.aborted) return;
      if (performance.now() - startedAt > stable_after_ms) failures = 0;
      log.error({ reason, failures }, 'embedded database is down; starting it again');
      const reportFailure = createRateLimitedLog(log, 'error');
      for (let isDown = true; isDown; failures += 1) {
        await sleep(Math.min(min_backoff_ms * 4 ** failures, max_backoff_ms), undefined, { signal });
        try {
          current = await startMongod({ ...installation, port: first.port, signal });
          isDown = false;
        } catch (error) {
          if (!signal.aborted) reportFailure('embedded database does not start', { reason: messageOf(error) });
        }
        // the stop waits for this loop, and then ends what has just started
        if (signal.aborted) return;
      }
      log.info({ port: first.port }, 'embedded database runs again');
    }
  };
  const restarting = awaitLater(restartLoop());
  const rotation = setInterval(() => {
    rotateLog(join(installation.dataDir, 'mongod.log'), current.child).catch((error: unknown) =>
      log.warn({ reason: messageOf(error) }, 'mongod.log cannot be renamed'),
    );
  }, log_check_period_ms);
  return async () => {
    stopping.abort();
    clearInterval(rotation);
    await stopMongod(current);
    // rejects when the stop interrupts the backoff
    await restarting.catch(() => undefined);
    await stopMongod(current);
    log.info({}, 'embedded database stopped');
  };
}

async function readLastStart(dataDir: string): Promise<{ port: number; version: string } | undefined> {
  try {
    const { port, version } = JSON.parse(await readFile(lastStartPath(dataDir), 'utf8'));
    return { port: Number(port), version: String(version) };
  } catch {
    return undefined;
  }
}

function messageOf(error: unknown): string {
  return String((error as { message?: unknown } | undefined)?.message ?? error);
}
