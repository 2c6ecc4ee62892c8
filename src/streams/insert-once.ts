import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import mongoose, { type mongo } from 'mongoose';
import { type RangeCondition, readRanges } from '../db/clustered.js';
import type { Database } from '../db/database.js';
import { runPipeline } from '../db/raw-find.js';
import { groupBy } from '../lib/group-by.js';
import { createKeyedMutex } from '../lib/keyed-mutex.js';
import { stream } from '../resources/index.js';
import { insertDocuments, type StreamDocument } from './documents.js';
import type { NextNumber } from './numbering.js';
import { removeByKeys } from './store.js';

const { MaxKey } = mongoose.mongo;

/** A span of a device's streams is read whole if it holds at most this many for each stream looked for. */
const max_read_factor = 4;
/** Upper bound of the random wait after two processes have inserted the same stream. */
const max_wait_ms = 20;

/** Numbers of stored streams by device, kind and `at`. */
type StoredNumbers = Map<string, Set<string>>;

const keyOf = ({ _id: { device, at }, _t }: Pick<StreamDocument, '_id' | '_t'>) => `${_t} ${Number(at)} ${device}`;

/**
 * Creates the function that inserts streams whose device has none of their kind and `at`
 * (reference/streams.md#repetition). It returns the streams that it has inserted.
 */
export function createOnceInserter(db: Database, nextNumber: NextNumber) {
  const locks = createKeyedMutex();
  return (documents: readonly StreamDocument[]): Promise<ReadonlySet<StreamDocument>> => {
    const exclusive = documents.map(({ _id }) => _id.device);
    return locks({ exclusive, shared: [] }, () => insertMissing(db, documents, nextNumber));
  };
}

/** Finds the streams that would be inserted. */
export async function findMissing(
  streams: mongo.Collection,
  documents: readonly StreamDocument[],
): Promise<readonly StreamDocument[]> {
  if (documents.length === 0) return [];
  const firsts = new Map([...documents].reverse().map((document) => [keyOf(document), document]));
  const stored = await findNumbers(streams, documents);
  return documents.filter((document) => firsts.get(keyOf(document)) === document && !stored.has(keyOf(document)));
}

/**
 * Inserts what is missing, and looks again: of processes that have inserted the same stream each removes its own and
 * tries again, so that exactly one is left.
 */
async function insertMissing(
  db: Database,
  documents: readonly StreamDocument[],
  nextNumber: NextNumber,
): Promise<ReadonlySet<StreamDocument>> {
  const streams = db.collection<mongo.Document>(stream.plural);
  const inserted = new Set<StreamDocument>();
  for (let wanted = documents; ; ) {
    const missing = await findMissing(streams, wanted);
    if (missing.length === 0) return inserted;
    await insertDocuments(db, missing, nextNumber);
    const numbers = await findNumbers(streams, missing);
    const [contested, alone] = partition(missing, (document) => (numbers.get(keyOf(document))?.size ?? 0) > 1);
    for (const document of alone) inserted.add(document);
    if (contested.length === 0) return inserted;
    const keys = contested.map(({ _id }) => _id);
    await removeByKeys(streams, keys);
    await sleep(randomInt(max_wait_ms));
    wanted = contested;
  }
}

function partition<Item>(items: readonly Item[], isFirst: (item: Item) => boolean): [Item[], Item[]] {
  return [items.filter(isFirst), items.filter((item) => !isFirst(item))];
}

/** Finds the numbers of the stored streams with the device, kind and `at` of these; there may be others among them. */
async function findNumbers(streams: mongo.Collection, documents: readonly StreamDocument[]): Promise<StoredNumbers> {
  const spans = [...groupBy(documents, ({ _id }) => _id.device)].map(([device, own]) => {
    return { device, own, range: buildSpan(own), limit: max_read_factor * own.length + 1 };
  });
  const read = await readKeys(streams, spans);
  const counts = groupBy(read, ({ _id }) => _id.device);
  const cut = spans.filter(({ device, limit }) => counts.get(device)?.length === limit).flatMap(({ own }) => own);
  const points = cut.map((document) => ({ range: { ...buildSpan([document]), _t: document._t }, limit: 2 }));
  const numbers: StoredNumbers = new Map();
  for (const document of [...read, ...(await readKeys(streams, points))]) {
    const key = keyOf(document);
    numbers.set(key, (numbers.get(key) ?? new Set()).add(String(document._id.n)));
  }
  return numbers;
}

function readKeys(
  streams: mongo.Collection,
  spans: readonly { range: RangeCondition; limit: number }[],
): Promise<StreamDocument[]> {
  if (spans.length === 0) return Promise.resolve([]);
  const ranges = spans.map(({ range }) => range);
  const pipeline = readRanges(stream.plural, ranges, (index) => [
    { $limit: spans[index]?.limit },
    { $project: { _t: 1 } },
  ]);
  return runPipeline<StreamDocument>(streams, pipeline);
}

/** Bounds of the streams of a device from the first `at` of these to the last. */
function buildSpan(own: readonly StreamDocument[]): RangeCondition {
  const [
    {
      _id: { account, device },
      parent,
    },
  ] = own as [StreamDocument];
  const times = own.map(({ _id }) => _id.at.value);
  const [from, to] = [times.reduce((a, b) => Math.min(a, b)), times.reduce((a, b) => Math.max(a, b))];
  return { _id: { $gte: { account, device, at: from }, $lt: { account, device, at: to, n: new MaxKey() } }, parent };
}
