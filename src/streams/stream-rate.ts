import type { mongo } from 'mongoose';
import type { Database } from '../db/database.js';
import { findOne } from '../db/raw-find.js';
import type { Endpoint } from '../http/context.js';
import { describeClosed } from '../schema/openapi/bodies.js';

const minute_s = 60;
const shown_minutes = 60;
/** The ring of minutes of an account: more than are shown, so that the current one overwrites none of them. */
const stored_minutes = 64;
/** After this time without a stream the minutes of an account are deleted, also those written just after its removal. */
const minutes_ttl_s = 2 * 3600;

/** The index by which minutes expire. */
export const streamRateIndexes = [{ key: { written_at: 1 }, expireAfterSeconds: minutes_ttl_s }] as const;
/** By then all processes have added a minute that is over. */
const settling_s = 3;
const tick_ms = 1000;

/** The minutes of an account. */
interface StoredMinutes {
  _id: string;
  [slot: `m${number}`]: { at: number; count: number } | undefined;
}

/** Counts the streams of accounts by minute of receipt. */
export type StreamRate = ReturnType<typeof createStreamRate>;

const startOf = (now_s: number) => Math.floor(now_s / minute_s) * minute_s;
const slotOf = (at: number) => `m${(at / minute_s) % stored_minutes}` as const;

/**
 * Counts in memory, and adds to the database once a minute. What cannot be written is dropped: it is a figure for people.
 * @param clock epoch milliseconds
 */
export function createStreamRate(db: Database, clock: () => number) {
  const collection = () => db.collection<StoredMinutes & mongo.Document>('stream_rates');
  const pending = new Map<string, { account: string; at: number; count: number }>();
  let timer: NodeJS.Timeout | undefined;

  async function write(): Promise<void> {
    clearInterval(timer);
    timer = undefined;
    const updates = [...pending.values()].map(({ account, at, count }) => {
      const slot = slotOf(at);
      const stored = { $cond: [{ $eq: [`$${slot}.at`, at] }, `$${slot}.count`, 0] };
      const update = [{ $set: { account, written_at: new Date(), [slot]: { at, count: { $add: [stored, count] } } } }];
      return { updateOne: { filter: { _id: account }, update, upsert: true } };
    });
    pending.clear();
    if (updates.length > 0) await collection().bulkWrite(updates, { ordered: false });
  }

  function writeOnceOver(): void {
    const [oldest] = pending.values();
    if (oldest !== undefined && oldest.at < startOf(clock() / 1000)) write().catch(() => undefined);
  }

  return {
    add(account: string, count: number, now_s: number): void {
      const at = startOf(now_s);
      const key = `${at} ${account}`;
      pending.set(key, { account, at, count: count + (pending.get(key)?.count ?? 0) });
      timer ??= setInterval(writeOnceOver, tick_ms).unref();
    },
    /** Reads the numbers of the last hour, minute by minute, without the minute of `now_s`. */
    async read(account: string, now_s: number): Promise<{ at_from: number; counts: number[] }> {
      const minutes = await findOne(collection(), { _id: account });
      const at_from = startOf(now_s - settling_s) - shown_minutes * minute_s;
      const counts = Array.from({ length: shown_minutes }, (_, index) => {
        const at = at_from + index * minute_s;
        const minute = minutes?.[slotOf(at)];
        return minute?.at === at ? minute.count : 0;
      });
      return { at_from, counts };
    },
    async stop(): Promise<void> {
      await write().catch(() => undefined);
    },
  };
}

const schema = describeClosed(
  'StreamRate',
  'Numbers of streams by minute of receipt.',
  {
    at_from: { type: 'integer', format: 'int64', description: 'Begin of the first minute.', examples: [1_700_000_040] },
    counts: {
      type: 'array',
      items: { type: 'integer', format: 'int64', description: 'Streams of a minute.', examples: [12] },
      description: `Numbers of streams of ${shown_minutes} minutes, the last one that is over at the end.`,
      examples: [[12, 11]],
    },
  },
  { examples: [{ at_from: 1_700_000_040, counts: [12, 11] }], xml: { name: 'response' } },
);

/** Creates the endpoint of the number of streams by minute (reference/streams.md#rate). */
export function streamRateEndpoints(rate: StreamRate): Endpoint[] {
  return [
    {
      operationId: 'getStreamRate',
      method: 'get',
      path: '/streams/rate/',
      tag: 'streams',
      summary: 'Count the streams received in each minute of the last hour',
      scope: 'read',
      limitedKeys: 'refused',
      result: { kind: 'plain', schema },
      handle: async ({ account, now }) => ({ details: await rate.read(account, now) }),
    },
  ];
}
