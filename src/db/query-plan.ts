import type { Values } from '../schema/fields.js';
import type { Listed } from '../schema/resource.js';
import type { ListRequest } from '../schema/validation.js';
import { type Index, indexesOf, isUnique, listedTypes, sortPaths } from './indexes.js';

/** How the database is asked for a list. */
export interface Plan {
  filter: Record<string, unknown>;
  sort: Record<string, 1 | -1>;
  /** The index to take, where there is one made for it; else the database chooses. */
  hint?: Index['key'];
  /** Where `hint` finds what matches in another order: the index of the whole list in the right one. */
  walk?: Index['key'];
}

const indexes = new Map(
  listedTypes.map((listed) => [listed.plural, indexesOf(listed).filter(({ key }) => 'account' in key)]),
);

/**
 * The query of a list request. Almost every index begins with the account, and the database would try them all, each as
 * far as the page: so it is told where one is known to fit, and the time does not depend on what it has tried before.
 * @param within narrows the list to the children of a parent: `{field: identifier}`
 */
export function planOf(listed: Listed, account: string, request: ListRequest, within: Values = {}): Plan {
  const { key, direction } = request.sort;
  const conditions: Values = { ...within, ...request.filter };
  const fixed = Object.keys(conditions).filter((path) => isValue(conditions[path]));
  // one object needs no order
  const order = isUnique(listed, fixed) ? [] : sortPaths(listed, key);
  return {
    filter: { $and: [{ account, ...within }, request.filter] },
    sort: Object.fromEntries(order.map((path) => [path, direction])),
    ...indexesFor(listed, Object.keys(conditions), ['account', ...fixed], order),
  };
}

/** The index that holds just the paths of the conditions and then the sort: in its order, or to sort within it. */
function indexesFor(
  listed: Listed,
  paths: readonly string[],
  fixed: readonly string[],
  order: readonly string[],
): Pick<Plan, 'hint' | 'walk'> {
  const free = (keys: readonly string[]) => keys.filter((path) => !fixed.includes(path));
  const fitting = (indexes.get(listed.plural) ?? []).filter(({ key, partialFilterExpression = {} }) => {
    const [, ...keys] = Object.keys(key);
    const begins = keys.length >= paths.length && keys.slice(0, paths.length).every((path) => paths.includes(path));
    return begins && Object.keys(partialFilterExpression).every((path) => paths.includes(path));
  });
  const wanted = free(order);
  const sorted = fitting.find(({ key }) => wanted.every((path, at) => free(Object.keys(key))[at] === path));
  if (sorted !== undefined) return { hint: sorted.key };
  if (paths.length === 0) {
    // what has to be read whole is read in the order in which it lies
    const created = fitting.find(({ key }) => Object.keys(key)[1] === 'created_at');
    return created === undefined ? {} : { hint: created.key };
  }
  const holding = fitting.find(({ key }) => wanted.every((path) => path in key));
  if (holding === undefined) return {};
  const { hint: walk } = indexesFor(listed, [], ['account'], order);
  return { hint: holding.key, ...(walk && { walk }) };
}

/** Whether a condition leaves one value. */
function isValue(condition: unknown): boolean {
  if (typeof condition !== 'object' || condition === null) return true;
  const [operator, ...more] = Object.keys(condition);
  return operator === '$eq' && more.length === 0;
}
