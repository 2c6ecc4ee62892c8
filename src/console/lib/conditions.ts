import { valueAt } from './paths.js';

/** A condition of an alarm rule; in a form it may be incomplete. */
export type Condition = Readonly<Record<string, unknown>>;

/** Describes a condition of an alarm rule in a few words, such as "bar > 8". */
export function describeCondition({ path, op, value, clear, status, absent, minutes }: Condition): string {
  if (Array.isArray(status)) return `status is ${status.join(' or ')}`;
  if (absent !== undefined) return `no ${absent} for ${minutes} min`;
  const end = clear === undefined ? '' : `, until ${clear}`;
  return `${path} ${op} ${typeof value === 'string' ? JSON.stringify(value) : value}${end}`;
}

/** Fields of a device and the data of its last stream, absent if it has sent none. */
export interface Judged {
  status: string;
  created_at: number;
  /** Receipt of the last stream. */
  last_stream_at?: number;
  latest?: { data: unknown };
}

type Compare = (value: number, limit: number) => boolean;

const comparisons: Readonly<Record<string, Compare>> = {
  '>': (value, limit) => value > limit,
  '>=': (value, limit) => value >= limit,
  '<': (value, limit) => value < limit,
  '<=': (value, limit) => value <= limit,
};

/** Compares a value with a limit; undefined if there is no such comparison. */
export function compareNumbers(value: number, op: string, limit: number): boolean | undefined {
  return comparisons[op]?.(value, limit);
}

/** Reports whether a condition holds; undefined where it depends on earlier streams. */
export function judge(
  { path, op, value, status, absent, minutes }: Condition,
  device: Judged,
  now_s: number,
): boolean | undefined {
  if (Array.isArray(status)) return status.includes(device.status);
  const last = valueAt(device.latest?.data, String(absent ?? path));
  if (absent !== undefined) {
    if (now_s - (device.last_stream_at ?? device.created_at) >= Number(minutes) * 60) return true;
    return last === undefined ? undefined : false;
  }
  if (device.latest === undefined) return false;
  if (last === undefined) return undefined;
  const compare = comparisons[String(op)];
  if (compare === undefined) return op === '=' || op === '!=' ? (last === value) === (op === '=') : undefined;
  return typeof last === 'number' && typeof value === 'number' && compare(last, value);
}

/** Reports whether a condition of a form has all that it needs, with a comparison that there is. */
export function isComplete({ path, op, value, status, absent, minutes }: Condition): boolean {
  if (Array.isArray(status)) return status.length > 0;
  if (absent !== undefined) return absent !== '' && Number(minutes) > 0;
  const isKnown = op === '=' || op === '!=' || Object.hasOwn(comparisons, String(op));
  return typeof path === 'string' && path !== '' && isKnown && value !== undefined && value !== null;
}

/** Combines conditions: with `any` one has to hold, else all. */
export function combine(results: readonly (boolean | undefined)[], match: unknown): boolean | undefined {
  const deciding = match === 'any';
  if (results.includes(deciding)) return deciding;
  return results.includes(undefined) ? undefined : !deciding;
}
