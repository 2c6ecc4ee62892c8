import { type BatchLoader, createLoader } from '../db/batching/loader.js';
import { type ApplyUpdate, openUpdateBatcher } from '../db/batching/update.js';
import { type CountCache, createCountCache } from '../db/cached-counts.js';
import { type Database, type DatabaseOptions, openDatabase, read_limit_ms } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { createTurns, type InTurn } from '../in-turn.js';

/** The database and the state that all requests of a process share. */
export interface Store {
  db: Database;
  /** Batched reads and inserts of one collection. */
  loader(plural: string): BatchLoader;
  /** Batched updates of one collection. */
  updates(plural: string): ApplyUpdate;
  counts: CountCache;
  hierarchy: HierarchyVersions;
  /** Journal ids of removals and changes in this process; maintenance skips them, else requests for removals would answer 404. */
  removalsInProgress: Set<string>;
  /** Journal ids of removals and changes that this process began and gave up; its maintenance completes them at once. */
  abandonedRemovals: Set<string>;
  /** Exports that this process reads, by account. */
  exportsInProgress: Map<string, number>;
  /** Requests whose series the database computes. */
  seriesInProgress: Set<AbortSignal>;
  /** Transactions that change many objects, in turn for each collection and account: together they would hinder each other. */
  bulkInTurn: InTurn;
  settleClaim: SettleClaim;
}

/** Makes an object free that a change of many objects has claimed (`src/repositories/bulk/journaled-change.ts`). */
export type SettleClaim = (store: Store, plural: string, claimed: { _id: Id; claim: Id }) => Promise<void>;

/** Counts this process's changes to resources above devices, by account; invalidates the cache of `enabled`. */
export interface HierarchyVersions {
  of(account: string): number;
  bump(account: string): void;
}

/** The operation that a repository function works for. */
export interface OperationContext {
  store: Store;
  account: string;
  /** Stored as owner or updater. */
  user: string;
  /** Epoch seconds. */
  now: number;
  /** `X-Request-Id`, stored with each change as `last_request_id`. */
  request_id: string;
}

interface Options extends Omit<DatabaseOptions, 'maintenance'> {
  /** Runs before ready, then every 10 s; must be safe to repeat. */
  maintenance: (store: Store) => Promise<void>;
  /** Totals of lists of at least this length are cached. */
  countCacheThreshold?: number | undefined;
  settleClaim: SettleClaim;
}

/** Opens the database in the background and the shared state of this process. @throws StartError for a bad address */
export function openStore({ countCacheThreshold, settleClaim, maintenance, ...options }: Options): Store {
  const db = openDatabase({ ...options, maintenance: () => maintenance(store) });
  const store = createStore(db, settleClaim, countCacheThreshold);
  return store;
}

/** Creates the shared state of a process. @param countCacheThreshold totals of shorter lists are not cached */
export function createStore(db: Database, settleClaim: SettleClaim, countCacheThreshold = 25_000): Store {
  return {
    db,
    loader: oncePerCollection((plural) => createLoader(db.collection(plural), read_limit_ms)),
    updates: oncePerCollection((plural) => openUpdateBatcher(db.collection(plural), read_limit_ms)),
    counts: createCountCache(db.command, countCacheThreshold),
    hierarchy: createHierarchyVersions(),
    removalsInProgress: new Set(),
    abandonedRemovals: new Set(),
    exportsInProgress: new Map(),
    seriesInProgress: new Set(),
    bulkInTurn: createTurns(),
    settleClaim,
  };
}

function oncePerCollection<Value>(create: (plural: string) => Value): (plural: string) => Value {
  const values = new Map<string, Value>();
  return (plural) => {
    const value = values.get(plural) ?? create(plural);
    values.set(plural, value);
    return value;
  };
}

function createHierarchyVersions(): HierarchyVersions {
  const versions = new Map<string, number>();
  return {
    of: (account) => versions.get(account) ?? 0,
    bump: (account) => void versions.set(account, (versions.get(account) ?? 0) + 1),
  };
}
