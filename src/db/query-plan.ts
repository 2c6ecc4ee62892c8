import { collections } from '../resources/index.js';
import type { Values } from '../schema/fields.js';
import { isEquality } from '../schema/filters.js';
import type { ListRequest } from '../schema/list-parameters.js';
import type { ListedType } from '../schema/resource.js';
import type { CountScope } from './cached-counts.js';
import { planClustered } from './clustered.js';
import type { Id } from './ids.js';
import { deriveFilterIndex, deriveIndexes, findNearestParent, type Index, isUnique, sortPaths } from './indexes.js';
import { buildBelowCondition, isPlaced, limitFilter, type Reach } from './reach.js';

/** Query, order and index of a list. */
export interface QueryPlan {
  filter: Record<string, unknown>;
  sort: Record<string, 1 | -1>;
  /** The index to use; absent: the database chooses. */
  hint?: Index['key'];
  /** If `hint` does not yield the list's order: an index of the whole list in that order. */
  scanIndex?: Index['key'];
  /** Instead of `hint`, if no index has all conditions: indexes of a part of them, for each its part. */
  candidates?: readonly IndexCandidate[];
  /** The conditions, if all are equalities, so that their total can be cached. */
  scope?: CountScope;
}

/** An index that serves some conditions of a list. */
export interface IndexCandidate {
  hint: Index['key'];
  conditions: CountScope;
  /** All conditions are equalities. */
  isExact: boolean;
}

/** The part of a request that decides its query. */
type SelectingRequest = Pick<ListRequest, 'filter' | 'sort' | 'params'>;

const indexes = new Map(
  collections.map((type) => [type.plural, deriveIndexes(type).filter(({ key }) => 'account' in key)]),
);

/**
 * Plans the query of a list. Almost every index begins with the account, so the query planner would trial every
 * candidate index; a hint avoids the trial and makes the time predictable.
 * @param within narrows the list to the children of a parent: `{field: identifier}`
 * @throws AppError forbidden (4031) for a type that limited keys may not see
 */
export function planQuery(listed: ListedType, reach: Reach, request: SelectingRequest, within: Values = {}): QueryPlan {
  const { account, limit } = reach;
  const { sort } = request;
  const filter = limitFilter(limit, listed, request, within);
  if (listed.clusteredBy !== undefined)
    return planClustered(listed, listed.clusteredBy, account, { filter, sort }, within);
  // one object at most, or conditions that no hint fits
  if (limit !== undefined && isPlaced(listed.plural) && '_id' in filter)
    return { filter: { $and: [{ account }, within, filter] }, sort: {}, hint: { _id: 1 } };
  // all that is below the nearest parent are its children
  const nearest = findNearestParent(listed);
  const isBelow = 'ancestors' in filter && Object.keys(within).every((field) => field === nearest);
  const place = isBelow ? { account } : { account, ...within };
  const { ancestors: _, ...others } = filter;
  // children of a parent are in its index, whatever else is above them
  const conditions: Values = isBelow ? filter : { ...within, ...others };
  const equalityPaths = pathsOf(conditions).filter((path) => isEquality(conditions[path]));
  // at most one object matches
  const order = isUnique(listed, equalityPaths) ? [] : sortPaths(listed, sort.key);
  const chosen = chooseIndexes(listed, pathsOf(conditions), ['account', ...equalityPaths], order);
  return {
    filter: Object.keys(filter).length === 0 ? place : { $and: [place, filter] },
    sort: Object.fromEntries(order.map((path) => [path, sort.direction])),
    ...chosen,
    ...(chosen.hint === undefined && planCandidates(listed, reach, conditions, { key: sort.key, order })),
    ...buildScope(listed, place, filter),
  };
}

/** Plans a list whose conditions no index has together. The database chooses for sorts of unlimited operations. */
function planCandidates(
  listed: ListedType,
  { account, limit }: Reach,
  conditions: Values,
  { key, order }: { key: string; order: readonly string[] },
): Pick<QueryPlan, 'candidates' | 'scanIndex'> {
  if (key === listed.defaultSort) return { candidates: findCandidates(listed, account, conditions) };
  if (limit === undefined) return {};
  const { hint: walk } = indexesFor(listed, [], ['account'], order);
  return { candidates: findCandidates(listed, account, conditions), ...(walk && { scanIndex: walk }) };
}

/** Finds an index for each condition; of one that several begin with, an index of most conditions. */
function findCandidates(listed: ListedType, account: string, conditions: Values): IndexCandidate[] {
  const candidates = new Map<string, IndexCandidate>();
  // most circles have few devices, which no other index finds sooner
  if ('location' in conditions) return [];
  for (const { key, partialFilterExpression = {} } of indexes.get(listed.plural) ?? []) {
    const [, ...keys] = Object.keys(key);
    const end = keys.findIndex((path) => !(path in conditions));
    const narrowed = keys.slice(0, end);
    const [first] = narrowed;
    const isHeld = Object.entries(partialFilterExpression).every(
      ([path, part]) =>
        narrowed.includes(path) && ('$exists' in (part as object) || '$gt' in (conditions[path] as object)),
    );
    if (first === undefined || !isHeld || candidates.has(first)) continue;
    const parts = narrowed.map((path) => [path, firstOfAll(conditions[path])]);
    const isExact = narrowed.every((path) => isEquality(conditions[path]));
    candidates.set(first, { hint: key, conditions: { account, ...Object.fromEntries(parts) }, isExact });
  }
  return [...candidates.values()];
}

/** Returns the condition that an index narrows: of several objects above, the first one. */
function firstOfAll(condition: unknown): unknown {
  const { $all } = (condition ?? {}) as { $all?: readonly Id[] };
  return $all === undefined ? condition : buildBelowCondition($all.slice(0, 1));
}

function buildScope(listed: ListedType, place: CountScope, filter: Values): Pick<QueryPlan, 'scope'> {
  // children of one object (streams, configs) change too fast, and what limits divide by itself as well
  if (listed.parentField !== undefined || typeof listed.forLimited === 'function') return {};
  const isCountable = Object.entries(filter).every(
    ([path, condition]) => /^[^$.]+$/.test(path) && !(path in place) && isEquality(condition),
  );
  return isCountable ? { scope: { ...place, ...filter } } : {};
}

/** Reports whether nothing but the account is compared. */
export function isWholeList({ filter }: Pick<QueryPlan, 'filter'>): boolean {
  return Object.keys(filter).join() === 'account';
}

/** The paths that conditions compare at the top; other operators narrow no index. */
function pathsOf(conditions: Values): string[] {
  return Object.keys(conditions).filter((path) => !path.startsWith('$'));
}

/** Finds an index that has all paths, so that all objects of an account are counted by its entries alone. */
export function findCovering(listed: ListedType, paths: readonly string[]): Index | undefined {
  return (indexes.get(listed.plural) ?? []).find(({ key, partialFilterExpression = {} }) => {
    const isComplete = paths.length === 1 || Object.keys(partialFilterExpression).length === 0;
    // an index of an array does not hold its order
    return isComplete && paths.every((path) => path in key && path !== 'ancestors') && !('location' in key);
  });
}

/** Chooses the index by the conditions that an index narrows; one that compares every object decides only if it is alone. */
function chooseIndexes(
  listed: ListedType,
  paths: readonly string[],
  fixed: readonly string[],
  order: readonly string[],
): Pick<QueryPlan, 'hint' | 'scanIndex'> {
  const scanned = listed.filters.find(({ index }) => index.scanned === true && paths.includes(index.paths[0] ?? ''));
  if (scanned === undefined) return indexesFor(listed, paths, fixed, order);
  const narrowing = paths.filter((path) => !scanned.index.paths.includes(path));
  if (narrowing.length > 0) return indexesFor(listed, narrowing, fixed, order);
  return { hint: deriveFilterIndex(listed, scanned).key };
}

/** Finds an index that begins with the conditions and continues with the sort, or at least contains its paths. */
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
    // a full scan is cheapest in insertion order
    const created = candidates.find(({ key }) => Object.keys(key)[1] === 'created_at');
    return created === undefined ? {} : { hint: created.key };
  }
  const coveringIndex = candidates.find(({ key }) => wanted.every((path) => path in key));
  if (coveringIndex === undefined) return {};
  const { hint: walk } = indexesFor(listed, [], ['account'], order);
  return { hint: coveringIndex.key, ...(walk && { scanIndex: walk }) };
}
