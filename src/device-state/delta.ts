import { type PathStep, parseDataPath } from '../schema/data-path.js';
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

/** The member of both sides that has the configuration files, by name. */
export const configsMember = 'configs';

/** Reads the version of a file of one side; of a reported number its JSON text. */
export function configVersionOf(configs: unknown, name: string): unknown {
  const version = memberOf(memberOf(configs, name), 'version');
  return typeof version === 'number' ? JSON.stringify(version) : version;
}

/** The part of `desired` that the device has not reported, and not rejected (reference/device-state.md#delta). */
export function buildDelta(desired: Values, reported: Values): Values {
  const delta = differenceOf(desired, reported);
  removeReportedConfigs(delta, desired, reported);
  const rejected = reported.rejected;
  for (const path of isPlainObject(rejected) ? Object.keys(rejected) : []) {
    const steps = parseDataPath(path)?.steps;
    if (steps !== undefined) removeAt(delta, steps);
  }
  return delta;
}

/** The leaves of `desired` that `reported` does not equal; arrays are leaves, empty objects are not. */
function differenceOf(desired: Values, reported: unknown): Values {
  const difference = Object.create(null) as Values;
  for (const [key, value] of Object.entries(desired)) {
    const other = memberOf(reported, key);
    if (isPlainObject(value)) {
      const below = differenceOf(value, other);
      if (Object.keys(below).length > 0) difference[key] = below;
    } else if (!isJsonEqual(value, other)) difference[key] = value;
  }
  return difference;
}

/** A configuration file is reported by its version alone. */
function removeReportedConfigs(delta: Values, desired: Values, reported: Values): void {
  const configs = memberOf(desired, configsMember);
  if (!isPlainObject(configs)) return;
  const reportedConfigs = memberOf(reported, configsMember);
  for (const name of Object.keys(configs))
    if (configVersionOf(reportedConfigs, name) === configVersionOf(configs, name))
      removeAt(delta, [{ key: configsMember }, { key: name }]);
}

/** Removes the value at a path, and the objects that it leaves empty. */
function removeAt(object: Values, [step, ...rest]: readonly PathStep[]): void {
  if (step === undefined || !Object.hasOwn(object, step.key)) return;
  const { key } = step;
  const value = object[key];
  if (rest.length === 0) delete object[key];
  else if (isPlainObject(value)) {
    removeAt(value, rest);
    if (Object.keys(value).length === 0) delete object[key];
  }
}
