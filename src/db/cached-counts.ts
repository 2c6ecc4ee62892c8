import type { mongo } from 'mongoose';

type CommandDocument = mongo.BSON.Document;

/** Runs a command on the database; 64-bit integers are not converted. */
export type Command = (command: CommandDocument) => Promise<CommandDocument>;

/** An account, or the children of one of its objects. */
export interface CountScope {
  account: string;
  [field: string]: unknown;
}

/** Counts of the objects of a collection in a scope. */
export interface CountCache {
  /** Counts exactly everything that was acknowledged before the call. `options` are those of the database count. */
  count(plural: string, whose: CountScope, options: { hint?: mongo.Hint; maxTimeMS: number }): Promise<number>;
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

/**
 * Caches totals (reference/lists.md#totals). Each call reads the change stream since the last one and adds created
 * objects. After any other event that can change the total, or if the stream cannot be read in time, it counts again.
 * @param minCached smaller totals are counted each time, which takes no longer
 * @param min_budget_ms time allowed for reading the change stream, even if counting takes less
 */
export function createCountCache(command: Command, minCached: number, min_budget_ms = 50): CountCache {
  const cache = new Map<string, CachedCount>();

  /** @returns the total, and its cluster time if the database reports one */
  async function count(plural: string, whose: CountScope, options: CommandDocument): Promise<[number, unknown]> {
    const pipeline = [{ $match: whose }, { $count: 'total' }];
    const asked = { aggregate: plural, pipeline, cursor: {}, ...options };
    const { cursor } = await command({ ...asked, readConcern: { level: 'snapshot' } }).catch((error) => {
      // a snapshot is refused for a while after an index was built, for example
      if (error instanceof Error && 'code' in error && error.code === timed_out) throw error;
      return command(asked);
    });
    return [Number(cursor.firstBatch[0]?.total ?? 0), cursor.atClusterTime];
  }

  /** Reports whether this is a direct connection to a replica set: through mongos one reply may be partial. */
  async function hasChangeStreams(): Promise<boolean> {
    const { setName } = await command({ hello: 1 });
    return setName !== undefined;
  }

  /** Brings a total up to date; undefined: count again. Concurrent calls share a read that begins after them. */
  function current(cached: CachedCount): Promise<number | undefined> {
    cached.next ??= cached.running.then(() => {
      cached.next = undefined;
      cached.running = read(cached).catch(() => undefined);
      return cached.running;
    });
    return cached.next;
  }

  /** Advances `since` and `total` together up to the first event that cannot be counted. */
  async function read(cached: CachedCount): Promise<number | undefined> {
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

  return {
    async count(plural, whose, options) {
      const key = JSON.stringify([plural, whose]);
      const cached = cache.get(key);
      const total = cached && (await current(cached));
      if (total !== undefined) return total;
      if (cache.get(key) === cached) cache.delete(key);
      const begun = performance.now();
      const [counted, at] = await count(plural, whose, options);
      if (counted < minCached || at === undefined || !(await hasChangeStreams())) return counted;
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
      ...fields.map((field) => ({ [`updateDescription.updatedFields.${field}`]: { $exists: true } })),
      { 'updateDescription.removedFields': { $in: fields } },
    ],
  };
}
