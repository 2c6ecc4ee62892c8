import { type Database, read_limit_ms } from '../db/database.js';
import { readPipeline } from '../db/raw-find.js';
import { stream } from '../resources/index.js';
import { getDocument, getId, getNumber, getString } from '../serialize/bson.js';
import type { Bson } from './page.js';
import type { StreamingDevice } from './stream-values.js';

/** A stored data stream. */
export interface StoredStream {
  /** Epoch seconds. */
  at: number;
  /** BSON of its `data`. */
  data: Buffer;
}

const byDevice = { account: 1, device: 1, at: 1, _id: 1 } as const;
const backwards = { account: -1, device: -1, at: -1, _id: -1 } as const;
/** A pipeline has at most 1,000 stages, and each device needs one. */
const max_stages = 250;

/**
 * Finds the last data stream of each device of an account up to a time; of equal ones the one received last. One command
 * skips in the index from device to device; a second one is for those whose last stream does not count.
 * @returns by identifier of the device
 */
export async function findLastStreams(
  db: Database,
  devices: readonly StreamingDevice[],
  until: number,
): Promise<ReadonlyMap<string, StoredStream>> {
  const streams = new Map<string, StoredStream>();
  const others: StreamingDevice[] = [];
  const newest = await findNewest(db, devices);
  for (const sender of devices) {
    const bson = newest.get(sender.id_developer);
    if (bson === undefined) continue;
    const counts = getString(bson, '_t') === 'str' && (getNumber(bson, 'at') ?? 0) <= until;
    if (counts && getId(bson, 'parent').equals(sender._id)) streams.set(sender.id_developer, read(bson));
    else others.push(sender);
  }
  for (let i = 0; i < others.length; i += max_stages)
    for (const bson of await findCounting(db, others.slice(i, i + max_stages), until))
      streams.set(getString(bson, 'device') ?? '', read(bson));
  return streams;
}

function read(bson: Bson): StoredStream {
  return { at: getNumber(bson, 'at') ?? 0, data: getDocument(bson, 'data') ?? Buffer.alloc(0) };
}

/** Finds the newest stream of each device, of whatever kind: MongoDB reads one key for each (DISTINCT_SCAN). */
async function findNewest(db: Database, devices: readonly StreamingDevice[]): Promise<ReadonlyMap<string, Bson>> {
  const [{ account } = { account: '' }] = devices;
  const pipeline = [
    { $match: { account, device: { $in: devices.map(({ id_developer }) => id_developer) } } },
    { $sort: backwards },
    { $group: { _id: '$device', ...first('_t'), ...first('at'), ...first('parent'), ...first('data') } },
  ];
  const newest = new Map<string, Bson>();
  for (const bson of await aggregate(db, pipeline)) newest.set(getString(bson, '_id') ?? '', bson);
  return newest;
}

function first(path: string): object {
  return { [path]: { $first: `$${path}` } };
}

function findCounting(db: Database, devices: readonly StreamingDevice[], until: number): Promise<Bson[]> {
  const [first = [], ...rest] = devices.map(({ _id, account, id_developer }) => [
    { $match: { account, device: id_developer, at: { $lte: until }, parent: _id, _t: 'str' } },
    { $sort: backwards },
    { $limit: 1 },
  ]);
  return aggregate(db, [...first, ...rest.map((pipeline) => ({ $unionWith: { coll: stream.plural, pipeline } }))]);
}

function aggregate(db: Database, pipeline: readonly object[]): Promise<Bson[]> {
  return readPipeline(db.collection(stream.plural), pipeline, { hint: byDevice, maxTimeMS: read_limit_ms });
}
