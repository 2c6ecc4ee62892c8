import { setTimeout as sleep } from 'node:timers/promises';
import mongoose, { type mongo } from 'mongoose';
import { AppError, StartError } from '../errors.js';
import { type CountCache, createCountCache } from './cached-counts.js';
import { createIdGenerator, type Id, minIdAt } from './ids.js';
import { defineModels, ensureIndexes } from './indexes.js';

export interface Log {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** The longest a single read may keep the database busy, well below the 5 s in which a request is answered. */
export const read_limit_ms = 4000;

/** What every collection holds. */
export interface StoredDocument {
  _id: Id;
  [path: string]: unknown;
}

export type Collection = mongo.Collection<StoredDocument>;

/** The database as the store's functions see it. */
export interface Database {
  /** @throws AppError database (5031) while there is no connection */
  collection(plural: string): Collection;
  newId(): Id;
  /** The least id of a moment (epoch milliseconds). */
  idAt(moment: number): Id;
  /** An id that everybody knows, for what may exist once. */
  firstId: Id;
  totals: CountCache;
  /** Identifiers that a create of this process is about to take. */
  readonly pendingIdentifiers: Set<string>;
  /** What there is once of a name in this process, made when it is first asked for. */
  once<Kept>(name: string, make: () => Kept): Kept;
  /** Grows with every change here that may switch something in the hierarchy on or off. */
  epoch(): number;
  hierarchyChanged(): void;
  /** Whether the database answers, its indexes stand and no removal is left over. */
  ready(): Promise<boolean>;
  /** Something was interrupted: not ready until the next round of housekeeping has gone well. */
  markNotReady(): void;
  close(): Promise<void>;
}

interface Options {
  uri: string;
  log: Log;
  /** Runs before ready, then every 10 s; must be safe to repeat. */
  maintenance: (database: Database) => Promise<void>;
  /** Totals of lists from which on they are kept instead of counted. */
  countCacheThreshold?: number;
}

/** What was under way when the database went may be half done: ready again after the next housekeeping. */
const withoutPrimary: ReadonlySet<string> = new Set(['Unknown', 'ReplicaSetNoPrimary']);

const period_ms = 10_000;
const retry_ms = 500;

/** The driver's own words are left out: they may repeat the address, and with it a password. */
function checkAddress(uri: string): void {
  try {
    new mongoose.mongo.MongoClient(uri);
  } catch (cause) {
    throw new StartError('MONGODB_URI must be an address that MongoDB drivers understand', { cause });
  }
}

/**
 * Connects in the background and stays at it: an unreachable database makes requests fail with 5031 until it comes.
 * Writes are acknowledged by a majority and journaled; every wait is bounded, as none of them is by default.
 */
export function openDatabase({ uri, log, maintenance, countCacheThreshold = 25_000 }: Options): Database {
  checkAddress(uri);
  const connection = mongoose.createConnection();
  defineModels(connection);
  const collections = new Map<string, Collection>();
  const kept = new Map<string, unknown>();
  const newId = createIdGenerator(() => performance.timeOrigin + performance.now());
  const stopped = new AbortController();
  let connected = false;
  let isReady = false;
  let epoch = 0;
  let wake = new AbortController();

  const database: Database = {
    collection(plural) {
      const known = collections.get(plural);
      if (known !== undefined) return known;
      if (!connected || connection.db === undefined) throw new AppError('database');
      const collection: Collection = connection.db.collection(plural);
      collections.set(plural, collection);
      return collection;
    },
    newId,
    idAt: minIdAt,
    firstId: new mongoose.mongo.UUID('00000000-0000-7000-8000-000000000001'),
    totals: createCountCache(async (command) => {
      if (!connected || connection.db === undefined) throw new AppError('database');
      return connection.db.command(command, { promoteLongs: false });
    }, countCacheThreshold),
    pendingIdentifiers: new Set(),
    once<Kept>(name: string, make: () => Kept) {
      const known = kept.get(name) ?? make();
      kept.set(name, known);
      return known as Kept;
    },
    epoch: () => epoch,
    hierarchyChanged() {
      epoch++;
    },
    async ready() {
      if (!connected || !isReady || connection.db === undefined) return false;
      return connection.db
        .command({ ping: 1, maxTimeMS: 1000 })
        .then(() => isReady)
        .catch(() => false);
    },
    markNotReady() {
      isReady = false;
      wake.abort();
    },
    async close() {
      stopped.abort();
      wake.abort();
      await maintaining;
      await connection.close();
    },
  };

  async function connect(): Promise<void> {
    await connection.openUri(uri, {
      serverSelectionTimeoutMS: 2500,
      connectTimeoutMS: 2500,
      socketTimeoutMS: 4500,
      waitQueueTimeoutMS: 2500,
      heartbeatFrequencyMS: 1000,
      maxPoolSize: 50,
      retryWrites: true,
      writeConcern: { w: 'majority', journal: true },
    });
    connected = true;
    connection.getClient().on('topologyDescriptionChanged', ({ newDescription }) => {
      if (withoutPrimary.has(newDescription.type)) database.markNotReady();
    });
    log.info({}, 'database connected');
  }

  async function maintenanceLoop(): Promise<void> {
    let indexed = false;
    let hasWarned = false;
    while (!stopped.signal.aborted) {
      wake = new AbortController();
      try {
        if (!connected) await connect();
        if (!indexed) await ensureIndexes(connection);
        indexed = true;
        await maintenance(database);
        if (!isReady) log.info({}, 'database ready');
        if (!wake.signal.aborted) isReady = true;
        hasWarned = false;
      } catch (error) {
        isReady = false;
        if (!hasWarned) log.warn({ err: error }, 'database not ready; trying again');
        hasWarned = true;
      }
      const pause = AbortSignal.any([stopped.signal, wake.signal]);
      await sleep(isReady ? period_ms : retry_ms, undefined, { signal: pause }).catch(() => undefined);
    }
  }
  const maintaining = maintenanceLoop();
  return database;
}
