import mongoose, { type mongo } from 'mongoose';
import { type ClusteredDocument, type RangeCondition, readRanges } from '../db/clustered.js';
import { type Database, read_limit_ms } from '../db/database.js';
import { isTimeout } from '../db/driver-errors.js';
import { stream } from '../resources/index.js';
import {
  buildSpanRange,
  type Hour,
  hour_s,
  type PathSummary,
  roundToHour,
  type Sample,
  type Summary,
} from './hours.js';

const { Long } = mongoose.mongo;

/** Paths of an hour: those of measures first, then in the order sent. */
const max_paths = 50;
/** Members of one object or array, scalars of one stream, and levels that are read. */
const [max_children, max_leaves, max_levels] = [100, 200, 6];
/** Longer spans are split if the database takes too long for them. */
const min_span_s = 1;

/** Streams of a device in a span without its end. */
export interface SummaryTarget extends Omit<Hour, 'at'> {
  from: number;
  to: number;
  /** Those of the streams in it that are read; default: all. */
  range?: RangeCondition;
  /** JSON Pointers of the measures of its model. */
  measures: readonly string[];
}

/** The summary of an hour of a target. */
export interface HourSummary {
  target: SummaryTarget;
  at: number;
  summary: Summary;
}

interface PathRow extends Omit<PathSummary, 'mixed'> {
  path: string;
  texts: number;
}

interface Row {
  _id: number;
  target: number;
  streams: number;
  texts: number;
  more: boolean | null;
  numeric: number;
  paths: readonly PathRow[];
}

/** Has the database summarise the data streams of targets by hours; those without a stream are left out. */
export async function deriveSummaries(
  db: Database,
  targets: readonly SummaryTarget[],
  session?: mongo.ClientSession,
): Promise<HourSummary[]> {
  const rows = await readRows(db, targets, session);
  const hours = new Map<string, HourSummary>();
  for (const row of rows) {
    const key = `${row.at} ${row.target.device} ${row.target.parent}`;
    const before = hours.get(key);
    const summary = before === undefined ? row.summary : mergeSummaries(before.summary, row.summary);
    hours.set(key, { ...row, summary });
  }
  return [...hours.values()].map((hour) => ({ ...hour, summary: limitPaths(hour.summary, hour.target.measures) }));
}

async function readRows(
  db: Database,
  targets: readonly SummaryTarget[],
  session?: mongo.ClientSession,
): Promise<HourSummary[]> {
  if (targets.length === 0) return [];
  const ranges = targets.map((target) => ({ ...(target.range ?? buildSpanRange(target, target)), _t: 'str' }));
  const pipeline = readRanges(stream.plural, ranges, (index) => buildStages(index, targets[index]?.measures ?? []));
  const streams = db.collection<ClusteredDocument>(stream.plural);
  const options = { maxTimeMS: read_limit_ms, allowDiskUse: true, promoteLongs: false, ...(session && { session }) };
  try {
    const rows = await streams.aggregate<Row>(pipeline, options).toArray();
    return rows.map((row) => {
      const target = targets[Number(row.target)] as SummaryTarget;
      return { target, at: row._id, summary: toSummary(row) };
    });
  } catch (error) {
    const parts = isTimeout(error) && session === undefined ? splitTargets(targets) : undefined;
    if (parts === undefined) throw error;
    return [...(await readRows(db, parts[0])), ...(await readRows(db, parts[1]))];
  }
}

/** @returns undefined for what is too short to split */
function splitTargets(targets: readonly SummaryTarget[]): [SummaryTarget[], SummaryTarget[]] | undefined {
  const middle = targets.length >> 1;
  const [only] = targets;
  if (middle > 0) return [targets.slice(0, middle), targets.slice(middle)];
  if (only === undefined || only.to - only.from <= min_span_s) return undefined;
  const half = (only.from + only.to) / 2;
  const at = only.to - only.from > hour_s ? roundToHour(half + hour_s) : half;
  return [[{ ...only, to: at }], [{ ...only, from: at }]];
}

function toSummary({ streams, texts, more, numeric, paths }: Row): Summary {
  const summaries = paths
    .filter(({ count }) => Number(count) > 0)
    .map((row) => [row.path, toPathSummary(row)] as const);
  const isMore = more === true || Number(numeric) > summaries.length;
  return {
    streams: Number(streams),
    paths: Object.fromEntries(summaries),
    ...(Number(texts) > 0 && { texts: true }),
    ...(isMore && { more: true }),
  };
}

function toPathSummary({ count, sum, min, max, first, last, texts }: PathRow): PathSummary {
  const toSample = ({ at, n, value }: Sample): Sample => ({ at: Number(at), n, value: Number(value) });
  return {
    ...{ count: Number(count), sum: Number(sum), min: Number(min), max: Number(max) },
    ...{ first: toSample({ ...first, n: first.n.negate() }), last: toSample(last) },
    ...(Number(texts) > 0 && { mixed: true }),
  };
}

/** Adds the summaries of different streams. */
export function mergeSummaries(some: Summary, others: Summary): Summary {
  const names = new Set([some, others].flatMap(({ paths }) => Object.keys(paths)));
  const paths = new Map<string, PathSummary>();
  const isMore = some.more === true || others.more === true;
  for (const path of names) {
    const [own, other] = [some.paths[path], others.paths[path]];
    // it may be among the paths that were left out
    if ((own === undefined && some.more) || (other === undefined && others.more)) continue;
    // where there are no numbers at a path, nothing says whether there are texts
    const isMixed = (own ? other === undefined && others.texts : some.texts) === true;
    const merged = own && other ? mergePaths(own, other) : ((own ?? other) as PathSummary);
    paths.set(path, isMixed ? { ...merged, mixed: true } : merged);
  }
  return {
    streams: some.streams + others.streams,
    paths: Object.fromEntries(paths),
    ...((some.texts || others.texts) && { texts: true }),
    ...(isMore && { more: true }),
  };
}

function mergePaths(own: PathSummary, other: PathSummary): PathSummary {
  return {
    count: own.count + other.count,
    sum: own.sum + other.sum,
    min: Math.min(own.min, other.min),
    max: Math.max(own.max, other.max),
    // of equal times the one received last
    first:
      own.first.at < other.first.at || (own.first.at === other.first.at && isBefore(other.first, own.first))
        ? own.first
        : other.first,
    last: isBefore(own.last, other.last) ? other.last : own.last,
    ...((own.mixed || other.mixed) && { mixed: true }),
  };
}

function isBefore(own: Sample, other: Sample): boolean {
  return own.at < other.at || (own.at === other.at && Long.fromValue(own.n).compare(other.n) < 0);
}

/** Keeps as many paths as an hour has at most. */
export function limitPaths(summary: Summary, measures: readonly string[]): Summary {
  const entries = Object.entries(summary.paths);
  if (entries.length <= max_paths) return summary;
  const rankOf = (path: string) => (measures.includes(path) ? 0 : 1);
  const kept = entries.toSorted(([path], [other]) => rankOf(path) - rankOf(other)).slice(0, max_paths);
  return { ...summary, paths: Object.fromEntries(kept), more: true };
}

/** Builds the stages that summarise one target. */
function buildStages(target: number, measures: readonly string[]): object[] {
  const value = '$leaf.value';
  const isNumber = { $isNumber: value };
  const number = { $cond: [isNumber, value, null] };
  const sample = (n: unknown) => ({ $cond: [isNumber, { at: '$_id.at', n, value }, null] });
  const rank = { $cond: [{ $in: ['$_id.path', measures] }, 0, 1] };
  const members = ['count', 'sum', 'min', 'max', 'first', 'last', 'texts'];
  return [
    { $project: { leaf: buildLeaves() } },
    { $unwind: { path: '$leaf', includeArrayIndex: 'place', preserveNullAndEmptyArrays: true } },
    {
      $group: {
        _id: { at: { $subtract: ['$_id.at', { $mod: ['$_id.at', hour_s] }] }, path: '$leaf.path' },
        streams: { $sum: { $cond: [{ $lte: ['$place', 0] }, 1, 0] } },
        count: { $sum: { $cond: [isNumber, 1, 0] } },
        sum: { $sum: value },
        min: { $min: number },
        max: { $max: number },
        first: { $min: sample({ $multiply: ['$_id.n', -1] }) },
        last: { $max: sample('$_id.n') },
        texts: { $sum: { $cond: [{ $in: [{ $type: value }, ['string', 'bool']] }, 1, 0] } },
        more: { $max: '$leaf.more' },
        order: { $min: { at: '$_id.at', n: '$_id.n', place: '$place' } },
      },
    },
    { $set: { rank: { $cond: [{ $gt: ['$count', 0] }, rank, 2] } } },
    {
      $group: {
        _id: '$_id.at',
        streams: { $sum: '$streams' },
        texts: { $sum: '$texts' },
        more: { $max: '$more' },
        numeric: { $sum: { $cond: [{ $gt: ['$count', 0] }, 1, 0] } },
        paths: {
          $topN: {
            n: max_paths,
            sortBy: { rank: 1, order: 1 },
            output: { path: '$_id.path', ...Object.fromEntries(members.map((member) => [member, `$${member}`])) },
          },
        },
      },
    },
    { $set: { target } },
  ];
}

/** Types of what `first` and `last` take. */
export const scalarTypes = ['double', 'int', 'long', 'string', 'bool'];
const omission = [{ more: true }];

/** Builds the expression of the scalars in `data` with their JSON Pointers; `more` stands for what is left out. */
function buildLeaves(): object {
  const kept = { $concatArrays: [{ $slice: ['$$leaves', max_leaves] }, omission] };
  const choice = { $cond: [{ $gt: [{ $size: '$$leaves' }, max_leaves] }, kept, '$$leaves'] };
  return { $let: { vars: { leaves: buildLeavesOf('$data', '', max_levels) }, in: choice } };
}

function buildLeavesOf(value: string, path: string, levels: number): object {
  const type = { $type: value };
  const isScalar = { $in: [type, scalarTypes] };
  const leaf = [{ path, value }];
  if (levels === 0) return { $cond: [isScalar, leaf, { $cond: [{ $in: [type, ['object', 'array']] }, omission, []] }] };
  const [members, child, pointer] = [`members${levels}`, `child${levels}`, `path${levels}`];
  const vars = { [child]: '$$this.v', [pointer]: { $concat: [path, '/', escapeToken('$$this.k')] } };
  const below = { $let: { vars, in: buildLeavesOf(`$$${child}`, `$$${pointer}`, levels - 1) } };
  const first = { $slice: [`$$${members}`, max_children] };
  const read = { $reduce: { input: first, initialValue: [], in: { $concatArrays: ['$$value', below] } } };
  const rest = { $cond: [{ $gt: [{ $size: `$$${members}` }, max_children] }, omission, []] };
  const all = { $let: { vars: { [members]: listMembers(value) }, in: { $concatArrays: [read, rest] } } };
  return { $cond: [isScalar, leaf, all] };
}

/** Lists the members of an object or array as `{k, v}`, one more than are read at most of an array. */
function listMembers(value: string): object {
  const element = { k: { $toString: '$$index' }, v: { $arrayElemAt: [value, '$$index'] } };
  const indexes = { $range: [0, { $min: [{ $size: value }, max_children + 1] }] };
  const elements = { $map: { input: indexes, as: 'index', in: element } };
  const members = { $cond: [{ $eq: [{ $type: value }, 'object'] }, { $objectToArray: value }, []] };
  return { $cond: [{ $isArray: [value] }, elements, members] };
}

function escapeToken(key: string): object {
  const tildes = { $replaceAll: { input: key, find: '~', replacement: '~0' } };
  return { $replaceAll: { input: tildes, find: '/', replacement: '~1' } };
}
