import type { FieldType, Values } from '../fields.js';
import { max_object_values } from '../json.js';
import { isPlainObject } from './object.js';
import { withoutNul } from './text.js';

/**
 * Any JSON object, stored and returned as given (reference/identifiers.md#free-form-objects): up to `keys` keys of at
 * most 100 characters, `levels` levels of nesting with the object itself as the first, and 5,000 values in all.
 */
export function freeform({ levels, keys = 100 }: { levels: number; keys?: number }): FieldType {
  return {
    body: (value, path, faults) => {
      const fault = isPlainObject(value) ? objectFault(value, levels, keys) : 'must be an object';
      if (fault !== undefined) faults[path] = fault;
      return value;
    },
    stored: 'freeform',
    schema: {
      type: 'object',
      description: `Any JSON object of up to ${keys} keys with at most 100 characters each, ${levels} levels deep, ${max_object_values} values in all; kept as given, never interpreted. Texts hold no NUL. Numbers are doubles: write integers beyond 2^53 as text.`,
      maxProperties: keys,
      propertyNames: { maxLength: 100, pattern: withoutNul },
      additionalProperties: true,
    },
    responseSchema: { type: 'object', additionalProperties: true },
  };
}

function objectFault(value: Values, levels: number, keys: number): string | undefined {
  const names = Object.keys(value);
  if (names.length > keys) return `must not have more than ${keys} keys`;
  if (names.some((key) => key.length > 100 && [...key].length > 100)) return 'must have keys of at most 100 characters';
  if (countValues(value, max_object_values) > max_object_values) {
    return `must not have more than ${max_object_values} JSON values`;
  }
  return valueFault(value, levels);
}

/** Counts a value and those in it, until there are more than `limit`. */
function countValues(value: unknown, limit: number): number {
  let count = 1;
  if (typeof value !== 'object' || value === null) return count;
  for (const member of Object.values(value)) {
    count += countValues(member, limit - count);
    if (count > limit) break;
  }
  return count;
}

function valueFault(value: unknown, levels: number): string | undefined {
  if (typeof value === 'string') {
    return value.includes('\0') || !value.isWellFormed() ? 'must hold well-formed text without NUL' : undefined;
  }
  if (typeof value === 'number') return Number.isFinite(value) ? undefined : 'must hold numbers a double can hold';
  if (typeof value !== 'object' || value === null) return undefined;
  if (levels === 0) return 'must not be nested deeper';
  for (const key of Object.keys(value)) {
    const fault = valueFault(key, 0) ?? valueFault((value as Values)[key], levels - 1);
    if (fault !== undefined) return fault;
  }
  return undefined;
}
