import mongoose, { type mongo } from 'mongoose';
import type { Database } from '../../db/database.js';
import { type Id, keyOfId } from '../../db/ids.js';
import { findMany } from '../../db/raw-find.js';
import { devicevalue } from '../../resources/index.js';
import { type DataPath, parseDataPath } from '../../schema/data-path.js';
import type { MeasuredPath } from './measured-paths.js';
import type { StreamingDevice } from './stream-values.js';

const { Double } = mongoose.mongo;

/** The value of the last data stream of a device that has a path (`src/resources/device-value.ts`). */
export interface DeviceValue {
  _id: ValueKey;
  parent: Id;
  path: Id;
  account: string;
  device: string;
  value: Scalar | null;
  at: number;
  n: mongo.Long;
  revision: Id;
}

export type Scalar = number | string | boolean;
type ValueKey = { parent: Id; path: Id };

/** A value at a path in a stream. */
export interface SentValue {
  value: unknown;
  /** Epoch seconds. */
  at: number;
  n: mongo.Long;
}

/** A path of which the values of devices are kept. */
export interface KeptPath {
  _id: Id;
  path: DataPath;
}

/** The last values of the devices of all accounts. */
export const valuesOf = (db: Database) => db.collection<DeviceValue>(devicevalue.plural);

/** Parses the paths of an account that are stored as JSON Pointers. */
export function toKeptPaths(stored: readonly MeasuredPath[]): KeptPath[] {
  return stored.flatMap(({ _id, path: pointer }) => {
    const path = parseDataPath(pointer);
    return path === undefined ? [] : [{ _id, path }];
  });
}

/** Returns a text that is unique for a device and a path. */
export function keyOfValue({ parent, path }: ValueKey): string {
  return keyOfId(parent) + keyOfId(path);
}

/** Builds the members of a value. Null, arrays and objects count as sent, and match nothing. */
export function buildValue(db: Database, device: StreamingDevice, path: Id, { value, at, n }: SentValue): DeviceValue {
  const isScalar = typeof value === 'number' || typeof value === 'string' || typeof value === 'boolean';
  return {
    _id: { parent: device._id, path },
    parent: device._id,
    path,
    account: device.account,
    device: device.id_developer,
    value: isScalar ? value : null,
    at: new Double(at) as unknown as number,
    n,
    revision: db.newId(),
  };
}

/**
 * Stores values unless those of later streams are stored; of equal times the last received counts. A filter by anything but
 * `_id` would double the database's work.
 */
export async function saveLaterValues(db: Database, values: readonly DeviceValue[]): Promise<void> {
  if (values.length === 0) return;
  const writes = values.map((value) => {
    const sent = [value.at, value.n];
    const isEarlier = { $lt: [['$at', '$n'], sent] };
    const update = [{ $replaceWith: { $cond: [isEarlier, { $literal: value }, '$$ROOT'] } }];
    return { updateOne: { filter: { _id: value._id }, update, upsert: true } };
  });
  await valuesOf(db).bulkWrite(writes as mongo.AnyBulkWriteOperation<DeviceValue>[], { ordered: false });
}

/** Finds the stored values of devices and paths, by `keyOfValue`. */
export async function findStored(db: Database, keys: readonly ValueKey[]): Promise<ReadonlyMap<string, DeviceValue>> {
  const _id = { $in: keys.map(({ parent, path }) => ({ parent, path })) };
  const stored = await findMany(valuesOf(db), { _id });
  return new Map(stored.map((value) => [keyOfValue(value), value]));
}

/** Reports whether a value is not of an earlier stream than another one. */
export function isLater(value: DeviceValue | undefined, { at, n }: DeviceValue): boolean {
  if (value === undefined) return false;
  return Number(value.at) === Number(at) ? value.n.greaterThanOrEqual(n) : Number(value.at) > Number(at);
}
