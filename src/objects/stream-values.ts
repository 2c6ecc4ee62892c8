import type { mongo } from 'mongoose';
import { type Database, read_limit_ms, type StoredDocument } from '../db/database.js';
import { isTimeout } from '../db/driver-errors.js';
import type { Id } from '../db/ids.js';
import { stream } from '../resources/index.js';
import { type DataPath, readPath } from '../schema/data-path.js';

/** A device whose streams are read. */
export interface StreamingDevice {
  _id: Id;
  account: string;
  id_developer: string;
}

/** A value of a stored data stream. */
export interface StoredValue {
  value: unknown;
  /** Epoch seconds. */
  at: number;
  received_at: number;
}

interface ValueQuery {
  path: DataPath;
  /** Only streams with a later `at`; default: all. */
  after?: number;
  /** Only streams up to this `at`. */
  until: number;
  /** Streams that count as not received yet, by `keyOfStream`. */
  ignored?: ReadonlySet<string>;
}

/** Documents of one reply: nearly always the first one has the path. */
const batch_size = 10;
const receipt_limit_ms = 2000;

/** Returns a text that is unique for a stream. */
export function keyOfStream({ _id }: { _id?: unknown }): string {
  return String(_id);
}

/** Finds the value of the data stream with the greatest `at` that has the path; of equal ones the last received. */
export async function findLastValue(
  db: Database,
  device: StreamingDevice,
  { path, after, until, ignored }: ValueQuery,
): Promise<StoredValue | undefined> {
  const at = { ...(after !== undefined && { $gt: after }), $lte: until };
  const cursor = db.collection(stream.plural).find(
    { ...buildFilter(device, path), at },
    {
      projection: { at: 1, created_at: 1, data: 1 },
      sort: { at: -1, _id: -1 },
      hint: streamsOfDevice,
      batchSize: batch_size,
      maxTimeMS: read_limit_ms,
    },
  );
  try {
    for await (const document of cursor) {
      const value = readPath(document.data, path);
      if (value === undefined || ignored?.has(keyOfStream(document)) === true) continue;
      return { value, at: Number(document.at), received_at: Number(document.created_at) };
    }
    return undefined;
  } finally {
    await cursor.close();
  }
}

/** Finds out when a data stream with the path was received after `since` (epoch seconds): a lower bound of the last time. */
export async function findReceiptAfter(
  db: Database,
  device: StreamingDevice,
  path: DataPath,
  since: number,
): Promise<number | undefined> {
  const newest = await findLastValue(db, device, { path, until: Number.MAX_VALUE });
  if (newest === undefined || newest.received_at > since) return newest?.received_at;
  // it may have come late: no index has the time of receipt
  const filter = { ...buildFilter(device, path), created_at: { $gt: since } };
  const options = { projection: { created_at: 1 }, hint: streamsOfDevice, maxTimeMS: receipt_limit_ms };
  const late = await db
    .collection(stream.plural)
    .findOne(filter, options)
    .catch((error: unknown) => {
      if (isTimeout(error)) return null;
      throw error;
    });
  return late === null ? undefined : Number(late.created_at);
}

/** Finds the earliest `at` of the data streams after a time (epoch seconds). */
export async function findNextAt(db: Database, device: StreamingDevice, after: number): Promise<number | undefined> {
  const options = { projection: { at: 1 }, sort: { at: 1 }, hint: streamsOfDevice, maxTimeMS: read_limit_ms } as const;
  const next = await db.collection(stream.plural).findOne({ ...buildFilter(device), at: { $gt: after } }, options);
  return next === null ? undefined : Number(next.at);
}

const streamsOfDevice = { account: 1, device: 1, at: 1, _id: 1 } as const;

function buildFilter({ _id, account, id_developer }: StreamingDevice, path?: DataPath): mongo.Filter<StoredDocument> {
  return { account, device: id_developer, parent: _id, _t: 'str', ...(path && buildPresence(path)) };
}

/** Narrows what is read to streams that may have the path; keys that MongoDB would interpret are compared here. */
function buildPresence({ steps }: DataPath): object {
  const isPlain = steps.every(({ key }) => /^[^.$][^.]*$/.test(key));
  return isPlain ? { [`data.${steps.map(({ key }) => key).join('.')}`]: { $exists: true } } : {};
}
