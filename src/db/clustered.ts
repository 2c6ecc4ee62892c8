import mongoose, { type mongo } from 'mongoose';
import { splitIntoBatches } from '../lib/batches.js';
import type { Values } from '../schema/fields.js';
import { isEquality } from '../schema/filters.js';
import type { ListRequest } from '../schema/list-parameters.js';
import type { ListedType } from '../schema/resource.js';
import type { Collection } from './database.js';
import { retryOnce } from './driver-errors.js';
import { sortPaths } from './indexes.js';
import { findOne, runPipeline } from './raw-find.js';

const { MaxKey } = mongoose.mongo;

/** Members of an id of a clustered collection, or the first ones, in their order. */
export interface ClusterKey {
  account: string;
  [member: string]: unknown;
}

export interface ClusteredDocument {
  _id: ClusterKey;
  [path: string]: unknown;
}

/** Bounds of ids: MongoDB reads a clustered collection between the two only if they stand at the top of a query. */
export interface IdBounds {
  $gte: ClusterKey;
  $lt: ClusterKey;
}

/** Builds the bounds of the ids that begin with these members; `next` is the one behind them. */
export function buildBounds(members: ClusterKey, next: string): IdBounds {
  return { $gte: members, $lt: { ...members, [next]: new MaxKey() } };
}

/** Plans the query of a list of a clustered collection: conditions on its first members bound what is read. */
export function planClustered(
  listed: ListedType,
  clusteredBy: readonly string[],
  account: string,
  { filter, sort: { key, direction } }: Pick<ListRequest, 'filter' | 'sort'>,
  within: Values = {},
): { filter: Values; sort: Record<string, 1 | -1> } {
  const { bounds, rest, fixed } = boundBy(clusteredBy, account, { ...within, ...filter });
  const order = sortPaths(listed, key).filter((path) => !fixed.includes(path));
  const inOrder = clusteredBy.map((member) => `_id.${member}`).filter((path) => !fixed.includes(path));
  const isInOrder = order.every((path, index) => path === inOrder[index]);
  return {
    filter: { _id: bounds, ...rest },
    sort: Object.fromEntries((isInOrder ? ['_id'] : order).map((path) => [path, direction])),
  };
}

/** Moves conditions on the first members of an id to its bounds. `fixed`: the paths of which there is one value. */
function boundBy(clusteredBy: readonly string[], account: string, conditions: Values) {
  const members = clusteredBy.slice(1);
  const rest = { ...conditions };
  const prefix: ClusterKey = { account };
  const fixed = ['_id.account'];
  for (const [index, member] of members.entries()) {
    const path = `_id.${member}`;
    const condition = rest[path];
    const next = members[index + 1] ?? '';
    if (condition === undefined) return { bounds: buildBounds(prefix, member), rest, fixed };
    if (!isEquality(condition)) {
      const { $eq, $gte = $eq, $lte = $eq, ...others } = condition as Values;
      const lower = $gte === undefined ? prefix : { ...prefix, [member]: $gte };
      const upper = { ...prefix, [member]: $lte ?? new MaxKey(), [next]: new MaxKey() };
      if ($eq === undefined && Object.keys(others).length === 0) delete rest[path];
      return { bounds: { $gte: lower, $lt: upper }, rest, fixed };
    }
    delete rest[path];
    fixed.push(path);
    prefix[member] = typeof condition === 'object' ? (condition as Values).$eq : condition;
  }
  return { bounds: buildBounds(prefix, ''), rest, fixed };
}

export type RangeCondition = Values & { _id: IdBounds };

/** Ranges that one stage of an aggregation reads. */
const max_ranges = 250;

/**
 * Builds a pipeline that reads several ranges, each through the same stages. MongoDB would read the whole collection for `$or`
 * and `$in`.
 * @param stages or what builds them for the range at a place
 */
export function readRanges(
  collection: string,
  ranges: readonly RangeCondition[],
  stages: readonly object[] | ((index: number) => readonly object[]) = [],
): mongo.Document[] {
  if (ranges.length === 0) return [{ $match: { $alwaysFalse: 1 } }];
  const stagesOf = typeof stages === 'function' ? stages : () => stages;
  const pipelines = ranges.map(($match, index) => [{ $match }, ...stagesOf(index)]);
  return unite(collection, pipelines);
}

/** Nests unions, as a pipeline has at most 1,000 stages. */
function unite(collection: string, pipelines: readonly mongo.Document[][]): mongo.Document[] {
  const [first = [], ...others] = pipelines;
  if (pipelines.length <= max_ranges)
    return [...first, ...others.map((pipeline) => ({ $unionWith: { coll: collection, pipeline } }))];
  const united = [...splitIntoBatches(pipelines, max_ranges)].map((batch) => unite(collection, batch));
  return unite(collection, united);
}

/** Finds the ranges that hold a document, each with another `parent`. */
export async function findOccupied(
  collection: Collection<ClusteredDocument>,
  ranges: readonly RangeCondition[],
): Promise<RangeCondition[]> {
  if (ranges.length === 0) return [];
  const first = [{ $limit: 1 }, { $project: { _id: 0, parent: 1 } }];
  const pipeline = readRanges(collection.collectionName, ranges, first);
  const documents = await runPipeline(collection, pipeline);
  const parents = new Set(documents.map(({ parent }) => String(parent)));
  return ranges.filter(({ parent }) => parents.has(String(parent)));
}

const chunk_size = 5000;

/**
 * Deletes what matches in a range, in pieces, so that no command outlasts its time limit.
 * @param mayGoOn asked after each piece but the last @param beforePiece runs before a piece is deleted
 * @returns the number of deleted documents
 */
export async function deleteRange(
  collection: Collection<ClusteredDocument>,
  condition: RangeCondition,
  mayGoOn: () => Promise<boolean> = async () => true,
  beforePiece: (piece: RangeCondition) => Promise<void> = async () => undefined,
): Promise<number> {
  let count = 0;
  let bounds = condition._id;
  for (;;) {
    const options = { projection: { _id: 1 }, sort: { _id: 1 }, skip: chunk_size } as const;
    const next = await findOne(collection, { ...condition, _id: bounds }, options);
    const piece = next === undefined ? bounds : { ...bounds, $lt: next._id };
    await beforePiece({ ...condition, _id: piece });
    count += (await retryOnce(() => collection.deleteMany({ ...condition, _id: piece }))).deletedCount;
    if (next === undefined || !(await mayGoOn())) return count;
    bounds = { ...bounds, $gte: next._id };
  }
}
