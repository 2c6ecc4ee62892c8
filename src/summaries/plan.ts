import { type RangeCondition, readRanges } from '../db/clustered.js';
import type { Database } from '../db/database.js';
import { keyOfId } from '../db/ids.js';
import { findOne, runPipeline } from '../db/raw-find.js';
import { groupBy } from '../lib/group-by.js';
import { streamsummary } from '../resources/index.js';
import { type DataPath, formatPointer } from '../schema/data-path.js';
import { buildSpanRange, type Hour, type HourDocument, hour_s, progressOf, roundToHour, summariesOf } from './hours.js';

type Device = Omit<Hour, 'at'>;

/** A span whose streams are read, without its end; absent: to the end of the series. */
export interface StreamSpan extends Device {
  from: number;
  to?: number;
}

/** Parts of a series: the streams and the summaries that it is computed from, each once. */
export interface SummaryPlan {
  streams: readonly StreamSpan[];
  /** Stages that read summaries; none if there are none to read. */
  hours: readonly object[];
  /** Ranges of hours whose streams are read, for those that retention has removed. */
  removed: readonly RangeCondition[];
}

interface SeriesNeeds {
  paths: readonly DataPath[];
  /** `first` or `last` is wanted, which take texts and booleans too. */
  needsScalars: boolean;
  /** Epoch seconds, bounds included. */
  at_from: number;
  at_to: number;
  /** Hours that lie in two buckets. */
  divided: ReadonlySet<number>;
}

/** Devices of a series, as their ranges are read one after the other. */
const max_devices = 5000;
/** Devices of which each has a range of its own: a union of more costs more than their index. */
const max_ranges = 20;
/** Spans whose streams are read, in all: of more the whole span is. */
const max_spans = 2000;

/**
 * Plans a series whose buckets begin at hours: hours that are over come from their summaries, unless they are marked or do not
 * have what is asked for (docs/decisions/0035-summaries-of-hours.md). @returns undefined where streams are all that there is
 */
export async function planSeries(
  db: Database,
  devices: readonly Device[],
  needs: SeriesNeeds,
): Promise<SummaryPlan | undefined> {
  if (devices.length === 0 || devices.length > max_devices || !needs.paths.every(isSummarized)) return undefined;
  const { at_from, at_to, divided } = needs;
  const { until = 0 } = (await findOne(progressOf(db), { _id: 'streams' })) ?? {};
  const span = { from: Math.ceil(at_from / hour_s) * hour_s, to: Math.min(roundToHour(at_to), until) };
  if (span.from >= span.to) return undefined;
  const unfit = await findUnfit(db, readHours(devices, span), needs);
  const split = [...divided].filter((at) => at >= span.from && at < span.to);
  const parts = devices.map((device) => {
    const own = unfit.get(keyOfId(device.parent)) ?? [];
    const gaps = new Set([...split, ...own.map(({ at }) => at)]);
    const removed = new Set([...split, ...own.filter(({ hasBase }) => hasBase).map(({ at }) => at)]);
    const hours = [...removed].map((at) => buildHour(device, at));
    const isWhole = devices.length > max_ranges && gaps.size === 0;
    return { ...splitSpan(device, { ...span, at_from }, gaps), device, isWhole, removed: hours };
  });
  const whole = parts.filter(({ isWhole }) => isWhole);
  const ranges = parts.filter(({ isWhole }) => !isWhole).flatMap(({ hours }) => hours);
  const ofRanges = readRanges(streamsummary.plural, ranges);
  const ofWhole = selectHours(
    whole.map(({ device }) => device),
    span,
  );
  const plan = {
    streams: parts.flatMap(({ streams }) => streams),
    hours:
      whole.length === 0
        ? ofRanges
        : [{ $match: ofWhole }, { $unionWith: { coll: streamsummary.plural, pipeline: ofRanges } }],
    removed: parts.flatMap(({ removed }) => removed),
  };
  if (plan.streams.length > max_spans + devices.length)
    return {
      streams: devices.map((device) => ({ ...device, from: at_from })),
      hours: [],
      removed: devices.map((device) => buildSpanRange(device, span)),
    };
  return ranges.length + whole.length + plan.removed.length === 0 ? undefined : plan;
}

interface HourSpan {
  from: number;
  to: number;
}

/** Builds the condition on the summaries of many devices, found by an index. */
function selectHours(devices: readonly Device[], { from, to }: HourSpan): object {
  return { '_id.parent': { $in: devices.map(({ parent }) => parent) }, '_id.at': { $gte: from, $lt: to } };
}

/** Builds the pipeline that reads the summaries of devices, through further stages. */
function readHours(devices: readonly Device[], span: HourSpan): (stages: readonly object[]) => object[] {
  if (devices.length > max_ranges) return (stages) => [{ $match: selectHours(devices, span) }, ...stages];
  const ranges = devices.map((device) => buildSpanRange(device, span));
  return (stages) => readRanges(streamsummary.plural, ranges, stages);
}

const indexToken = /^(?:0|[1-9][0-9]{0,8})$/;

/** Summaries do not distinguish elements of arrays, to which only pointers lead, from members called as their indexes. */
function isSummarized({ steps }: DataPath): boolean {
  return steps.every(({ key, index }) => index !== undefined || !indexToken.test(key));
}

const buildHour = (device: Device, at: number) => buildSpanRange(device, { from: at, to: at + hour_s });

/** An hour whose summary cannot answer. */
interface UnfitHour {
  at: number;
  hasBase: boolean;
}

/** Finds hours that are marked, or whose summaries do not have what is asked for, by device. */
async function findUnfit(
  db: Database,
  readAll: (stages: readonly object[]) => object[],
  { paths, needsScalars }: SeriesNeeds,
): Promise<ReadonlyMap<string, UnfitHour[]>> {
  const faults = paths.map((path) => {
    const own = readSummaryPath(path);
    const mixed = { $getField: { field: 'mixed', input: own } };
    if (needsScalars) return { $cond: [{ $gt: [own, null] }, mixed, { $or: ['$texts', '$more'] }] };
    return { $and: [{ $lte: [own, null] }, '$more'] };
  });
  const pipeline = readAll([
    { $match: { $expr: { $or: [{ $gt: ['$due_at', null] }, ...faults] } } },
    { $project: { parent: 1, hasBase: { $gt: ['$base', null] } } },
  ]);
  const found = await runPipeline<HourDocument & Pick<UnfitHour, 'hasBase'>>(summariesOf(db), pipeline);
  const unfit = groupBy(found, ({ parent }) => keyOfId(parent));
  return new Map(
    [...unfit].map(([key, hours]) => [key, hours.map(({ _id, hasBase }) => ({ at: Number(_id.at), hasBase }))]),
  );
}

/** Builds the expression of the numbers at a path of a summary. */
export function readSummaryPath(path: DataPath): object {
  return { $getField: { field: { $literal: formatPointer(path) }, input: '$paths' } };
}

/** Splits the span of a device into hours that its summaries answer and spans whose streams are read. */
function splitSpan(
  device: Device,
  { at_from, from, to }: { at_from: number; from: number; to: number },
  gaps: ReadonlySet<number>,
): { streams: StreamSpan[]; hours: RangeCondition[] } {
  const streams: StreamSpan[] = [];
  const hours: RangeCondition[] = [];
  let [unread, next] = [at_from, from];
  for (const gap of [...[...gaps].toSorted((first, second) => first - second), to]) {
    if (gap > next) {
      if (next > unread) streams.push({ ...device, from: unread, to: next });
      hours.push(buildSpanRange(device, { from: next, to: gap }));
      unread = gap;
    }
    next = gap + hour_s;
  }
  return { streams: [...streams, { ...device, from: unread }], hours };
}
