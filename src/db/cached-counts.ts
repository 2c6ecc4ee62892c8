import type { mongo } from 'mongoose';

type Document = mongo.BSON.Document;

/** Runs a command on the database; 64-bit integers stay what they are. */
export type Command = (command: Document) => Promise<Document>;

/** Whose objects: of an account, or of one of its objects. */
export interface CountScope {
  account: string;
  [field: string]: unknown;
}

/** How many objects an account, or an object of it, has in a collection. */
export interface CountCache {
  /** The exact number, everything counted that was acknowledged before the call. `options` are of the count. */
  count(plural: string, whose: CountScope, options: { hint?: mongo.Hint; maxTimeMS: number }): Promise<number>;
}

/** A total that was right `at` a cluster time and has been kept so up to `since`. */
interface CachedCount {
  plural: string;
  scope: CountScope;
  total: number;
  at: unknown;
  since: { startAtOperationTime: unknown } | { resumeAfter: unknown };
  /** What counting has taken: asking must not take longer. */
  cost_ms: number;
  running: Promise<number | undefined>;
  next: Promise<number | undefined> | undefined;
}

const batch = 1000;
const timed_out = 50;

/**
 * Totals that are not counted again while the database's own log of changes shows that they are right: each call reads
 * what was logged since the last one. Created objects are added; after everything else that can change a total,
 * whoever did it, and where the log cannot be read or not in time, the objects are counted.
 * @param minCached smaller totals are counted each time, which is as quick
 * @param min_budget_ms how long reading the log may take even where counting takes less
 */
export function createCountCache(command: Command, minCached: number, min_budget_ms = 50): CountCache {
  const cache = new Map<string, CachedCount>();

  /** @returns the total, with the cluster time it belongs to where the database gives one */
  async function count(plural: string, whose: CountScope, options: Document): Promise<[number, unknown]> {
    const pipeline = [{ $match: whose }, { $count: 'total' }];
    const asked = { aggregate: plural, pipeline, cursor: {}, ...options };
    const { cursor } = await command({ ...asked, readConcern: { level: 'snapshot' } }).catch((error) => {
      // a snapshot is refused for a while after an index was built, for example
      if (error instanceof Error && 'code' in error && error.code === timed_out) throw error;
      return command(asked);
    });
    return [Number(cursor.firstBatch[0]?.total ?? 0), cursor.atClusterTime];
  }

  /** Whether one answer reads all of the log: a router's does not say so. */
  async function hasChangeStreams(): Promise<boolean> {
    const { setName } = await command({ hello: 1 });
    return setName !== undefined;
  }

  /** The total now, or undefined where it has to be counted. Who calls meanwhile waits for a reading that begins later. */
  function current(known: CachedCount): Promise<number | undefined> {
    known.next ??= known.running.then(() => {
      known.next = undefined;
      known.running = read(known).catch(() => undefined);
      return known.running;
    });
    return known.next;
  }

  /** Moves `since` and `total` on together; at what it cannot count it stops. */
  async function read(known: CachedCount): Promise<number | undefined> {
    const { plural, scope, at } = known;
    const until = performance.now() + known.cost_ms;
    for (;;) {
      const left_ms = Math.ceil(until - performance.now());
      if (left_ms < 1) return undefined;
      const { cursor } = await command({
        aggregate: plural,
        pipeline: [
          { $changeStream: known.since },
          { $match: { clusterTime: { $gt: at }, ...relevantEvents(scope) } },
          { $project: { operationType: 1 } },
        ],
        cursor: { batchSize: batch },
        maxTimeMS: left_ms,
      });
      command({ killCursors: plural, cursors: [cursor.id] }).catch(() => undefined);
      const events: readonly Document[] = cursor.firstBatch;
      if (events.some(({ operationType }) => operationType !== 'insert')) return undefined;
      known.total += events.length;
      known.since = { resumeAfter: cursor.postBatchResumeToken };
      if (events.length < batch) return known.total;
    }
  }

  return {
    async count(plural, whose, options) {
      const key = JSON.stringify([plural, whose]);
      const known = cache.get(key);
      const total = known && (await current(known));
      if (total !== undefined) return total;
      if (cache.get(key) === known) cache.delete(key);
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

/** What can change their number: a removal does not say whose object it was. */
function relevantEvents(whose: CountScope): Document {
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
