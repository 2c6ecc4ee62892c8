import type { mongo } from 'mongoose';
import { read_limit_ms } from '../db/database.js';
import { readInSlots } from '../lib/shares.js';
import type { OperationContext } from '../objects/context.js';
import { buildPathExpression } from '../objects/path-filters.js';
import { stream } from '../resources/index.js';
import type { DataPath } from '../schema/data-path.js';
import type { Values } from '../schema/fields.js';

/** Aggregates of the values in a bucket (reference/series.md#aggregates). */
export const aggregates = ['avg', 'min', 'max', 'sum', 'count', 'first', 'last'] as const;
export type Aggregate = (typeof aggregates)[number];

export interface SeriesRequest {
  paths: readonly DataPath[];
  aggregates: readonly Aggregate[];
  /** Length of a bucket in seconds. */
  every: number;
  /** Epoch seconds, bounds included. */
  at_from: number;
  at_to: number;
  /** Separate entries for each device. */
  byDevice: boolean;
  /** Entries have a member for each column of CSV instead of one for each path. */
  isFlat: boolean;
}

/** Entries in order of device and time; `batches` are read from the database as they are asked for. */
export interface Series {
  total_documents: number;
  batches: AsyncIterable<readonly object[]>;
}

type Row = Values & { _id: { at: number; device?: string }; streams: number; total: number };

const batch_size = 1000;
/** Parts of a series read in parallel, less one for each other costly operation in progress. */
const max_parts = 4;
const hint = { account: 1, device: 1, at: 1, _id: 1 };

/**
 * Aggregates the data streams of devices by time (reference/series.md#buckets). The database reads them through an
 * index and computes the entries. It stops when `signal` aborts.
 */
export async function readSeries(
  { store, account }: OperationContext,
  devices: readonly string[],
  request: SeriesRequest,
  signal: AbortSignal,
): Promise<Series> {
  const { every, byDevice } = request;
  const device = devices.length === 1 ? devices[0] : { $in: devices };
  // MongoDB 6.0 runs $mod in its classic engine, 1.6 times as fast here as the engine that it chooses for $floor
  const bucket = { $subtract: ['$at', { $mod: ['$at', every] }] };
  const group = { _id: byDevice ? { device: '$device', at: bucket } : { at: bucket }, ...accumulate(request) };
  const options = { hint, maxTimeMS: read_limit_ms, allowDiskUse: true, batchSize: batch_size, signal };
  const cursors = splitSpan(request, byDevice ? 1 : Math.max(max_parts + 1 - store.costly.held, 1)).map((at) =>
    store.db
      .collection(stream.plural)
      .aggregate<Row>(
        [
          { $match: { account, device, at, _t: 'str' } },
          { $group: group },
          { $sort: { _id: 1 } },
          { $setWindowFields: { output: { total: { $count: {} } } } },
        ],
        options,
      ),
  );
  try {
    const parts = await Promise.all(cursors.map(async (cursor) => ({ cursor, first: await cursor.next() })));
    const total_documents = parts.reduce((sum, { first }) => sum + (first?.total ?? 0), 0);
    return { total_documents, batches: readInSlots(store.costly, account, readBatches(parts, request)) };
  } catch (error) {
    await Promise.allSettled(cursors.map((cursor) => cursor.close()));
    throw error;
  }
}

/** Splits the span between buckets into conditions on `at`, in order. By device the parts would not follow each other. */
function splitSpan({ at_from, at_to, every }: SeriesRequest, max: number): object[] {
  const first = Math.floor(at_from / every);
  const buckets = Math.floor(at_to / every) - first + 1;
  const parts = Math.min(max, buckets);
  const bounds = Array.from({ length: parts + 1 }, (_, part) => every * (first + Math.floor((buckets * part) / parts)));
  return bounds.slice(1).map((end, part) => ({ $gte: Math.max(at_from, bounds[part] ?? 0), $lt: end, $lte: at_to }));
}

interface Part {
  cursor: mongo.AggregationCursor<Row>;
  first: Row | null;
}

async function* readBatches(parts: readonly Part[], request: SeriesRequest): AsyncGenerator<readonly object[]> {
  try {
    for (const { cursor, first } of parts)
      for (let next = first; next !== null; next = await cursor.next())
        yield [next, ...cursor.readBufferedDocuments()].map((row) => toEntry(row, request));
  } finally {
    await Promise.all(parts.map(({ cursor }) => cursor.close()));
  }
}

/** Builds the accumulators of a bucket: `streams`, and some for each path, named by its position. */
function accumulate({ paths, aggregates: wanted }: SeriesRequest): Record<string, object> {
  const accumulators: Record<string, object> = { streams: { $sum: 1 } };
  for (const [index, path] of paths.entries()) {
    const value = buildPathExpression('$data', path);
    const number = { $cond: [{ $isNumber: value }, value, null] };
    const sample = { at: '$at', id: '$_id', value };
    const scalar = { $cond: [{ $in: [{ $type: value }, scalarTypes] }, sample, null] };
    const expressions: Record<Aggregate, object> = {
      avg: { $avg: value },
      min: { $min: number },
      max: { $max: number },
      sum: { $sum: value },
      count: { $sum: { $cond: [{ $isNumber: value }, 1, 0] } },
      first: { $min: scalar },
      last: { $max: scalar },
    };
    for (const aggregate of wanted) accumulators[`${aggregate}${index}`] = expressions[aggregate];
  }
  return accumulators;
}

const scalarTypes = ['double', 'int', 'long', 'string', 'bool'];

/** Returns the columns of CSV in order (reference/series.md#formats). */
export function columnsOfSeries({ paths, aggregates: wanted, byDevice }: SeriesRequest): string[] {
  const values = paths.flatMap(({ text }) => wanted.map((aggregate) => columnOf(text, aggregate)));
  return [...(byDevice ? ['device'] : []), 'at', 'count', ...values];
}

function columnOf(path: string, aggregate: string): string {
  return `${path}.${aggregate}`;
}

/** Converts a bucket to an entry: values are absent where the bucket has none, except `sum` and `count`. */
function toEntry(row: Row, { paths, aggregates: wanted, isFlat }: SeriesRequest): object {
  const entry: Values = Object.assign(Object.create(null), row._id, { count: row.streams });
  for (const [index, { text }] of paths.entries()) {
    const values = valuesOf(row, index, wanted);
    if (!isFlat) entry[text] = values;
    else for (const [aggregate, value] of Object.entries(values)) entry[columnOf(text, aggregate)] = value;
  }
  return entry;
}

function valuesOf(row: Row, index: number, wanted: readonly Aggregate[]): Values {
  const values: Values = {};
  for (const aggregate of wanted) {
    const value = aggregateOf(row, index, aggregate);
    if (value !== null && value !== undefined) values[aggregate] = value;
  }
  return values;
}

function aggregateOf(row: Row, index: number, aggregate: Aggregate): unknown {
  const value = row[`${aggregate}${index}`];
  if (aggregate === 'first' || aggregate === 'last') return (value as { value: unknown } | null)?.value;
  return value;
}
