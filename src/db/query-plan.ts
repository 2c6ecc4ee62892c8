import type { Values } from '../schema/fields.js';
import type { ListedType } from '../schema/resource.js';
import type { ListRequest } from '../schema/validation.js';
import { collections, deriveIndexes, type Index, isUnique, sortPaths } from './indexes.js';

/** How the database is asked for a list. */
export interface QueryPlan {
  filter: Record<string, unknown>;
  sort: Record<string, 1 | -1>;
  /** The index to take, where there is one made for it; else the database chooses. */
  hint?: Index['key'];
  /** Where `hint` finds what matches in another order: the index of the whole list in the right one. */
  scanIndex?: Index['key'];
}

const indexes = new Map(
  collections.map((listed) => [listed.plural, deriveIndexes(listed).filter(({ key }) => 'account' in key)]),
);

/**
 * The query of a list request. Almost every index begins with the account, and the database would try them all, each as
 * far as the page: so it is told where one is known to fit, and the time does not depend on what it has tried before.
 * @param within narrows the list to the children of a parent: `{field: identifier}`
 */
export function planQuery(listed: ListedType, account: string, request: ListRequest, within: Values = {}): QueryPlan {
  const { key, direction } = request.sort;
  const conditions: Values = { ...within, ...request.filter };
  const equalityPaths = Object.keys(conditions).filter((path) => isEquality(conditions[path]));
  // one object needs no order
  const order = isUnique(listed, equalityPaths) ? [] : sortPaths(listed, key);
  return {
    filter: { $and: [{ account, ...within }, request.filter] },
    sort: Object.fromEntries(order.map((path) => [path, direction])),
    ...indexesFor(listed, Object.keys(conditions), ['account', ...equalityPaths], order),
  };
}

/** The index that holds just the paths of the conditions and then the sort: in its order, or to sort within it. */
function indexesFor(
  listed: ListedType,
  paths: readonly string[],
  fixed: readonly string[],
  order: readonly string[],
): Pick<QueryPlan, 'hint' | 'scanIndex'> {
  const free = (keys: readonly string[]) => keys.filter((path) => !fixed.includes(path));
  const candidates = (indexes.get(listed.plural) ?? []).filter(({ key, partialFilterExpression = {} }) => {
    const [, ...keys] = Object.keys(key);
    const begins = keys.length >= paths.length && keys.slice(0, paths.length).every((path) => paths.includes(path));
    return begins && Object.keys(partialFilterExpression).every((path) => paths.includes(path));
  });
  const wanted = free(order);
  const sorted = candidates.find(({ key }) => wanted.every((path, at) => free(Object.keys(key))[at] === path));
  if (sorted !== undefined) return { hint: sorted.key };
  if (paths.length === 0) {
    // what has to be read whole is read in the order in which it lies
    const created = candidates.find(({ key }) => Object.keys(key)[1] === 'created_at');
    return created === undefined ? {} : { hint: created.key };
  }
  const coveringIndex = candidates.find(({ key }) => wanted.every((path) => path in key));
  if (coveringIndex === undefined) return {};
  const { hint: walk } = indexesFor(listed, [], ['account'], order);
  return { hint: coveringIndex.key, ...(walk && { scanIndex: walk }) };
}

/** Whether a condition leaves one value. */
function isEquality(condition: unknown): boolean {
  if (typeof condition !== 'object' || condition === null) return true;
  const [operator, ...more] = Object.keys(condition);
  return operator === '$eq' && more.length === 0;
}
