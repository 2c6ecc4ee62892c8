import { createBatcher, type Submit } from '../db/batching/batcher.js';
import type { Database, StoredObject } from '../db/database.js';
import { retryOnce } from '../db/driver-errors.js';
import type { Id } from '../db/ids.js';
import { device } from '../resources/index.js';

type MarkedDevice = StoredObject & { condition_met_at?: number; stream_revision?: Id };

const devicesOf = (db: Database) => db.collection<MarkedDevice>(device.plural);

/** A mark that is younger need not be set again. */
const fresh_s = 20;

/** Reports whether a mark is young enough to stay for the time of an evaluation. @param now epoch seconds */
export function isFresh(condition_met_at: number | undefined, now: number): boolean {
  return condition_met_at !== undefined && condition_met_at >= now - fresh_s;
}

/** Marks a device before a record says that a condition is met there. `now` is in epoch seconds. */
export type SetMark = Submit<{ _id: Id; account: string; now: number }>;

/** Creates the function that marks devices, many at once. */
export function createMarker(db: Database): SetMark {
  return createBatcher(
    async (marks) => {
      const condition_met_at = Math.max(...marks.map(({ now }) => now));
      const filter = { _id: { $in: marks.map(({ _id }) => _id) } };
      // a stream that is stored before the mark writes nothing to its device: the evaluation has to look again
      const $set = { condition_met_at, stream_revision: db.newId() };
      await retryOnce(() => devicesOf(db).updateMany(filter, { $set }));
    },
    { maxBatchSize: 500, maxInFlight: 2, accountOf: ({ account }) => account },
  );
}

/** Removes the marks of devices that were marked before a time (epoch seconds). */
export async function removeMarks(db: Database, ids: readonly Id[], before: number): Promise<void> {
  const filter = { _id: { $in: [...ids] }, condition_met_at: { $lt: before } };
  await devicesOf(db).updateMany(filter, { $unset: { condition_met_at: 1 } });
}
