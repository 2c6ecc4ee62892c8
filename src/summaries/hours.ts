import mongoose, { type mongo } from 'mongoose';
import { buildBounds, type ClusterKey, type RangeCondition } from '../db/clustered.js';
import type { Collection, DatabaseAccess } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { streamsummary } from '../resources/index.js';

const { Double } = mongoose.mongo;

export const hour_s = 3600;
/** Hours are summarised this long after their end. */
export const delay_s = 600;
/** Streams that come later than this after the end of their hour mark it: the rest of `delay_s` is for storing them. */
export const late_s = 300;
/** A marked hour is summarised again after this time, in which its streams are stored or deleted. */
export const settle_s = 60;

/** A number of a stream; `n` orders those of the same time by receipt. */
export interface Sample {
  at: number;
  n: mongo.Long;
  value: number;
}

/** The numbers at one path. */
export interface PathSummary {
  count: number;
  sum: number;
  min: number;
  max: number;
  first: Sample;
  last: Sample;
  /** There are texts or booleans too. */
  mixed?: true;
}

export interface Summary {
  /** Number of data streams. */
  streams: number;
  /** By JSON Pointer. */
  paths: Record<string, PathSummary>;
  /** There are texts or booleans. */
  texts?: true;
  /** There may be numbers at further paths. */
  more?: true;
}

export interface HourKey extends ClusterKey {
  device: string;
  /** Beginning of the hour in epoch seconds. */
  at: mongo.Double;
  /** Internal id of the device: another one may have had the identifier before. */
  parent: Id;
}

export const emptySummary: Summary = { streams: 0, paths: {} };

/** A stored hour: the sum of `base` and of the streams that are stored, unless it is marked. */
export interface HourDocument extends Partial<Summary> {
  _id: HourKey;
  parent: Id;
  /** Streams that retention has removed. */
  base?: Summary;
  /** Differs after every mark: the streams have changed, or may be about to. */
  mark?: Id;
  /** When a marked hour is summarised again, in epoch seconds. */
  due_at?: number;
  /** Set while the hour is marked. */
  account?: string;
}

/** An hour of a device. */
export interface Hour {
  account: string;
  device: string;
  parent: Id;
  at: number;
}

/** All hours before `until` are summarised: one without a document has no stream. */
export interface SummaryProgress {
  _id: 'streams';
  until?: number;
  /** The hours before this one are being summarised, of devices in the order of their ids. */
  next?: number;
  /** The last device that is done. */
  after?: Id;
}

/** Returns the beginning of the hour of a time. */
export function roundToHour(at: number): number {
  return Math.floor(at / hour_s) * hour_s;
}

/** The stored hours. */
export function summariesOf(db: DatabaseAccess): Collection<HourDocument> {
  return db.collection<HourDocument>(streamsummary.plural);
}

/** The progress of the job, one document. */
export const progressOf = (db: DatabaseAccess): Collection<SummaryProgress> =>
  db.collection<SummaryProgress>('stream_summary_progress');

/** Builds the id of a stored hour. */
export function buildHourKey({ account, device, parent, at }: Hour): HourKey {
  return { account, device, at: new Double(at), parent };
}

/** Builds the conditions on the streams, or the summaries, of a device in a span without its end; absent: unbounded. */
export function buildSpanRange(
  { account, device, parent }: Omit<Hour, 'at'>,
  { from, to }: { from?: number | undefined; to?: number | undefined },
): RangeCondition {
  const key = { account, device };
  const all = buildBounds(key, 'at');
  return {
    _id: {
      $gte: from === undefined ? all.$gte : { ...key, at: new Double(from) },
      $lt: to === undefined ? all.$lt : { ...key, at: new Double(to) },
    },
    parent,
  };
}
