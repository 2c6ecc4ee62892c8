import type { Collection, Database } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { findNextTimes } from '../objects/values/last-values.js';
import type { WatchedDevice } from './devices.js';

/** A device that has sent streams of the future; its `_id` is that of the device. */
export interface DueDevice {
  _id: Id;
  account: string;
  /** When the first of them counts, epoch seconds. */
  due_at: number;
}

/** The devices of all accounts whose streams of the future are to be looked at. */
export function dueDevicesOf(db: Database): Collection<DueDevice> {
  return db.collection<DueDevice>('alarm_devices');
}

/** Has devices looked at when a stream of the future counts, unless an earlier one does. */
export async function scheduleDue(db: Database, due: readonly DueDevice[]): Promise<void> {
  if (due.length === 0) return;
  const writes = due.map(({ _id, account, due_at }) => ({
    updateOne: { filter: { _id }, update: { $min: { due_at }, $set: { account } }, upsert: true },
  }));
  await dueDevicesOf(db).bulkWrite(writes, { ordered: false });
}

/** Has devices of an account looked at when their next stream counts, which came while no rule covered them. @param now epoch seconds */
export async function scheduleNextDue(db: Database, devices: readonly WatchedDevice[], now: number): Promise<void> {
  const times = await findNextTimes(db, devices, now);
  const due = devices.flatMap(({ _id, account, id_developer }) => {
    const due_at = times.get(id_developer);
    return due_at === undefined ? [] : [{ _id, account, due_at }];
  });
  await scheduleDue(db, due);
}
