import type { Stream } from '../api/interface.js';
import type { Measure } from '../api/resources.js';
import { formatNumber } from '../lib/format.js';
import { normalizePath } from '../lib/paths.js';
import { findNumberPaths } from './series.js';

/** A chart: the paths that have one unit, or a single path whose unit is unknown. */
export interface Plot {
  key: string;
  unit: string;
  paths: string[];
}

/** Looks up the measure of a path, or makes one that has its path as name. */
export function findMeasure(measures: readonly Measure[], path: string): Measure & { name: string } {
  const measure = measures.find((known) => normalizePath(known.path) === normalizePath(path));
  return { name: path, ...measure, path };
}

/** The paths of numbers in the last streams: those of measures in their order, then the others by name. */
export function findPaths(streams: readonly Pick<Stream, 'data'>[], measures: readonly Measure[]): string[] {
  const paths = [...new Set(streams.flatMap(({ data }) => findNumberPaths(data)))].sort();
  const rankOf = (path: string) => {
    const rank = measures.findIndex((measure) => normalizePath(measure.path) === normalizePath(path));
    return rank < 0 ? measures.length : rank;
  };
  return paths.sort((left, right) => rankOf(left) - rankOf(right));
}

/** Puts paths of one unit into one chart. */
export function groupByUnit(paths: readonly string[], measures: readonly Measure[]): Plot[] {
  const unitOf = (path: string) => findMeasure(measures, path).unit ?? '';
  const keyOf = (path: string) => (unitOf(path) === '' ? `path ${path}` : `unit ${unitOf(path)}`);
  return [...new Set(paths.map(keyOf))].map((key) => {
    const together = paths.filter((path) => keyOf(path) === key);
    return { key, unit: unitOf(together[0] ?? ''), paths: together };
  });
}

/** Formats a value with the decimals and the unit of its measure. */
export function formatMeasured(value: unknown, { unit, decimals }: Omit<Measure, 'path'>): string {
  if (typeof value !== 'number') return typeof value === 'string' ? value : JSON.stringify(value);
  const text = formatNumber(value, decimals);
  return unit ? `${text} ${unit}` : text;
}

const min_counter_values = 8;
const min_rising_part = 0.75;

/** Reports whether values, the newest first, only count up, as uptimes and numbers of messages do. */
export function isCounter(values: readonly number[]): boolean {
  if (values.length < min_counter_values || !values.every(Number.isInteger)) return false;
  const steps = values.slice(1).map((older, index) => (values[index] ?? 0) - older);
  const rising = steps.filter((step) => step > 0).length;
  return steps.every((step) => step >= 0) && rising >= steps.length * min_rising_part;
}
