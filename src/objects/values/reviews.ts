import { type Database, read_limit_ms } from '../../db/database.js';
import type { Id } from '../../db/ids.js';
import { valuereview } from '../../resources/index.js';
import { saveReceiptsOf } from '../receipts/lost-receipts.js';
import { replaceRevisions } from './last-stream-cache.js';
import { measuredPathsOf } from './measured-paths.js';

/** Devices whose values are to be computed again; of a device with streams of the future the `_id` is that of the device. */
export interface ValueReview {
  _id: Id;
  /** Absent for streams that were stored together. */
  account?: string | undefined;
  devices: readonly Id[];
  /** Epoch seconds. */
  due_at: number;
  /** Differs after every write. */
  revision: Id;
}

/** Longer than streams take to be stored, and most deletions of streams. */
const storing_s = 10;
const removing_s = 60;

/** The reviews of all accounts. */
export const reviewsOf = (db: Database) => db.collection<ValueReview>(valuereview.plural);

/** Requests a review in case this process crashes while it stores streams. @returns withdraws it @param now epoch seconds */
export async function openReview(db: Database, devices: readonly Id[], now: number): Promise<() => Promise<void>> {
  const _id = db.newId();
  await reviewsOf(db).insertOne({ _id, devices, due_at: now + storing_s, revision: db.newId() });
  return async () => void (await reviewsOf(db).deleteOne({ _id }));
}

/** Requests a review of a device when the time of its next stream has come (epoch seconds). */
export async function scheduleReview(
  db: Database,
  { _id, account }: { _id: Id; account?: string | undefined },
  due_at: number,
): Promise<void> {
  const set = { ...(account !== undefined && { account }), devices: [_id], revision: db.newId() };
  await reviewsOf(db).updateOne({ _id }, { $min: { due_at }, $set: set }, { upsert: true });
}

/**
 * Runs a deletion of streams of devices of one account, and has their values computed again, also if it is interrupted.
 * @param now epoch seconds
 */
export async function withReview<Result>(
  db: Database,
  devices: readonly { _id: Id; account: string }[],
  now: number,
  remove: () => Promise<Result>,
): Promise<Result> {
  const accounts = { account: { $in: [...new Set(devices.map(({ account }) => account))] } };
  const measuring = new Set(await measuredPathsOf(db).distinct('account', accounts, { maxTimeMS: read_limit_ms }));
  const ids = devices.filter(({ account }) => measuring.has(account)).map(({ _id }) => _id);
  const _id = db.newId();
  const request = async (due_at: number) => {
    const $set = { account: devices[0]?.account, devices: ids, due_at, revision: db.newId() };
    if (ids.length > 0) await reviewsOf(db).updateOne({ _id }, { $set }, { upsert: true });
  };
  await request(now + removing_s);
  // only the streams may have the times of their receipt
  await saveReceiptsOf(db, devices);
  try {
    return await remove();
  } finally {
    await replaceRevisions(db, devices);
    await request(now);
  }
}
