import { setTimeout as sleep } from 'node:timers/promises';
import mongoose, { type mongo } from 'mongoose';
import { AppError, StartError } from '../errors.js';
import { findOutage } from '../lib/log.js';
import { awaitLater } from '../lib/promises.js';
import { endIdleTransactions, formatAppName } from './idle-transactions.js';
import { buildMinId, createIdGenerator, type Id } from './ids.js';
import { defineModels, ensureIndexes } from './indexes.js';
import { type PoolMetrics, watchPool } from './pool-events.js';
import { assertNotRestoring } from './restore-marker.js';

export interface Log {
  debug?(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** Time limit of one read, below that of a request (reference/requests.md#time-limits). */
export const read_limit_ms = 4000;

/** A document of any collection. */
export interface StoredDocument {
  _id: Id;
  [path: string]: unknown;
}

/** A document of a resource. */
export interface StoredObject extends StoredDocument {
  account: string;
  id_developer: string;
  enabled?: boolean;
  /** Internal ids of the objects above it, from the top. */
  ancestors?: readonly Id[];
}

export type Collection<T extends mongo.Document = StoredDocument> = mongo.Collection<T>;

/** Collections and commands of a database. */
export interface DatabaseAccess {
  /** @throws AppError database (5031) while there is no connection */
  collection<T extends mongo.Document = StoredDocument>(plural: string): Collection<T>;
  /** Runs a command; 64-bit integers are not converted. @throws AppError database (5031) while there is no connection */
  command(command: mongo.BSON.Document): Promise<mongo.BSON.Document>;
}

/** The database connection. */
export interface Database extends DatabaseAccess {
  newId(): Id;
  /** The smallest id generated at `moment` (epoch milliseconds) or later. */
  buildMinId(moment: number): Id;
  /** The fixed id of the first API key of an empty database. */
  firstId: Id;
  /** Resolves after the first attempt to connect and run maintenance, successful or not. */
  attempted: Promise<void>;
  /** Reports whether the database answers, all indexes exist and no removal is unfinished. */
  isReady(): Promise<boolean>;
  /** Readiness as known without a query. */
  readState(): { isReady: boolean; hasPrimary: boolean };
  /** Reports an interrupted operation: not ready until the next maintenance has succeeded. */
  markNotReady(): void;
  /** Ends transactions of processes that have crashed; runs before each maintenance too. */
  endIdleTransactions(): Promise<void>;
  close(): Promise<void>;
}

export interface DatabaseOptions {
  uri: string;
  log: Log;
  /** Runs before ready, then every 10 s; must be safe to repeat. */
  maintenance: (stopped: AbortSignal) => Promise<void>;
  pool?: PoolMetrics;
}

/** Topologies without a primary: operations in flight may be half done, so not ready until maintenance has run. */
const withoutPrimary: ReadonlySet<string> = new Set(['Unknown', 'ReplicaSetNoPrimary']);

const maintenance_period_ms = 10_000;
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

/** Checks an address. @returns its options @throws StartError without the message of the driver, which may contain the address with a password */
export function checkAddress(uri: string): mongo.MongoOptions {
  try {
    return new mongoose.mongo.MongoClient(uri).options;
  } catch (cause) {
    throw new StartError('MONGODB_URI must be an address that MongoDB drivers understand', { cause });
  }
}

/**
 * Connects in the background and keeps trying: requests fail with 5031 until the database can be reached.
 * @throws StartError for a malformed address
 */
export function openDatabase({ uri, log, maintenance, pool }: DatabaseOptions): Database {
  const appName = formatAppName(checkAddress(uri));
  const connection = mongoose.createConnection();
  defineModels(connection);
  const collections = new Map<string, Collection>();
  const newId = createIdGenerator(() => performance.timeOrigin + performance.now());
  const stopped = new AbortController();
  let isConnected = false;
  let hasPrimary = false;
  let isMaintained = false;
  let wake = new AbortController();
  let reportAttempt: () => void = () => undefined;

  function connectedDb() {
    if (!isConnected || connection.db === undefined) throw new AppError('database');
    return connection.db;
  }

  const database: Database = {
    collection<T extends mongo.Document>(plural: string) {
      const collection = collections.get(plural) ?? connectedDb().collection<StoredDocument>(plural);
      collections.set(plural, collection);
      return collection as unknown as Collection<T>;
    },
    command: async (command) => connectedDb().command(command, { promoteLongs: false }),
    newId,
    buildMinId,
    attempted: new Promise((resolve) => {
      reportAttempt = resolve;
    }),
    firstId: new mongoose.mongo.UUID('00000000-0000-7000-8000-000000000001'),
    async isReady() {
      if (!isConnected || !isMaintained) return false;
      return connectedDb()
        .command({ ping: 1, maxTimeMS: 1000 })
        .then(() => isMaintained)
        .catch(() => false);
    },
    readState: () => ({ isReady: isConnected && isMaintained, hasPrimary }),
    markNotReady() {
      isMaintained = false;
      wake.abort();
    },
    async endIdleTransactions() {
      const count = await endIdleTransactions(connection.getClient());
      if (count > 0) log.warn({ count }, 'transactions of a crashed process ended');
    },
    async close() {
      stopped.abort();
      wake.abort();
      await maintaining;
      await connection.close();
    },
  };

  async function connect(): Promise<void> {
    const opening = awaitLater(connection.openUri(uri, { ...connectionOptions, appName }));
    // Mongoose has created the client, which has not opened a connection yet
    if (pool !== undefined) watchPool(connection.getClient(), pool);
    const { db } = await opening;
    try {
      await assertReplicated();
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

  /** Retryable writes and the log of changes exist in replica sets and sharded clusters only. */
  async function assertReplicated(): Promise<void> {
    const { setName, msg } = (await connection.db?.command({ hello: 1 })) ?? {};
    if (setName === undefined && msg !== 'isdbgrid')
      throw new Error('MONGODB_URI is a standalone server; start mongod with --replSet and run rs.initiate()');
  }

  async function runMaintenance(): Promise<void> {
    let hasIndexes = false;
    let hasWarned = false;
    while (!stopped.signal.aborted) {
      wake = new AbortController();
      try {
        if (!isConnected) await connect();
        if (!hasIndexes) await ensureIndexes(connection);
        hasIndexes = true;
        await database.endIdleTransactions();
        await maintenance(stopped.signal);
        if (!wake.signal.aborted) {
          if (!isMaintained) log.info({}, 'database ready');
          isMaintained = true;
        }
        hasWarned = false;
      } catch (error) {
        isMaintained = false;
        // of an outage the log writes a line a minute
        if (!hasWarned || findOutage(error)) log.warn({ err: error }, 'database not ready; retrying');
        hasWarned = true;
      }
      reportAttempt();
      const pause = AbortSignal.any([stopped.signal, wake.signal]);
      await sleep(isMaintained ? maintenance_period_ms : retry_ms, undefined, { signal: pause }).catch(() => undefined);
    }
  }
  const maintaining = awaitLater(runMaintenance());
  return database;
}
