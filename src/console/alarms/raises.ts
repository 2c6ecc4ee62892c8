import { compareNumbers } from '../lib/conditions.js';

/** The extremes of the values of one bucket; none where there were no numbers. */
export interface Extremes {
  at: number;
  min?: number;
  max?: number;
}

/** A rule with one limit. */
export interface LimitRule {
  op: string;
  value: number;
  /** The value at which the condition ends. */
  clear: number;
  for_s: number;
}

/** Counts how often a rule would have been raised, by buckets of `every_s` seconds in order of time. */
export function countRaises(
  buckets: readonly Extremes[],
  { op, value, clear, for_s }: LimitRule,
  every_s: number,
): number {
  const isAbove = op.startsWith('>');
  let count = 0;
  let began_at: number | undefined;
  let isRaised = false;
  for (const { at, min, max } of buckets) {
    if (min === undefined || max === undefined) continue;
    const [farthest, nearest] = isAbove ? [max, min] : [min, max];
    if (began_at === undefined && compareNumbers(farthest, op, value)) began_at = at;
    if (began_at === undefined) continue;
    const hasEnded = !compareNumbers(nearest, op, clear);
    const hasLasted = hasEnded ? for_s === 0 : at + every_s - began_at >= for_s;
    if (!isRaised && hasLasted) count++;
    isRaised ||= hasLasted;
    if (!hasEnded) continue;
    began_at = undefined;
    isRaised = false;
  }
  return count;
}
