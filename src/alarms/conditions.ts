import type { Operator, StoredCondition } from '../resources/alarm-condition.js';
import { type DataPath, parseDataPath } from '../schema/data-path.js';

/** A condition on the last value of a path. */
export interface ValueCondition {
  kind: 'value';
  path: DataPath;
  /** Has `clear`: holds longer where it was met before. */
  isLasting: boolean;
  /** @param isMet the condition was met before, so that it ends at `clear` only */
  holds(value: unknown, isMet: boolean): boolean;
}

/** A condition that is ready to be evaluated (reference/alarms.md#conditions). */
export type Condition =
  | ValueCondition
  | { kind: 'status'; statuses: ReadonlySet<string> }
  | { kind: 'absent'; path: DataPath; seconds: number };

type Compare = (value: number, limit: number) => boolean;

const comparisons: ReadonlyMap<Operator, Compare> = new Map<Operator, Compare>([
  ['>', (value, limit) => value > limit],
  ['>=', (value, limit) => value >= limit],
  ['<', (value, limit) => value < limit],
  ['<=', (value, limit) => value <= limit],
]);

/** Prepares a stored condition. */
export function prepareCondition({ path, op, value, clear, status, absent, minutes = 0 }: StoredCondition): Condition {
  if (status !== undefined) return { kind: 'status', statuses: new Set(status) };
  if (absent !== undefined) return { kind: 'absent', path: toDataPath(absent), seconds: minutes * 60 };
  const dataPath = toDataPath(path ?? '');
  const compare = op && comparisons.get(op);
  if (compare === undefined || typeof value !== 'number') {
    const isWanted = op === '=';
    return { kind: 'value', path: dataPath, isLasting: false, holds: (last) => (last === value) === isWanted };
  }
  // a condition that is met ends when the value has reached `clear`, itself included
  const isPast: Compare = op === '>' || op === '>=' ? (last, limit) => last > limit : (last, limit) => last < limit;
  return {
    kind: 'value',
    path: dataPath,
    isLasting: clear !== undefined,
    holds(last, isMet) {
      if (typeof last !== 'number') return false;
      return isMet && clear !== undefined ? isPast(last, clear) : compare(last, value);
    },
  };
}

/** The path of a stored condition, which was checked before. */
function toDataPath(text: string): DataPath {
  return parseDataPath(text) ?? { text, steps: [{ key: text }] };
}
