import mongoose, { type mongo } from 'mongoose';
import { type ClusteredDocument, type ClusterKey, type RangeCondition, readRanges } from '../../db/clustered.js';
import type { Database } from '../../db/database.js';
import { isTimeout } from '../../db/driver-errors.js';
import type { Id } from '../../db/ids.js';
import { findMany, findOne, runPipeline } from '../../db/raw-find.js';
import { ignore } from '../../lib/promises.js';
import { stream } from '../../resources/index.js';
import { buildMinNumber, readReceipt } from '../../resources/stream-key.js';
import { type DataPath, isTooDeep, readPath } from '../../schema/data-path.js';
import { getDocument, getNumber, getString } from '../../serialize/bson.js';

const { MaxKey } = mongoose.mongo;

export interface StreamingDevice {
  _id: Id;
  account: string;
  id_developer: string;
}

export interface StoredValue {
  value: unknown;
  /** Epoch seconds. */
  at: number;
  received_at: number;
}

/** The values that are looked for. */
export interface ValueQuery {
  path: DataPath;
  /** Only streams with a later `at`, or this one and a number above `n`; or with at least the `at` of `from`; default: all. */
  after?: number;
  n?: mongo.Long;
  from?: number;
  /** Only streams up to this `at`. */
  until: number;
  /** Streams that count as not received yet, by `keyOfStream`. */
  ignored?: ReadonlySet<string>;
}

/** Documents of one query: nearly always the first one has the path. */
const batch_size = 10;
const receipt_limit_ms = 2000;

/** Returns a text that is unique for a stream of a device. */
export function keyOfStream({ _id: { at, n } }: { _id: ClusterKey }): string {
  return `${at} ${n}`;
}

/** Finds the value of the data stream with the greatest `at` that has the path; of equal ones the last received. */
export async function findLastValue(
  db: Database,
  device: StreamingDevice,
  { path, ignored, ...times }: ValueQuery,
): Promise<StoredValue | undefined> {
  const filter = { ...buildFilter(device, times), ...buildPresence(path) };
  // no cursor stays open, which would take a command to close
  const options = { projection: { data: 1 }, sort: { _id: -1 }, limit: batch_size } as const;
  for (;;) {
    const documents = await findMany(streamsOf(db), filter, options);
    for (const document of documents) {
      const value = readPath(document.data, path);
      if (value === undefined || ignored?.has(keyOfStream(document)) === true) continue;
      return toStoredValue(document, value);
    }
    const last = documents.at(-1);
    if (last === undefined || documents.length < batch_size) return undefined;
    filter._id = { ...filter._id, $lt: last._id };
  }
}

/** Describes a value of a stream. */
export function toStoredValue(document: ClusteredDocument, value: unknown): StoredValue {
  return { value, at: Number(document._id.at), received_at: receiptOf(document) };
}

export interface LastStream {
  /** Epoch seconds. */
  at: number;
  /** BSON of its `data`. */
  data: Buffer;
}

/** A stream that may be followed by others whose time has not come. */
export interface FoundStream extends LastStream {
  isLast: boolean;
}

/**
 * Finds the last data stream of each device: the one with the greatest `at` that is not later than `now` (epoch seconds), of
 * equal ones the one received last. One command steps backwards from there in the order of each device, whatever its number of
 * streams; devices with streams of the future take a second one. @returns by `id_developer`, without devices that have none
 */
export async function findLastStreams(
  db: Database,
  devices: readonly StreamingDevice[],
  now: number,
): Promise<ReadonlyMap<string, FoundStream>> {
  const last = await readLastStreams(db, devices);
  const isFuture = ({ id_developer }: StreamingDevice) => (last.get(id_developer)?.at ?? 0) > now;
  const early = await readLastStreams(db, devices.filter(isFuture), now);
  return new Map(
    devices.flatMap((device) => {
      const { id_developer: id } = device;
      const stream = isFuture(device) ? early.get(id) : last.get(id);
      return stream === undefined ? [] : [[id, { ...stream, isLast: !isFuture(device) }]];
    }),
  );
}

async function readLastStreams(
  db: Database,
  devices: readonly StreamingDevice[],
  until?: number,
): Promise<ReadonlyMap<string, LastStream>> {
  const stages = [{ $sort: { _id: -1 } }, { $limit: 1 }];
  const bounds = until === undefined ? {} : { until };
  const documents = await findEnds<Uint8Array>(db, devices, bounds, stages, { raw: true });
  return new Map(
    documents.map((bson) => [
      getString(getDocument(bson, '_id') ?? bson, 'device') ?? '',
      { at: getNumber(bson, '_id', 'at') ?? 0, data: getDocument(bson, 'data') ?? Buffer.alloc(0) },
    ]),
  );
}

/** Finds the first or last data stream of each device between two times, as the stages say. */
export async function findEnds<Found>(
  db: Database,
  devices: readonly StreamingDevice[],
  bounds: Parameters<typeof buildFilter>[1],
  stages: readonly object[],
  options: { raw?: true } = {},
): Promise<Found[]> {
  if (devices.length === 0) return [];
  const ranges = devices.map((device) => buildFilter(device, bounds));
  // a reply of exactly this size would leave the cursor open
  const batchSize = devices.length + 1;
  const ends = readRanges(stream.plural, ranges, stages);
  return (await runPipeline(streamsOf(db), ends, { ...options, batchSize })) as Found[];
}

/** Finds a data stream with the path that was received after `since` (epoch seconds), wherever its `at` puts it. @returns when */
export async function findReceiptAfter(
  db: Database,
  device: StreamingDevice,
  path: DataPath,
  since: number,
): Promise<number | undefined> {
  const received = { '_id.n': { $gte: buildMinNumber((Math.floor(since) + 1) * 1000) } };
  const filter = { ...buildFilter(device), ...buildPresence(path), ...received };
  const options = { projection: { _id: 1 }, maxTimeMS: receipt_limit_ms };
  const late = await findOne(streamsOf(db), filter, options).catch(ignore(isTimeout));
  return late && receiptOf(late);
}

/** The streams of all accounts. */
export const streamsOf = (db: Database) => db.collection<ClusteredDocument>(stream.plural);

/** The second of receipt (epoch seconds). */
function receiptOf({ _id }: ClusteredDocument): number {
  return readReceipt(BigInt(String(_id.n)));
}

/** Builds the conditions on a device's data streams between two times; `after`, with all or with `n`, is excluded. */
export function buildFilter(
  { _id: parent, account, id_developer: device }: StreamingDevice,
  { after, n, from, until }: Partial<Pick<ValueQuery, 'after' | 'n' | 'from' | 'until'>> = {},
): RangeCondition {
  const key = { account, device };
  const first = from === undefined ? key : { ...key, at: from };
  const $gte = after === undefined ? first : { ...key, at: after, n: n?.add(1) ?? new MaxKey() };
  return { _id: { $gte, $lt: { ...key, at: until ?? new MaxKey(), n: new MaxKey() } }, parent, _t: 'str' };
}

/** Narrows what is read to streams that may have the path; keys that MongoDB would interpret are compared here. */
export function buildPresence(path: DataPath): object {
  // no stream at all
  if (isTooDeep(path)) return { _t: { $in: [] } };
  const { steps } = path;
  const isPlain = steps.every(({ key }) => /^[^.$][^.]*$/.test(key));
  return isPlain ? { [`data.${steps.map(({ key }) => key).join('.')}`]: { $exists: true } } : {};
}
