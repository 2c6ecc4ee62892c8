import type { StoredNode } from '../../db/batching/loader.js';
import { readRanges } from '../../db/clustered.js';
import { read_limit_ms, type StoredObject } from '../../db/database.js';
import { ancestorIndexOf } from '../../db/indexes.js';
import { findMany, runPipeline } from '../../db/raw-find.js';
import { AppError } from '../../errors.js';
import { splitIntoBatches } from '../../lib/batches.js';
import { resources } from '../../resources/index.js';
import type { Resource } from '../../schema/resource.js';
import type { OperationContext } from '../context.js';
import { assertRemovable } from '../resources.js';
import { assertUnprotected } from './references.js';
import { buildLeafRanges, type Leaf, leavesOf, type NodeRef } from './removed-nodes.js';

/** Objects whose leaves one query counts. */
const max_parents = 10_000;

/** Finds the objects of a type below another one, at any level. */
export async function findBelow({ store }: OperationContext, type: Resource, { account, _id }: StoredNode) {
  const options = { projection: { id_developer: 1 }, hint: ancestorIndexOf(type) };
  const objects = store.db.collection<StoredObject>(type.plural);
  const below = await findMany(objects, { account, ancestors: _id }, options);
  return below.map((document) => ({ _id: document._id, id: document.id_developer }));
}

/**
 * Counts an object and everything below it by type, as its deletion would remove them; types without any are left out.
 * @throws AppError notFound (4041)
 */
export async function countTree(
  ctx: OperationContext,
  resource: Resource,
  id: string,
): Promise<Record<string, number>> {
  const root = await ctx.store.loader(resource.plural).locate(ctx, id);
  if (root === undefined) throw new AppError('notFound');
  assertRemovable(ctx, resource, root._id);
  await assertUnprotected(ctx, resource.plural, [id]);
  const counts = new Map([[resource.name, 1]]);
  await countLeaves(ctx, resource, [{ _id: root._id, id }], counts);
  for (const type of resources) {
    if (!type.ancestors.some(({ plural }) => plural === resource.plural)) continue;
    const below = await findBelow(ctx, type, root);
    counts.set(type.name, below.length);
    await countLeaves(ctx, type, below, counts);
  }
  return Object.fromEntries([...counts].filter(([, count]) => count > 0));
}

async function countLeaves(
  ctx: OperationContext,
  { plural: above }: Resource,
  objects: readonly NodeRef[],
  counts: Map<string, number>,
): Promise<void> {
  for (const leaf of leavesOf(above)) {
    if (leaf.isDerived === true) continue;
    // keys are hidden from limited ones
    if (ctx.limit !== undefined && leaf.field !== 'device') continue;
    let count = counts.get(leaf.name) ?? 0;
    for (const parents of splitIntoBatches(objects, max_parents)) count += await countLeavesOf(ctx, leaf, parents);
    counts.set(leaf.name, count);
  }
}

async function countLeavesOf(
  { store: { db }, account }: OperationContext,
  { plural, field, clusteredBy }: Leaf,
  parents: readonly NodeRef[],
): Promise<number> {
  if (clusteredBy !== undefined) {
    const ranges = buildLeafRanges(account, clusteredBy, parents);
    const pipeline = readRanges(plural, ranges, [{ $count: 'count' }]);
    const rows = await runPipeline<{ count: number }>(db.collection(plural), pipeline);
    return rows.reduce((sum, { count }) => sum + count, 0);
  }
  // another object may have had the identifier before
  const parent = { $in: parents.map(({ _id }) => _id) };
  const filter = { account, [field]: { $in: parents.map(({ id }) => id) }, parent };
  return db.collection(plural).countDocuments(filter, { maxTimeMS: read_limit_ms });
}
