import type { Collection, Database } from '../db/database.js';
import type { Id } from '../db/ids.js';

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
