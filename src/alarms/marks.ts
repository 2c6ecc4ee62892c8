import type { Database, StoredObject } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { device } from '../resources/index.js';

type MarkedDevice = StoredObject & { condition_met_at?: number };

const devicesOf = (db: Database) => db.collection<MarkedDevice>(device.plural);

/** Marks a device before a record says that a condition is met there. @param now epoch seconds */
export async function setMark(db: Database, _id: Id, now: number): Promise<void> {
  await devicesOf(db).updateOne({ _id }, { $set: { condition_met_at: now } });
}

/** Removes the marks of devices that were marked before a time (epoch seconds). */
export async function removeMarks(db: Database, ids: readonly Id[], before: number): Promise<void> {
  const filter = { _id: { $in: [...ids] }, condition_met_at: { $lt: before } };
  await devicesOf(db).updateMany(filter, { $unset: { condition_met_at: 1 } });
}
