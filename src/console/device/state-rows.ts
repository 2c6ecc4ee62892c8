import type { Values } from '../edit/changes.js';
import { isDeepEqual } from '../lib/compare.js';
import { joinPath, normalizePath, valueAt } from '../lib/paths.js';

/** The state of a device, as the interface shows it. */
export interface DeviceState {
  desired: Values;
  reported: Values;
  delta: Values;
  desired_version: number;
  desired_at?: number;
  reported_at?: number;
}

export interface StateRow {
  path: string;
  desired: unknown;
  reported: unknown;
  /** The device has not reported the desired value yet, or has rejected it. */
  mark: 'pending' | 'rejected' | undefined;
  reason?: string;
}

/** Compares both sides of a state, value by value. */
export function compareStates({ desired, reported: { rejected, ...reported }, delta }: DeviceState): StateRow[] {
  const reasons = isObject(rejected) ? Object.entries(rejected) : [];
  const paths = new Set([...findLeaves(desired), ...findLeaves(reported)]);
  return [...paths].sort().map((path) => {
    const row = { path, desired: valueAt(desired, path), reported: valueAt(reported, path) };
    if (valueAt(delta, path) !== undefined) return { ...row, mark: 'pending' };
    const reason = reasons.find(([name]) => `${normalizePath(path)}/`.startsWith(`${normalizePath(name)}/`))?.[1];
    return reason === undefined ? { ...row, mark: undefined } : { ...row, mark: 'rejected', reason: String(reason) };
  });
}

function findLeaves(value: unknown, keys: readonly string[] = []): string[] {
  if (!isObject(value)) return [joinPath(keys)];
  return Object.entries(value).flatMap(([key, member]) => findLeaves(member, [...keys, key]));
}

/** Creates the merge patch (RFC 7386) that turns one object into another. */
export function createMergePatch(from: Values, to: Values): Values {
  const removed = Object.keys(from)
    .filter((key) => !Object.hasOwn(to, key))
    .map((key) => [key, null] as const);
  const changed = Object.entries(to).flatMap(([key, value]) => {
    const old = Object.hasOwn(from, key) ? from[key] : undefined;
    if (isDeepEqual(old, value)) return [];
    return [[key, isObject(old) && isObject(value) ? createMergePatch(old, value) : value] as const];
  });
  return Object.fromEntries([...removed, ...changed]);
}

export function isObject(value: unknown): value is Values {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
