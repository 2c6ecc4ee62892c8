import type { mongo } from 'mongoose';
import { read_limit_ms } from '../db/database.js';
import { stream } from '../resources/index.js';
import type { DataPath } from '../schema/data-path.js';
import type { Values } from '../schema/fields.js';
import type { OperationContext } from './context.js';

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

type Expression = string | object;
type Row = Values & { _id: { at: number; device?: string }; streams: number; total: number };

const batch_size = 1000;
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
  const { at_from, at_to, every, byDevice } = request;
  const device = devices.length === 1 ? devices[0] : { $in: devices };
  const bucket = { $multiply: [every, { $floor: { $divide: ['$at', every] } }] };
  const pipeline = [
    { $match: { account, device, at: { $gte: at_from, $lte: at_to }, _t: 'str' } },
    { $group: { _id: byDevice ? { device: '$device', at: bucket } : { at: bucket }, ...accumulate(request) } },
    { $sort: { _id: 1 } },
    { $setWindowFields: { output: { total: { $count: {} } } } },
  ];
  const options = { hint, maxTimeMS: read_limit_ms, allowDiskUse: true, batchSize: batch_size, signal };
  const cursor = store.db.collection(stream.plural).aggregate<Row>(pipeline, options);
  const first = await cursor.next();
  return { total_documents: first?.total ?? 0, batches: readBatches(cursor, first, request) };
}

async function* readBatches(
  cursor: mongo.AggregationCursor<Row>,
  first: Row | null,
  request: SeriesRequest,
): AsyncGenerator<readonly object[]> {
  try {
    for (let next = first; next !== null; next = await cursor.next())
      yield [next, ...cursor.readBufferedDocuments()].map((row) => toEntry(row, request));
  } finally {
    await cursor.close();
  }
}

/** Builds the accumulators of a bucket: `streams`, and some for each path, named by its position. */
function accumulate({ paths, aggregates: wanted }: SeriesRequest): Record<string, object> {
  const accumulators: Record<string, object> = { streams: { $sum: 1 } };
  const needs = (...names: Aggregate[]) => names.some((name) => wanted.includes(name));
  for (const [index, path] of paths.entries()) {
    const value = buildExpression(path);
    const number = { $cond: [{ $isNumber: value }, value, null] };
    const sample = { at: '$at', id: '$_id', value };
    const scalar = { $cond: [{ $in: [{ $type: value }, scalarTypes] }, sample, null] };
    if (needs('avg', 'count')) accumulators[`count${index}`] = { $sum: { $cond: [{ $isNumber: value }, 1, 0] } };
    if (needs('avg', 'sum')) accumulators[`sum${index}`] = { $sum: value };
    if (needs('min')) accumulators[`min${index}`] = { $min: number };
    if (needs('max')) accumulators[`max${index}`] = { $max: number };
    if (needs('first')) accumulators[`first${index}`] = { $min: scalar };
    if (needs('last')) accumulators[`last${index}`] = { $max: scalar };
  }
  return accumulators;
}

const scalarTypes = ['double', 'int', 'long', 'string', 'bool'];
const plainKey = /^[A-Za-z_][A-Za-z0-9_-]*$/;

/** Builds the expression of a path's value. Keys that MongoDB would interpret are passed as literals. */
function buildExpression({ steps }: DataPath): Expression {
  if (steps.every(({ key, index }) => index === undefined && plainKey.test(key)))
    return `$data.${steps.map(({ key }) => key).join('.')}`;
  return steps.reduce<Expression>((input, { key, index }) => {
    const member = { $getField: { field: { $literal: key }, input } };
    if (index === undefined) return member;
    return { $cond: [{ $isArray: [input] }, { $arrayElemAt: [input, index] }, member] };
  }, '$data');
}

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
  const found = row[`${aggregate}${index}`];
  switch (aggregate) {
    case 'avg': {
      const count = Number(row[`count${index}`]);
      return count === 0 ? undefined : Number(row[`sum${index}`]) / count;
    }
    case 'first':
    case 'last':
      return (found as { value: unknown } | null)?.value;
    default:
      return found;
  }
}
