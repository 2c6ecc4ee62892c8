import { LRUCache } from 'lru-cache';
import type { mongo } from 'mongoose';
import { awaitLater } from '../lib/promises.js';

type CommandDocument = mongo.BSON.Document;

/** Runs a command on the database; 64-bit integers are not converted. */
export type Command = (command: CommandDocument) => Promise<CommandDocument>;

/** An account, or those of its objects that have certain values, `{field: {$eq: value}}`. Fields at the top level only. */
export interface CountScope {
  account: string;
  [field: string]: unknown;
}

export type CountCache = ReturnType<typeof createCountCache>;

interface CountOptions {
  hint?: mongo.Hint;
  maxTimeMS: number;
  /** Objects that are examined because no index has all conditions: if many, a small total is cached too. */
  examined?: number;
}

/** A total counted `at` a cluster time and updated up to `since`. */
interface CachedCount {
  plural: string;
  scope: CountScope;
  total: number;
  at: unknown;
  since: { startAtOperationTime: unknown } | { resumeAfter: unknown };
  /** Duration of the last count: the budget for reading the change stream. */
  cost_ms: number;
  running: Promise<number | undefined>;
  next: Promise<number | undefined> | undefined;
}

const batch = 1000;
const timed_out = 50;
/** Clients choose the conditions of lists, and so how many totals there are. */
const max_cached = 10_000;
/** Bounds the age of an estimate. */
const max_age_ms = 600_000;

/** @returns the total, and its cluster time if the database reports one */
async function countAll(
  command: Command,
  plural: string,
  whose: CountScope,
  options: CommandDocument,
): Promise<[number, unknown]> {
  const pipeline = [{ $match: whose }, { $count: 'total' }];
  const asked = { aggregate: plural, pipeline, cursor: {}, ...options };
  const { cursor } = await command({ ...asked, readConcern: { level: 'snapshot' } }).catch((error) => {
    // a snapshot is refused for a while after an index was built, for example
    if (error instanceof Error && 'code' in error && error.code === timed_out) throw error;
    return command(asked);
  });
  return [Number(cursor.firstBatch[0]?.total ?? 0), cursor.atClusterTime];
}

/** Advances `since` and `total` together up to the first event that cannot be counted. */
async function advance(command: Command, cached: CachedCount): Promise<number | undefined> {
  const { plural, scope, at } = cached;
  const until = performance.now() + cached.cost_ms;
  for (;;) {
    const left_ms = Math.ceil(until - performance.now());
    if (left_ms < 1) return undefined;
    const { cursor } = await command({
      aggregate: plural,
      pipeline: [
        { $changeStream: cached.since },
        { $match: { clusterTime: { $gt: at }, ...relevantEvents(scope) } },
        { $project: { operationType: 1 } },
      ],
      cursor: { batchSize: batch },
      maxTimeMS: left_ms,
    });
    command({ killCursors: plural, cursors: [cursor.id] }).catch(() => undefined);
    const events: readonly CommandDocument[] = cursor.firstBatch;
    if (events.some(({ operationType }) => operationType !== 'insert')) return undefined;
    cached.total += events.length;
    cached.since = { resumeAfter: cursor.postBatchResumeToken };
    if (events.length < batch) return cached.total;
  }
}

/**
 * Caches totals (reference/lists.md#totals). Each call reads the change stream since the last one and adds created
 * objects. After any other event that can change the total, or if the stream cannot be read in time, it counts again.
 * @param minCached smaller totals are counted each time, which takes no longer
 * @param min_budget_ms time allowed for reading the change stream, even if counting takes less
 */
export function createCountCache(command: Command, minCached: number, min_budget_ms = 50) {
  const cache = new LRUCache<string, CachedCount>({ max: max_cached, ttl: max_age_ms });
  let hasSetName: boolean | undefined;
  const keyOf = (plural: string, whose: CountScope) => JSON.stringify([plural, whose]);

  /** Reports whether this is a direct connection to a replica set: through mongos a reply may be partial, or count too much. */
  async function isReplicaSet(): Promise<boolean> {
    hasSetName ??= (await command({ hello: 1 })).setName !== undefined;
    return hasSetName;
  }

  /** Brings a total up to date; undefined: count again. Concurrent calls share a read that begins after them. */
  function current(cached: CachedCount): Promise<number | undefined> {
    cached.next ??= awaitLater(
      cached.running.then(() => {
        cached.next = undefined;
        cached.running = advance(command, cached).catch(() => undefined);
        return cached.running;
      }),
    );
    return cached.next;
  }

  return {
    /** Returns a cached total as it is, to choose an index by; counts if there is none. */
    async estimate(plural: string, whose: CountScope, options: CountOptions): Promise<number> {
      return cache.get(keyOf(plural, whose))?.total ?? this.count(plural, whose, options);
    },
    /** Counts exactly everything that was acknowledged before the call. `options` are those of the database count. */
    async count(plural: string, whose: CountScope, { examined = 0, ...options }: CountOptions): Promise<number> {
      const key = keyOf(plural, whose);
      const cached = cache.get(key);
      const total = cached && (await current(cached));
      if (total !== undefined) return total;
      if (cache.get(key) === cached) cache.delete(key);
      if (!(await isReplicaSet())) return (await countAll(command, plural, whose, options))[0];
      if (cached === undefined && examined < minCached) {
        // no further, in three quarters of the time of a snapshot
        const { n } = await command({ count: plural, query: whose, limit: minCached, ...options });
        if (n < minCached) return Number(n);
      }
      const begun = performance.now();
      const [counted, at] = await countAll(command, plural, whose, options);
      if (at === undefined) return counted;
      cache.set(key, {
        plural,
        scope: whose,
        total: counted,
        at,
        since: { startAtOperationTime: at },
        cost_ms: Math.max(min_budget_ms, performance.now() - begun),
        running: Promise.resolve(undefined),
        next: undefined,
      });
      return counted;
    },
  };
}

/** Matches events that can change the count. Deletes carry no account, so any delete forces a recount. */
function relevantEvents(whose: CountScope): CommandDocument {
  const fields = Object.keys(whose);
  return {
    $or: [
      {
        operationType: 'insert',
        ...Object.fromEntries(fields.map((field) => [`fullDocument.${field}`, whose[field]])),
      },
      { operationType: { $nin: ['insert', 'update'] } },
      {
        operationType: 'update',
        $expr: {
          $anyElementTrue: { $map: { input: { $ifNull: [changedPaths, []] }, in: { $in: [fieldOfPath, fields] } } },
        },
      },
    ],
  };
}

/** The paths that an update has changed, also of single elements of an array, such as `ancestors.1`. */
const changedPaths = {
  $concatArrays: [
    { $map: { input: { $objectToArray: '$updateDescription.updatedFields' }, in: '$$this.k' } },
    '$updateDescription.removedFields',
    { $ifNull: ['$updateDescription.truncatedArrays.field', []] },
  ],
};
const fieldOfPath = { $first: { $split: ['$$this', '.'] } };
