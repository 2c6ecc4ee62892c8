import { z } from 'zod';
import { parseTime } from '../../lib/rfc3339.js';
import type { FieldType, Schema } from '../fields.js';
import { checkWith } from './text.js';

const booleanWords: ReadonlyMap<string, boolean> = new Map([
  ['0', false],
  ['1', true],
  ['true', true],
  ['false', false],
]);

/** 0, 1, true or false; stored and shown as a boolean (reference/identifiers.md#booleans). */
export function flag(): FieldType {
  const error = 'must be 0, 1, true or false';
  const json = z.union([z.boolean(), z.literal(0), z.literal(1)], { error }).transform(Boolean);
  return {
    body: checkWith(json),
    query: (text, path, faults) => {
      const value = booleanWords.get(text);
      if (value === undefined) faults[path] = error;
      return value;
    },
    stored: 'boolean',
    schema: { type: 'boolean', description: 'Takes `1` and `0` too.' },
    responseSchema: { type: 'boolean' },
  };
}

interface NumberRange {
  min?: number;
  max?: number;
}

const decimalText = /^-?\d{1,400}(\.\d{1,400})?([eE][+-]?\d{1,3})?$/;
const integerText = /^-?\d{1,16}$/;

function numberType(range: NumberRange, isInteger: boolean): FieldType {
  const { min = -Number.MAX_VALUE, max = Number.MAX_VALUE } = range;
  const error = `must be ${isInteger ? 'an integer' : 'a number'}${describeRange(range)}`;
  const base = z.number({ error }).min(min, { error }).max(max, { error });
  const body = checkWith(isInteger ? base.refine(Number.isSafeInteger, { error }) : base);
  const pattern = isInteger ? integerText : decimalText;
  return {
    body,
    // z.coerce would read '' as 0 and '0x10' as 16
    query: (text, path, faults) => body(pattern.test(text) ? Number(text) : Number.NaN, path, faults),
    stored: 'number',
    schema: {
      ...(isInteger ? { type: 'integer', format: 'int64' } : { type: 'number', format: 'double' }),
      ...(range.min !== undefined && { minimum: range.min }),
      ...(range.max !== undefined && { maximum: range.max }),
    },
  };
}

function describeRange({ min, max }: NumberRange): string {
  if (min === undefined) return '';
  return max === undefined ? ` of at least ${min}` : ` from ${min} to ${max}`;
}

/** An integer that a double represents exactly, within `range` (bounds included). */
export function integer(range: NumberRange = {}): FieldType {
  return numberType({ max: Number.MAX_SAFE_INTEGER, ...range }, true);
}

/** A finite number within `range` (bounds included). */
export function number(range: NumberRange = {}): FieldType {
  return numberType(range, false);
}

/** Documents a schema of times. */
const timeKeywords: Schema = {
  description: 'Seconds since 1970-01-01 UTC.',
  'x-unit': 'seconds since 1970',
  examples: [1700000000],
};

/** The fault of what is no time. */
export const notTime = 'must be in seconds since 1970, up to 1000000000000, or RFC 3339 with an offset';

/** Epoch seconds; filtered by range too, then also as RFC 3339 (reference/identifiers.md#times). */
export function timestamp(): FieldType {
  const type = numberType({ min: 0, max: 1e12 }, false);
  const schema = { ...type.schema, ...timeKeywords };
  return {
    ...type,
    ranged: true,
    query: (text, path, faults) => {
      // a `+` that is not encoded arrives as a space
      const seconds = parseTime(text.replace(/ (?=\d\d:\d\d$)/, '+'));
      const value = type.query?.(String(seconds ?? text), path, faults);
      if (path in faults) faults[path] = notTime;
      return value;
    },
    schema,
    querySchema: { ...schema, description: `${timeKeywords.description} Also taken as RFC 3339 with an offset.` },
    responseSchema: schema,
  };
}

/** Epoch seconds that only the service writes: integers without an upper bound, filtered like other times. */
export function recordedTime(): FieldType {
  return { ...timestamp(), responseSchema: { type: 'integer', format: 'int64', minimum: 0, ...timeKeywords } };
}
