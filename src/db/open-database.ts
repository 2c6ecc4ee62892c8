import { EventEmitter } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import mongoose, { type mongo } from 'mongoose';
import { AppError, StartError } from '../errors.js';
import { findOutage } from '../lib/log.js';
import { awaitLater } from '../lib/promises.js';
import './closed-connections.js';
import {
  type Collection,
  checkAddress,
  type Database,
  type DatabaseAccess,
  type Log,
  type StoredDocument,
} from './database.js';
import { createDueFinder } from './due-looks.js';
import { storedCommandOf, storedNameOf } from './former-versions.js';
import { createGate, type DataUpgrade } from './gate.js';
import { buildMinId, createIdGenerator } from './ids.js';
import { defineModels, ensureIndexes, findMissingIndexes, type Indexes } from './indexes.js';
import { createLeaseTaker } from './leases.js';
import { type PoolMetrics, watchPool } from './pool-events.js';
import { assertNotRestoring } from './restore-marker.js';
import { assertSupported, createClockWatch, endIdleTransactions, formatAppName } from './server-checks.js';

export interface DatabaseOptions {
  uri: string;
  log: Log;
  /** Runs before ready, then every 10 s; must be safe to repeat. */
  maintenance: (stopped: AbortSignal) => Promise<void>;
  /** Upgrades data of earlier versions; without it they are refused. */
  upgrade?: DataUpgrade;
  /** Indexes beyond those of the declarations. */
  indexes?: Indexes;
  /** No other process has had the database since `mongod` was started; default: others may. */
  isExclusive?: boolean;
  /** The clock of this machine, compared with that of the database; default: `Date.now`. */
  wallClock?: () => number;
  pool?: PoolMetrics;
}

/** Topologies without a primary: operations in flight may be half done, so not ready until maintenance has run. */
const withoutPrimary: ReadonlySet<string> = new Set(['Unknown', 'ReplicaSetNoPrimary']);

const maintenance_period_ms = 10_000;
const version_period_ms = 5000;
const index_list_ms = 600_000;
/** Time that jobs and the maintenance get for what they are doing. */
const close_limit_ms = 2000;
const retry_ms = 500;

/** Majority-acknowledged, journaled writes; and a bound for every wait, which by default has none. */
const connectionOptions = {
  serverSelectionTimeoutMS: 2500,
  // a primary that hangs is noticed after this and a heartbeat; until then all that was sent to it waits
  connectTimeoutMS: 1500,
  socketTimeoutMS: 4500,
  waitQueueTimeoutMS: 2500,
  heartbeatFrequencyMS: 1000,
  maxPoolSize: 50,
  retryWrites: true,
  writeConcern: { w: 'majority', journal: true },
} as const;

/**
 * Connects in the background and keeps trying: requests fail with 5031 until the database can be reached.
 * @throws StartError for a malformed address
 */
export function openDatabase({ uri, log, maintenance, pool, upgrade, ...options }: DatabaseOptions): Database {
  const { indexes = {}, isExclusive = false, wallClock } = options;
  const appName = formatAppName(checkAddress(uri));
  const connection = mongoose.createConnection();
  defineModels(connection, indexes);
  const collections = new Map<string, Collection>();
  const newId = createIdGenerator(() => performance.timeOrigin + performance.now());
  const stopped = new AbortController();
  let isConnected = false;
  let hasPrimary = false;
  let isMaintained = false;
  let wake = new AbortController();
  let hasAttempted = false;
  let verified = { count: 0, at: 0 };
  let endAttempt: (outcome?: Promise<never>) => void = () => undefined;
  const attempted = awaitLater(
    new Promise<void>((resolve) => {
      endAttempt = resolve;
    }),
  );
  const clockWatch = createClockWatch(log, wallClock);

  function connectedDb() {
    if (!isConnected || connection.db === undefined) throw new AppError('database');
    return connection.db;
  }

  const access: DatabaseAccess = {
    collection<T extends mongo.Document>(plural: string) {
      const collection = collections.get(plural) ?? connectedDb().collection<StoredDocument>(storedNameOf(plural));
      collections.set(plural, collection);
      return collection as unknown as Collection<T>;
    },
    command: async (command) => connectedDb().command(storedCommandOf(command), { promoteLongs: false }),
  };
  const createIndexes = () => ensureIndexes(connection);
  const gate = createGate({
    ...{ log, db: connectedDb, access, createIndexes, upgrade, isExclusive },
    stopped: stopped.signal,
  });
  const isKnownReady = () => isConnected && isMaintained && gate.isOpen();
  const database: Database = {
    collection(plural) {
      gate.assertOpen();
      return access.collection(plural);
    },
    async command(command) {
      gate.assertOpen();
      return access.command(command);
    },
    takeLease: (request) => takeLease(request),
    findDue: createDueFinder(),
    wakeUps: new EventEmitter(),
    assertUpgraded: gate.assertUpgraded,
    newId,
    buildMinId,
    attempted,
    firstId: new mongoose.mongo.UUID('00000000-0000-7000-8000-000000000001'),
    async isReady() {
      if (!isKnownReady()) return false;
      return connectedDb()
        .command({ ping: 1, maxTimeMS: 1000 })
        .then(() => isMaintained)
        .catch(() => false);
    },
    readState: () => ({ isReady: isKnownReady(), hasPrimary, clock_offset_ms: clockWatch.offset() }),
    isClockRight: clockWatch.isRight,
    markNotReady() {
      isMaintained = false;
      wake.abort();
    },
    async endIdleTransactions() {
      const count = await endIdleTransactions(connection.getClient());
      if (count > 0) log.warn({ count }, 'transactions of a crashed process ended');
    },
    async close(jobsEnded) {
      stopped.abort();
      wake.abort();
      // what they do survives the end of its connection, as it survives kill -9
      const ended = awaitLater(Promise.all([maintaining, watching, jobsEnded]));
      await Promise.race([ended, sleep(close_limit_ms, undefined, { ref: false })]);
      await connection.close();
    },
  };

  const takeLease = createLeaseTaker(database);

  async function connect(): Promise<void> {
    const opening = awaitLater(connection.openUri(uri, { ...connectionOptions, appName }));
    // Mongoose has created the client, which has not opened a connection yet
    if (pool !== undefined) watchPool(connection.getClient(), pool);
    const { db } = await opening;
    try {
      if (db !== undefined) await assertSupported(db);
      if (db !== undefined) await assertNotRestoring(db);
    } catch (error) {
      await connection.close();
      throw error;
    }
    isConnected = true;
    hasPrimary = true;
    connection.getClient().on('topologyDescriptionChanged', ({ newDescription }) => {
      hasPrimary = [...newDescription.servers.values()].some(({ isWritable }) => isWritable);
      if (withoutPrimary.has(newDescription.type)) database.markNotReady();
    });
    log.info({}, 'database connected');
  }

  /** Lists the indexes, a command for each collection, when their number has changed, or none was listed for long. */
  async function verifyIndexes(): Promise<void> {
    const { indexes: count } = await connectedDb().command({ dbStats: 1 });
    const now = performance.now();
    if (isMaintained && verified.count === count && now - verified.at < index_list_ms) return;
    verified = { count, at: now };
    const missing = await findMissingIndexes(connection);
    if (missing.length === 0) return;
    isMaintained = false;
    if (hasAttempted) log.warn({ missing }, 'indexes are missing; building them again');
    await createIndexes();
  }

  async function runMaintenance(): Promise<void> {
    let hasWarned = false;
    while (!stopped.signal.aborted) {
      wake = new AbortController();
      try {
        if (!isConnected) await connect();
        await clockWatch.measure(connectedDb());
        if (!gate.isOpen()) await gate.open();
        await verifyIndexes();
        await database.endIdleTransactions();
        await maintenance(stopped.signal);
        if (!wake.signal.aborted) {
          if (!isMaintained) log.info({}, 'database ready');
          isMaintained = true;
        }
        hasWarned = false;
      } catch (error) {
        isMaintained = false;
        if (error instanceof StartError) return refuse(error);
        // of an outage the log writes a line a minute
        if (!stopped.signal.aborted && (!hasWarned || findOutage(error)))
          log.warn({ err: error }, 'database not ready; retrying');
        hasWarned = true;
      }
      endAttempt();
      hasAttempted = true;
      const pause = AbortSignal.any([stopped.signal, wake.signal]);
      await sleep(isMaintained ? maintenance_period_ms : retry_ms, undefined, { signal: pause }).catch(() => undefined);
    }
  }

  /** Keeps the gate open; sees within 5 s that another instance has begun to upgrade the data. */
  async function watchVersion(): Promise<void> {
    for (;;) {
      await sleep(version_period_ms, undefined, { signal: stopped.signal }).catch(() => undefined);
      if (stopped.signal.aborted) return;
      if (!gate.isOpen()) continue;
      try {
        if (!(await gate.confirm())) database.markNotReady();
      } catch (error) {
        if (error instanceof StartError) return refuse(error);
      }
    }
  }

  /** Ends all work on a database that this version cannot use; the details of 5031 say why. */
  async function refuse(error: StartError): Promise<void> {
    if (stopped.signal.aborted) return;
    stopped.abort();
    isMaintained = false;
    gate.close(error.message);
    // the first attempt gives the message of the process
    if (hasAttempted) log.error({ reason: error.message }, 'the database cannot be used');
    endAttempt(awaitLater(Promise.reject(error)));
    await connection.close();
  }

  const maintaining = awaitLater(runMaintenance());
  const watching = awaitLater(watchVersion());
  return database;
}
