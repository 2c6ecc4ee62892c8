import { LRUCache } from 'lru-cache';
import { type BatchLoader, createLoader } from '../db/batching/loader.js';
import { type ApplyUpdate, openUpdateBatcher } from '../db/batching/update.js';
import { type CountCache, createCountCache } from '../db/cached-counts.js';
import { type Database, read_limit_ms } from '../db/database.js';
import { type DatabaseOptions, openDatabase } from '../db/open-database.js';
import type { KeyLimit } from '../db/reach.js';
import { createKeyedMutex, type KeyedMutex } from '../lib/keyed-mutex.js';
import { readInSlots } from '../lib/read-in-slots.js';
import { type Caller, createShares, type Shares } from '../lib/shares.js';
import { createDeferredReceipts, type DeferredReceipts } from './receipts/deferred-receipts.js';
import { createShownStorer, type StoreShown } from './receipts/lost-receipts.js';
import type { JournaledWork } from './tree/journal.js';
import { createLastStreamCache, type LastStreamCache } from './values/last-stream-cache.js';
import { openSharedNames, type TakeNumber } from './write/shared-names.js';

/** The database and the state that all requests of a process share. */
export interface Store {
  db: Database;
  /** Batched reads and inserts of one collection. */
  loader(plural: string): BatchLoader;
  /** Batched updates of one collection. */
  updates(plural: string): ApplyUpdate;
  /** Numbers for the objects of one type that share a name. */
  takeNumber(plural: string): TakeNumber;
  counts: CountCache;
  lastStreams: LastStreamCache;
  /** Documents that fit in a reply, by collection and account. */
  fittingReplies: LRUCache<string, number>;
  deferred: DeferredReceipts;
  storeShown: StoreShown;
  /** Devices that conditions on documents of other collections select: their ids are a condition of one query. */
  max_selected: number;
  hierarchy: HierarchyVersions;
  journaled: JournaledWork;
  /** Exports, which last as long as their clients read (reference/exports.md#limits). */
  exports: Shares;
  /** Costly work of the database (docs/decisions/0023-costly-operations-take-turns.md). */
  costly: Shares;
  /** Bytes of models that lists hold beside their page (reference/limits.md#shares). */
  inherited: Shares;
  /** Changes that would hinder each other take turns: of one object, and of many of a collection and account. */
  changeMutex: KeyedMutex;
}

/** Counts this process's changes to resources above devices, by account; invalidates the cache of `enabled`. */
export interface HierarchyVersions {
  of(account: string): number;
  bump(account: string): void;
}

/** The operation that a repository function works for. */
export interface OperationContext {
  store: Store;
  account: string;
  /** The object that the operation is limited to; undefined: the whole account. */
  limit: KeyLimit | undefined;
  /** Stored as owner or updater. */
  user: string;
  /** Epoch seconds. */
  now: number;
  /** The same with its fraction: streams up to it have come; absent: `now`. */
  moment?: number;
  /** `X-Request-Id`, stored with each change as `last_request_id`. */
  request_id: string;
  /** The client that waits for the answer; none if the service works for itself. */
  caller?: Caller | undefined;
}

export interface StoreOptions extends Omit<DatabaseOptions, 'maintenance'> {
  /** Runs before ready, then every 10 s; must be safe to repeat. */
  maintenance: (store: Store, stopped: AbortSignal) => Promise<void>;
  /** Totals of lists of at least this length are cached. */
  countCacheThreshold?: number | undefined;
  max_selected?: number | undefined;
}

/** Less than half of the connections: cheap requests find a free one. Requests, exports and feeds in progress bound who waits. */
const max_costly = 16;
const max_inherited_bytes = 64 * 1024 * 1024;

/** Opens the database in the background and the shared state of this process. @throws StartError for a bad address */
export function openStore({ countCacheThreshold, max_selected, maintenance, ...options }: StoreOptions): Store {
  const db = openDatabase({ ...options, maintenance: (stopped) => maintenance(store, stopped) });
  const store = createStore(db, countCacheThreshold, max_selected);
  return store;
}

/** Creates the shared state of a process. @param countCacheThreshold totals of shorter lists are not cached */
export function createStore(db: Database, countCacheThreshold = 25_000, max_selected = 200_000): Store {
  return {
    db,
    loader: oncePerCollection((plural) => createLoader(db, plural, read_limit_ms)),
    updates: oncePerCollection((plural) => openUpdateBatcher(db, plural, read_limit_ms)),
    takeNumber: oncePerCollection((plural) => openSharedNames(db, plural)),
    counts: createCountCache(db.command, countCacheThreshold),
    lastStreams: createLastStreamCache(),
    fittingReplies: new LRUCache({ max: 10_000 }),
    deferred: createDeferredReceipts(db),
    storeShown: createShownStorer(db),
    max_selected,
    hierarchy: createHierarchyVersions(),
    journaled: { inProgress: new Map(), abandoned: new Set() },
    exports: createShares({ capacity: 200, max_per_account: 50 }),
    costly: createShares({ capacity: max_costly, max_waiting: Number.POSITIVE_INFINITY }),
    inherited: createShares({ capacity: max_inherited_bytes, max_waiting: Number.POSITIVE_INFINITY }),
    changeMutex: createKeyedMutex(),
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

/** Reads with a share of the database for each batch, until the client has left; none is held while the client reads. */
export function readInTurns<Batch>(
  { store, account, caller }: OperationContext,
  batches: AsyncIterable<Batch>,
): AsyncIterableIterator<Batch> {
  return readInSlots(store.costly, account, batches, { caller, signal: caller?.left });
}

/**
 * Returns how many parts of a costly operation the database works on at once: one less than `max` for each other operation
 * (docs/decisions/0023-costly-operations-take-turns.md).
 */
export function countParts({ costly }: Pick<Store, 'costly'>, max: number): number {
  return Math.max(max + 1 - costly.held, 1);
}
