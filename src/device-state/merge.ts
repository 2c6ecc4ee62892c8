import { isPlainObject } from '../schema/fields/object.js';
import type { Values } from '../schema/fields.js';

/** Applies a merge patch (RFC 7386); clients choose the keys, so the result has no prototype. */
export function mergePatch(target: unknown, patch: Values): Values {
  const merged = Object.assign(Object.create(null) as Values, isPlainObject(target) ? target : {});
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete merged[key];
    else merged[key] = isPlainObject(value) ? mergePatch(memberOf(merged, key), value) : value;
  }
  return merged;
}

/** Returns an own member of an object, undefined of anything else. */
export function memberOf(value: unknown, key: string): unknown {
  return isPlainObject(value) && Object.hasOwn(value, key) ? value[key] : undefined;
}

/** Compares JSON values; the order of keys does not count. */
export function isJsonEqual(value: unknown, other: unknown): boolean {
  if (Array.isArray(value) || Array.isArray(other)) {
    if (!Array.isArray(value) || !Array.isArray(other) || value.length !== other.length) return false;
    return value.every((item, index) => isJsonEqual(item, other[index]));
  }
  if (!isPlainObject(value) || !isPlainObject(other)) return value === other;
  const keys = Object.keys(value);
  if (keys.length !== Object.keys(other).length) return false;
  return keys.every((key) => Object.hasOwn(other, key) && isJsonEqual(value[key], other[key]));
}
