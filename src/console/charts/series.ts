import type { SeriesMetadata } from '../api/interface.js';
import type { ListAnswer } from '../api/resources.js';
import { findScalars } from '../lib/paths.js';

/** One bucket of a series. */
export interface Bucket {
  at: number;
  count: number;
  [path: string]: number | { avg?: number; min?: number; max?: number };
}

export type Series = ListAnswer<Bucket> & { metadata: SeriesMetadata };

/** A series takes so many paths at once. */
export const max_paths = 10;

/** Finds the paths of numbers in data, as a series names them. */
export function findNumberPaths(data: unknown): string[] {
  return findScalars(data).flatMap(({ path, value }) => (typeof value === 'number' ? [path] : []));
}

const chart_points = 300;
const day_s = 86_400;
/** Lengths of buckets by the calendar, with the shortest span that is shown so. */
const calendar = [
  { every: 'day', length_s: day_s, from_s: 60 * day_s },
  { every: 'week', length_s: 7 * day_s, from_s: 1000 * day_s },
  { every: 'month', length_s: 31 * day_s, from_s: 5000 * day_s },
];

/** The buckets for a chart of a span: days, weeks or months of the time zone, or as many as it has room for. */
export function bucketsOf(length_s: number, time_zone: string): Readonly<Record<string, string | number>> {
  const unit = calendar.findLast(({ from_s }) => length_s >= from_s);
  return unit ? { every: unit.every, time_zone } : { points: chart_points };
}

/** The longest bucket of a series in seconds. */
export function lengthOf(every: unknown): number {
  return calendar.find((unit) => unit.every === every)?.length_s ?? Number(every);
}
