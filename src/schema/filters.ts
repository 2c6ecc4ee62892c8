import type { FieldErrors } from '../errors.js';
import type { FieldType, Values } from './fields.js';

/** `{path: {operator: scalar}}`: the only shape in which a client's values reach a query. */
export type Conditions = Record<string, Record<string, unknown>>;

/** The index that serves a filter (docs/indexes.md), by the stored paths that the filter compares. */
export interface FilterIndex {
  paths: readonly string[];
  /** Held besides, for more than this filter. */
  trailingPaths?: readonly string[];
  /** Lists sorted by the path need it, too. */
  sorted?: boolean;
  /** Of places on the earth. */
  geo?: true;
  /** Holds only objects whose first path is above this. */
  partialAbove?: number;
}

/** One filter of a list: the query parameters it takes and the conditions they mean. */
export interface Filter {
  params: Readonly<Record<string, FieldType>>;
  /** `given` holds the validated parameters; called if there is at least one of this filter. `now` in epoch seconds. */
  conditions(given: Values, now: number): Conditions;
  index: FilterIndex;
  /** What the parameters say together. */
  check?(given: Values, faults: FieldErrors): void;
}

/**
 * An exact filter; ranged kinds also take `_from` and `_to`, bounds included, and all that is given holds (contract 6).
 * @param sorted whether lists are often sorted by it, as by times
 */
export function fieldFilter(
  param: string,
  path: string,
  kind: FieldType,
  { sorted = kind.ranged === true } = {},
): Filter {
  const index = { paths: [path], sorted };
  if (kind.ranged !== true) {
    return { params: { [param]: kind }, index, conditions: (given) => ({ [path]: { $eq: given[param] } }) };
  }
  const [from, to] = [`${param}_from`, `${param}_to`];
  return {
    params: { [param]: kind, [from]: kind, [to]: kind },
    index,
    conditions: (given) => ({
      [path]: {
        ...(given[param] !== undefined && { $eq: given[param] }),
        ...(given[from] !== undefined && { $gte: given[from] }),
        ...(given[to] !== undefined && { $lte: given[to] }),
      },
    }),
    check: (given, faults) => {
      if (Number(given[from]) > Number(given[to])) faults[from] = `must not be after ${to}`;
    },
  };
}

/** All conditions hold: those on one path are merged, and what they cannot share goes into `$and`. */
export function mergeConditions(parts: readonly Conditions[]): Record<string, unknown> {
  const merged: Conditions = {};
  const rest: Conditions[] = [];
  for (const part of parts) {
    for (const [path, operators] of Object.entries(part)) {
      const present = merged[path];
      if (present === undefined) merged[path] = { ...operators };
      else if (Object.keys(operators).some((operator) => operator in present)) rest.push({ [path]: operators });
      else Object.assign(present, operators);
    }
  }
  return rest.length === 0 ? merged : { ...merged, $and: rest };
}
