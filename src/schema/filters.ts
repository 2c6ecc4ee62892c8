import type { FieldErrors } from '../errors.js';
import { identifierText } from './fields/text.js';
import { type AncestorLevel, type FieldType, type Values, withDocumentation } from './fields.js';

/** `{path: {operator: scalar}}`: the only shape in which values of a client reach a database query. */
export type Conditions = Record<string, Record<string, unknown>>;

/** The index that serves a filter (docs/indexes.md). */
export interface FilterIndex {
  /** Stored paths that the filter compares; none: it needs no index of its own. */
  paths: readonly string[];
  /** Further keys, for queries other than this filter. */
  trailingPaths?: readonly string[];
  /** Also serves lists sorted by the first path. */
  sorted?: boolean;
  /** A 2dsphere index. */
  geo?: true;
  /** Every object is compared: the index begins with the list's order, so that a page is read without sorting. */
  scanned?: true;
  /** Partial index of the objects whose first path is greater than this. */
  partialAbove?: number;
}

/** The values by which objects are counted (reference/lists.md#counts). */
export interface Grouping {
  /** Name of the values. */
  name: string;
  /** Stored paths that the expression reads. */
  paths: readonly string[];
  /** Expression of the database for the value of an object, null without one. @param now epoch seconds */
  buildExpression(now: number): unknown;
  /** The expression yields the internal id of an object of this collection, which stands for its identifier. */
  plural?: string;
  /** Every object has a value. */
  isTotal?: boolean;
  /** All values, with conditions of which each object meets one. @param now epoch seconds */
  partition?(now: number): ReadonlyMap<string, Conditions>;
}

/** One filter of a list: its query parameters, and the conditions made from them. */
export interface Filter {
  params: Readonly<Record<string, FieldType>>;
  /** Called with all validated parameters if at least one belongs to this filter. `now` in epoch seconds. */
  conditions(values: Values, now: number): Conditions;
  index: FilterIndex;
  /** Objects can also be counted by what the filter compares. */
  grouping?: Grouping;
  /** Checks the parameters against each other. */
  check?(values: Values, faults: FieldErrors): void;
}

/**
 * An exact filter. Ranged types also take `_from` and `_to`, bounds included (reference/lists.md#ranges).
 * @param sorted the index also serves lists sorted by `path`; on by default for ranged types
 */
export function defineFilter(
  param: string,
  path: string,
  type: FieldType,
  { sorted = type.ranged === true } = {},
): Filter {
  const index = { paths: [path], sorted };
  const exact = withDocumentation(type, { about: 'Only with exactly this value.' });
  if (type.ranged !== true) {
    return {
      params: { [param]: exact },
      index,
      conditions: (values) => ({ [path]: { $eq: values[param] } }),
      grouping: { name: param, paths: [path], buildExpression: () => ({ $ifNull: [`$${path}`, null] }) },
    };
  }
  const [from, to] = [`${param}_from`, `${param}_to`];
  return {
    params: {
      [param]: exact,
      [from]: withDocumentation(type, { about: `Only from this ${param} on, itself included; not after ${to}.` }),
      [to]: withDocumentation(type, { about: `Only up to this ${param}, itself included.` }),
    },
    index,
    conditions: (values) => ({
      [path]: {
        ...(values[param] !== undefined && { $eq: values[param] }),
        ...(values[from] !== undefined && { $gte: values[from] }),
        ...(values[to] !== undefined && { $lte: values[to] }),
      },
    }),
    check: (values, faults) => {
      if (Number(values[from]) > Number(values[to])) faults[from] = `must not be after ${to}`;
    },
  };
}

/**
 * Filters of everything below an object, at any level (reference/lists.md#filters), which share one index. Of two parents an
 * object has one: it need not be below the lowest level.
 */
export function defineAncestorFilters(ancestors: readonly AncestorLevel[], parents: number): Filter[] {
  const about = 'Only what is anywhere below this object.';
  return ancestors.map(({ field, plural }, level) => ({
    params: { [field]: withDocumentation(identifierText(), { about, example: 'north@demo', references: plural }) },
    index: { paths: ['ancestors'] },
    conditions: () => ({}),
    grouping: {
      name: field,
      paths: ['ancestors'],
      buildExpression: () => ({ $ifNull: [{ $arrayElemAt: ['$ancestors', level] }, null] }),
      plural,
      isTotal: level <= ancestors.length - parents,
    },
  }));
}

/** Reports whether a condition matches exactly one value. */
export function isEquality(condition: unknown): boolean {
  if (typeof condition !== 'object' || condition === null) return true;
  const [operator, ...more] = Object.keys(condition);
  // of several objects above, one has the range of the index that is read
  return (operator === '$eq' || operator === '$all') && more.length === 0;
}

/** Joins filters that must all hold. The first condition on a path stays at the top, where indexes are chosen. */
export function joinFilters(filters: readonly Readonly<Record<string, unknown>>[]): Record<string, unknown> {
  const joined: Record<string, unknown> = {};
  const rest: unknown[] = [];
  for (const filter of filters)
    for (const [path, condition] of Object.entries(filter)) {
      if (path === '$and') rest.push(...(condition as unknown[]));
      else if (path.startsWith('$') || path in joined) rest.push({ [path]: condition });
      else joined[path] = condition;
    }
  return rest.length === 0 ? joined : { ...joined, $and: rest };
}

const operators: Readonly<Record<string, (value: unknown, operand: unknown) => boolean>> = {
  $eq: (value, operand) => value === operand,
  $in: (value, operand) => Array.isArray(operand) && operand.includes(value),
  $gte: (value, operand) => Number(value) >= Number(operand),
  $lte: (value, operand) => Number(value) <= Number(operand),
};

/** Applies the conditions of a list to a document in memory. @throws Error for an operator other than the above */
export function isMatch(conditions: Readonly<Record<string, unknown>>, document: Values): boolean {
  return Object.entries(conditions).every(([path, condition]) => {
    if (path === '$and') return (condition as Conditions[]).every((part) => isMatch(part, document));
    if (path === '$or') return (condition as Conditions[]).some((part) => isMatch(part, document));
    return Object.entries(condition as Values).every(([operator, operand]) => {
      const isHolding = operators[operator];
      if (isHolding === undefined) throw new Error(`${operator} is not supported in memory`);
      return isHolding(document[path], operand);
    });
  });
}
