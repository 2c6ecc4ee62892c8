import type { mongo } from 'mongoose';
import type { ClusteredDocument, IdBounds } from '../../db/clustered.js';
import { type Database, read_limit_ms } from '../../db/database.js';
import { keyOfId } from '../../db/ids.js';
import { findOne } from '../../db/raw-find.js';
import { runInParallel } from '../../lib/parallel.js';
import { createTurns } from '../../lib/turns.js';
import { readPath } from '../../schema/data-path.js';
import { buildFilter, buildPresence, findEnds, type StreamingDevice, streamsOf } from './stream-values.js';
import { type KeptPath, keyOfValue, type SentValue } from './values.js';

/** Streams that one command examines. */
const piece_size = 5000;
const max_concurrent = 4;
const backwards = { _id: -1 } as const;

/**
 * Reads the values at paths of devices from their streams up to `now` (epoch seconds): most devices send all paths in every
 * stream, for the others streams are read backwards. @returns by `keyOfValue`
 */
export async function findLastValues(
  db: Database,
  devices: readonly StreamingDevice[],
  paths: readonly KeptPath[],
  now: number,
): Promise<ReadonlyMap<string, SentValue>> {
  const values = new Map<string, SentValue>();
  const stages = [{ $sort: backwards }, { $limit: 1 }, { $project: { data: 1 } }];
  const documents = await findEnds<ClusteredDocument>(db, devices, { until: now }, stages);
  const last = new Map(documents.map((document) => [document._id.device, document]));
  const missing: { device: StreamingDevice; path: KeptPath; before: ClusteredDocument }[] = [];
  const takeTurns = createTurns();
  for (const device of devices) {
    await takeTurns();
    const document = last.get(device.id_developer);
    if (document === undefined) continue;
    for (const path of paths) {
      const value = readPath(document.data, path.path);
      if (value === undefined) missing.push({ device, path, before: document });
      else values.set(keyOfValue({ parent: device._id, path: path._id }), toSentValue(document, value));
    }
  }
  await runInParallel(missing, max_concurrent, async ({ device, path, before }) => {
    const value = await findBefore(db, device, path, before);
    if (value !== undefined) values.set(keyOfValue({ parent: device._id, path: path._id }), value);
  });
  return values;
}

/** Finds the earliest `at` after `now` (epoch seconds) of devices of one account. @returns by `keyOfId` */
export async function findNextTimes(
  db: Database,
  devices: readonly StreamingDevice[],
  now: number,
): Promise<ReadonlyMap<string, number | undefined>> {
  const stages = [{ $sort: { _id: 1 } }, { $limit: 1 }, { $project: { _id: 1 } }];
  const documents = await findEnds<ClusteredDocument>(db, devices, { after: now }, stages);
  const times = new Map(documents.map(({ _id }) => [_id.device, Number(_id.at)]));
  return new Map(devices.map(({ _id, id_developer }) => [keyOfId(_id), times.get(id_developer)]));
}

/** Finds the last value before a stream, a bounded number of streams at a time. */
async function findBefore(
  db: Database,
  device: StreamingDevice,
  { path }: KeptPath,
  { _id: before }: ClusteredDocument,
): Promise<SentValue | undefined> {
  const streams = streamsOf(db);
  const { _id: whole, ...rest } = buildFilter(device);
  for (let $lt = before; ; ) {
    const bounds: IdBounds = { ...whole, $lt };
    const options = { projection: { _id: 1 }, sort: backwards, skip: piece_size };
    const end = await findOne(streams, { ...rest, _id: bounds }, options);
    const piece = end === undefined ? bounds : { ...bounds, $gte: end._id };
    const cursor = streams.find(
      { _id: piece, ...rest, ...buildPresence(path) },
      { projection: { data: 1 }, sort: backwards, batchSize: 10, maxTimeMS: read_limit_ms },
    );
    try {
      for await (const document of cursor) {
        const value = readPath(document.data, path);
        if (value !== undefined) return toSentValue(document, value);
      }
    } finally {
      await cursor.close();
    }
    if (end === undefined) return undefined;
    $lt = end._id;
  }
}

function toSentValue({ _id: { at, n } }: ClusteredDocument, value: unknown): SentValue {
  return { value, at: Number(at), n: n as mongo.Long };
}
