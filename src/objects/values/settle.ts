import type { mongo } from 'mongoose';
import type { Database } from '../../db/database.js';
import { hasOnlyDuplicates } from '../../db/driver-errors.js';
import { AppError } from '../../errors.js';
import type { StreamingDevice } from '../stream-values.js';
import { findLastValues } from './last-values.js';
import {
  buildValue,
  type DeviceValue,
  findStored,
  type KeptPath,
  keyOfValue,
  type SentValue,
  valuesOf,
} from './values.js';

const max_attempts = 20;

/**
 * Makes the stored values of devices those of their streams, also after streams were deleted. A value is written only if it is
 * as it was before the streams were read; otherwise both are read again. @param now epoch seconds
 */
export async function settleValues(
  db: Database,
  devices: readonly StreamingDevice[],
  paths: readonly KeptPath[],
  now: number,
): Promise<void> {
  if (paths.length === 0) return;
  let unsettled = devices;
  for (let attempt = 0; unsettled.length > 0; attempt++) {
    if (attempt === max_attempts) throw new AppError('database', {}, { cause: new Error('values do not settle') });
    const keys = unsettled.flatMap(({ _id }) => paths.map((path) => ({ parent: _id, path: path._id })));
    const stored = await findStored(db, keys);
    const sent = await findLastValues(db, unsettled, paths, now);
    unsettled = await writeSettled(db, unsettled, paths, { stored, sent });
  }
}

/** @returns devices of which a value was written since it was read */
async function writeSettled(
  db: Database,
  devices: readonly StreamingDevice[],
  paths: readonly KeptPath[],
  { stored, sent }: { stored: ReadonlyMap<string, DeviceValue>; sent: ReadonlyMap<string, SentValue> },
): Promise<readonly StreamingDevice[]> {
  const writes: mongo.AnyBulkWriteOperation<DeviceValue>[] = [];
  const written: StreamingDevice[] = [];
  for (const device of devices)
    for (const path of paths) {
      const key = keyOfValue({ parent: device._id, path: path._id });
      const [before, last] = [stored.get(key), sent.get(key)];
      const write = planWrite(before, last && buildValue(db, device, path._id, last));
      if (write === undefined) continue;
      writes.push(write);
      written.push(device);
    }
  if (writes.length === 0) return [];
  const { insertedCount, matchedCount, deletedCount } = await valuesOf(db)
    .bulkWrite(writes, { ordered: false })
    .catch((error: unknown) => {
      if (!hasOnlyDuplicates(error)) throw error;
      return { insertedCount: 0, matchedCount: 0, deletedCount: 0 };
    });
  return insertedCount + matchedCount + deletedCount === writes.length ? [] : [...new Set(written)];
}

function planWrite(
  before: DeviceValue | undefined,
  last: DeviceValue | undefined,
): mongo.AnyBulkWriteOperation<DeviceValue> | undefined {
  if (before === undefined) return last && { insertOne: { document: last } };
  const { _id, revision } = before;
  if (last === undefined) return { deleteOne: { filter: { _id, revision } } };
  if (before.at === Number(last.at) && before.n.equals(last.n)) return undefined;
  const { _id: _, ...members } = last;
  return { updateOne: { filter: { _id, revision }, update: { $set: members } } };
}
