import mongoose, { type mongo } from 'mongoose';
import { buildBounds, type ClusteredDocument, type RangeCondition, readRanges } from '../db/clustered.js';
import { read_limit_ms } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { findOne } from '../db/raw-find.js';
import { countParts, type OperationContext, readInTurns } from '../objects/context.js';
import { stream, streamsummary } from '../resources/index.js';
import type { DataPath } from '../schema/data-path.js';
import type { Values } from '../schema/fields.js';
import { planSeries, type SummaryPlan } from '../summaries/plan.js';
import {
  type Aggregate,
  buildStreamAccumulators,
  buildSummaryAccumulators,
  findPartialAggregates,
  mergeParts,
} from './accumulators.js';
import type { Buckets } from './buckets.js';

export interface SeriesRequest {
  paths: readonly DataPath[];
  aggregates: readonly Aggregate[];
  buckets: Buckets;
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

const { MaxKey } = mongoose.mongo;

type Row = Values & { _id: { at: number; device?: string }; streams: number; total: number };

const batch_size = 1000;
/** Parts of a series read in parallel, less one for each other costly operation in progress. */
const max_parts = 4;

/**
 * Aggregates the data streams of devices by time (reference/series.md#buckets). The database reads them in their order and
 * computes the entries. It stops when the client has left.
 */
export async function readSeries(
  ctx: OperationContext,
  devices: readonly DeviceRef[],
  request: SeriesRequest,
): Promise<Series> {
  const { store, account } = ctx;
  const streams = store.db.collection(stream.plural);
  const signal = ctx.caller?.left;
  const options = { maxTimeMS: read_limit_ms, allowDiskUse: true, batchSize: batch_size, ...(signal && { signal }) };
  const plan = await findPlan(ctx, devices, request);
  const pipelines =
    plan === undefined
      ? (await splitSpan(ctx, devices, request)).map((span) => [
          ...readSpan(account, devices, span),
          { $group: { _id: groupKeyOf(request), ...buildStreamAccumulators(request) } },
        ])
      : [readParts(plan, request)];
  const cursors = pipelines.map((pipeline) =>
    streams.aggregate<Row>(
      [...pipeline, { $sort: { _id: 1 } }, { $setWindowFields: { output: { total: { $count: {} } } } }],
      options,
    ),
  );
  try {
    const parts = await Promise.all(cursors.map(async (cursor) => ({ cursor, first: await cursor.next() })));
    const total_documents = parts.reduce((sum, { first }) => sum + (first?.total ?? 0), 0);
    return { total_documents, batches: readInTurns(ctx, readBatches(parts, request, signal)) };
  } catch (error) {
    await closeAll(cursors, signal);
    throw error;
  }
}

const groupKeyOf = ({ byDevice, buckets: { expression: at } }: SeriesRequest) =>
  byDevice ? { device: '$_id.device', at } : { at };

/** Plans a series with summaries of hours. */
async function findPlan(
  { store: { db }, account }: OperationContext,
  devices: readonly DeviceRef[],
  { buckets: { divided }, aggregates: wanted, ...request }: SeriesRequest,
): Promise<SummaryPlan | undefined> {
  if (divided === undefined) return undefined;
  const needsScalars = wanted.includes('first') || wanted.includes('last');
  const summarized = devices.map(({ _id: parent, id }) => ({ account, device: id, parent }));
  return planSeries(db, summarized, { ...request, divided, needsScalars });
}

/** Builds the stages that compute a series from streams and summaries. */
function readParts({ streams, hours, removed }: SummaryPlan, request: SeriesRequest): object[] {
  const wanted = { ...request, aggregates: findPartialAggregates(request.aggregates) };
  const _id = groupKeyOf(request);
  const spans = streams.map(({ account, device: id, parent, from, to }) =>
    buildRange(account, { _id: parent, id }, { at_from: from, at_to: request.at_to, before: to }),
  );
  const summaries = (stages: readonly object[]) => ({
    $unionWith: {
      coll: streamsummary.plural,
      pipeline: [
        ...stages,
        { $match: { streams: { $gt: 0 } } },
        { $group: { _id, ...buildSummaryAccumulators(wanted) } },
      ],
    },
  });
  const base = [{ $project: { streams: '$base.streams', paths: '$base.paths' } }];
  return [
    ...readRanges(stream.plural, spans),
    { $group: { _id, ...buildStreamAccumulators(wanted) } },
    ...(hours.length > 0 ? [summaries(hours)] : []),
    ...(removed.length > 0 ? [summaries([...readRanges(streamsummary.plural, removed), ...base])] : []),
    ...mergeParts(request),
  ];
}

/** A device whose streams are read. */
export interface DeviceRef {
  _id: Id;
  id: string;
}

interface Span {
  at_from: number;
  at_to: number;
  /** The beginning of the next part, which is not in this one. */
  before?: number | undefined;
}

/** Devices whose streams are read one device after the other; of more, those of all devices of the account are. */
const max_ranges = 5000;

/** Builds the stages that read the data streams of devices in a span. */
function readSpan(account: string, devices: readonly DeviceRef[], span: Span): object[] {
  if (devices.length <= max_ranges) {
    const ranges = devices.map((device) => buildRange(account, device, span));
    return readRanges(stream.plural, ranges);
  }
  const parent = { $in: devices.map(({ _id }) => _id) };
  const at = { $gte: span.at_from, $lte: span.at_to };
  return [{ $match: { _id: buildBounds({ account }, 'device'), parent, '_id.at': at, _t: 'str' } }];
}

function buildRange(
  account: string,
  { _id: parent, id: device }: DeviceRef,
  { at_from, at_to, before }: Span,
): RangeCondition {
  const upper = { account, device, at: before ?? at_to, ...(before === undefined && { n: new MaxKey() }) };
  return { _id: { $gte: { account, device, at: at_from }, $lt: upper }, parent, _t: 'str' };
}

/**
 * Splits what there is of a device's streams in the span between buckets, in order. By device, and of several devices, the
 * parts would not follow each other.
 */
async function splitSpan(
  { store, account }: OperationContext,
  devices: readonly DeviceRef[],
  request: SeriesRequest,
): Promise<Span[]> {
  const max = countParts(store, max_parts);
  const [only, ...others] = devices;
  if (only === undefined || others.length > 0 || max === 1) return [request];
  const streams = store.db.collection<ClusteredDocument>(stream.plural);
  const range = buildRange(account, only, request);
  const [first, last] = await Promise.all(
    ([1, -1] as const).map((direction) =>
      findOne(streams, range, { sort: { _id: direction }, projection: { _id: 1 } }),
    ),
  );
  if (!first || !last) return [request];
  const { indexOf, beginningOf } = request.buckets;
  const first_bucket = indexOf(Number(first._id.at));
  const buckets = indexOf(Number(last._id.at)) - first_bucket + 1;
  const parts = Math.min(max, buckets);
  const bounds = Array.from(
    { length: parts - 1 },
    (_, part) => first_bucket + Math.ceil((buckets * (part + 1)) / parts),
  );
  const starts = [request.at_from, ...bounds.map(beginningOf)];
  return starts.map((at_from, part) => ({ at_from, at_to: request.at_to, before: starts[part + 1] }));
}

interface Part {
  cursor: mongo.AggregationCursor<Row>;
  first: Row | null;
}

/** An aborted signal has closed them: closing one again would end its session before the database has heard of it. */
async function closeAll(cursors: readonly mongo.AggregationCursor<Row>[], signal?: AbortSignal): Promise<void> {
  if (signal?.aborted !== true) await Promise.allSettled(cursors.map((cursor) => cursor.close()));
}

async function* readBatches(
  parts: readonly Part[],
  request: SeriesRequest,
  signal?: AbortSignal,
): AsyncGenerator<readonly object[]> {
  try {
    for (const { cursor, first } of parts)
      for (let next = first; next !== null; next = await cursor.next())
        yield [next, ...cursor.readBufferedDocuments()].map((row) => toEntry(row, request));
  } finally {
    const cursors = parts.map(({ cursor }) => cursor);
    await closeAll(cursors, signal);
  }
}

/** Returns the columns of CSV in order (reference/series.md#formats). */
export function columnsOfSeries({ paths, aggregates: wanted, byDevice, buckets }: SeriesRequest): string[] {
  const values = paths.flatMap(({ text }) => wanted.map((aggregate) => columnOf(text, aggregate)));
  return [...(byDevice ? ['device'] : []), 'at', ...(buckets.dates ? ['local'] : []), 'count', ...values];
}

function columnOf(path: string, aggregate: string): string {
  return `${path}.${aggregate}`;
}

/** Converts a bucket to an entry: values are absent where the bucket has none, except `sum` and `count`. */
function toEntry(row: Row, { paths, aggregates: wanted, isFlat, buckets: { dates } }: SeriesRequest): object {
  const local = dates && { local: dates.get(row._id.at) };
  const entry: Values = Object.assign(Object.create(null), row._id, local, { count: row.streams });
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
