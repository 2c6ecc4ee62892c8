import { createFieldErrors, type FieldErrors } from '../errors.js';
import { type DataPath, formatPointer } from './data-path.js';
import { number } from './fields/number.js';
import { checkText, max_path_length, parseSinglePath } from './fields/text.js';
import type { Query } from './query.js';

/** A path in a member of objects, as a parameter names it (reference/lists.md#paths). */
export interface NamedPath {
  member: string;
  path: DataPath;
  /** The path as a JSON Pointer, by which spellings of one path are equal. */
  pointer: string;
  /** The parameter as it was written. */
  param: string;
}

/** A comparison of the value at a path: `properties.room=A 1`. */
export interface PathCondition extends NamedPath {
  /** The text of an exact comparison, or the bound of a range. */
  operand: { exact: string } | { from: number } | { to: number };
  /** The path that is meant if the suffix of the parameter belongs to a key. */
  literal?: DataPath | undefined;
}

/** Different paths in a request, those of the saved filter that it names included. */
export const max_paths = 3;
const max_text_length = 4000;
const bound = number();

/** Suffixes of parameters, by which values at a path are compared. */
export const suffixes = ['_from', '_to', '_eq'] as const;

/** Reports whether a parameter names a path in one of the members. */
export function isPathParameter(members: readonly string[], param: string): boolean {
  return members.some((member) => param.startsWith(`${member}.`));
}

/** Parses the parameters that name paths; what is wrong is added to `faults`. */
export function parsePathFilters(members: readonly string[], query: Query, faults: FieldErrors): PathCondition[] {
  const conditions: PathCondition[] = [];
  const seen = new Set<string>();
  for (const [param, value] of query) {
    if (seen.has(param)) faults[param] = 'must be given once';
    else if (value === '') faults[param] = 'must not be empty';
    else {
      const condition = parseCondition(members, param, value, faults);
      if (condition !== undefined) conditions.push(condition);
    }
    seen.add(param);
  }
  checkRanges(conditions, faults);
  if (countPaths(conditions) > max_paths) faults[conditions.at(-1)?.param ?? ''] ??= tooManyPaths;
  return conditions;
}

/** The fault of a request with too many paths. */
export const tooManyPaths = `must not be one of more than ${max_paths} paths`;

/** Parses a value of `sort` that names a path in one of the members. @returns undefined if it names none */
export function parsePathSort(members: readonly string[], value: string): NamedPath | undefined {
  const member = members.find((name) => value.startsWith(`${name}.`));
  const path = member === undefined ? undefined : parsePath(value.slice(member.length + 1));
  return member === undefined || path === undefined
    ? undefined
    : { member, path, pointer: formatPointer(path), param: 'sort' };
}

/** Counts the different paths of conditions. */
export function countPaths(conditions: readonly Pick<NamedPath, 'member' | 'pointer'>[]): number {
  return new Set(conditions.map(({ member, pointer }) => `${member} ${pointer}`)).size;
}

function parseCondition(
  members: readonly string[],
  param: string,
  value: string,
  faults: FieldErrors,
): PathCondition | undefined {
  const member = members.find((name) => param.startsWith(`${name}.`)) ?? '';
  const named = param.slice(member.length + 1);
  const suffix = suffixes.find((ending) => named.endsWith(ending)) ?? '';
  const path = parsePath(suffix === '' ? named : named.slice(0, -suffix.length));
  if (path === undefined) {
    faults[param] = 'must name keys joined by dots, or a JSON Pointer';
    return undefined;
  }
  const literal = suffix === '' ? undefined : parsePath(named);
  const shared = { member, path, pointer: formatPointer(path), param, literal };
  if (suffix === '' || suffix === '_eq') {
    const fault = checkText(value, 1, max_text_length);
    if (fault !== undefined) faults[param] = fault;
    return { ...shared, operand: { exact: value } };
  }
  const limit = bound.query?.(value, param, createFieldErrors());
  if (typeof limit !== 'number') {
    faults[param] = `must be a number as a bound of ${member}.${path.text}; ${param}_eq compares the path ${param}`;
    return undefined;
  }
  return { ...shared, operand: suffix === '_from' ? { from: limit } : { to: limit } };
}

function parsePath(text: string): DataPath | undefined {
  if (checkText(text, 1, max_path_length) !== undefined) return undefined;
  // `at` and `count` are reserved where paths are members beside them
  return text === 'at' || text === 'count' ? { text, steps: [{ key: text }] } : parseSinglePath(text);
}

function checkRanges(conditions: readonly PathCondition[], faults: FieldErrors): void {
  for (const { operand: lower, param, member, pointer } of conditions) {
    if (!('from' in lower)) continue;
    const isEmpty = conditions.some(
      ({ operand, ...other }) =>
        'to' in operand && other.member === member && other.pointer === pointer && operand.to < lower.from,
    );
    if (isEmpty) faults[param] ??= `must not be after ${param.slice(0, -'_from'.length)}_to`;
  }
}

/** The values that the text of an exact comparison stands for (reference/lists.md#paths). */
export function readExact(text: string): (string | number | boolean)[] {
  const asNumber = bound.query?.(text, '', createFieldErrors());
  return [
    ...(typeof asNumber === 'number' ? [asNumber] : []),
    text,
    ...(text === 'true' || text === 'false' ? [text === 'true'] : []),
  ];
}
