import type { Database } from '../db/database.js';
import { type Id, keyOfId } from '../db/ids.js';
import { findNextTimes } from '../objects/values/last-values.js';
import { findDevices, type WatchedDevice } from './devices.js';
import { type ReviewDeps, refreshDevices } from './review.js';

/** A device that has sent streams of the future; its `_id` is that of the device. */
export interface DueDevice {
  _id: Id;
  account: string;
  /** When the first of them counts, epoch seconds. */
  due_at: number;
}

/** The devices of all accounts whose streams of the future are to be looked at. */
export const dueDevicesOf = (db: Database) => db.collection<DueDevice>('alarm_devices');

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
  const due = devices.flatMap(({ _id, account }) => {
    const due_at = times.get(keyOfId(_id));
    return due_at === undefined ? [] : [{ _id, account, due_at }];
  });
  await scheduleDue(db, due);
}

/** Evaluates devices of an account whose streams of the future have come to their time (epoch seconds). */
export async function refreshDueDevices(deps: ReviewDeps, due: readonly DueDevice[], now: number): Promise<void> {
  const { db } = deps.store;
  const dueTimes = new Map(due.map(({ _id, due_at }) => [keyOfId(_id), due_at]));
  const ids = due.map(({ _id }) => _id);
  const devices = await findDevices(db, ids);
  const rules = await deps.loadRules(due[0]?.account ?? '');
  await refreshDevices(deps, [...devices.values()], {
    rulesOf: (each) => rules.covering(each).rules,
    causeOf: ({ _id }) => ({ floor: now, due_since: dueTimes.get(keyOfId(_id)) ?? now }),
  });
  const next = await findNextTimes(db, [...devices.values()], now);
  const writes = due.map(({ _id, due_at }) => {
    const at = next.get(keyOfId(_id));
    const filter = { _id, due_at };
    return at === undefined ? { deleteOne: { filter } } : { updateOne: { filter, update: { $set: { due_at: at } } } };
  });
  await dueDevicesOf(db).bulkWrite(writes, { ordered: false });
}
