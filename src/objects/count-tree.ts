import type { StoredNode } from '../db/batching/loader.js';
import { read_limit_ms, type StoredObject } from '../db/database.js';
import { ancestorIndexOf } from '../db/indexes.js';
import { AppError } from '../errors.js';
import { device, resources } from '../resources/index.js';
import type { Resource } from '../schema/resource.js';
import type { OperationContext } from './context.js';
import { leavesOf } from './removed-nodes.js';

/** Objects whose leaves one query counts. */
const max_parents = 10_000;

/** Finds the devices below an object, at any level. */
export async function findDevicesBelow({ store }: OperationContext, { account, _id }: StoredNode) {
  const options = { projection: { id_developer: 1 }, maxTimeMS: read_limit_ms, hint: ancestorIndexOf(device) };
  const devices = store.db.collection<StoredObject>(device.plural);
  const below = await devices.find({ account, ancestors: _id }, options).toArray();
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
  const { store, account } = ctx;
  const { db } = store;
  const root = await store.loader(resource.plural).locate(account, id);
  if (root === undefined) throw new AppError('notFound');
  const counts: Record<string, number> = { [resource.name]: 1 };
  for (const type of resources) {
    if (!type.ancestors.some(({ plural }) => plural === resource.plural)) continue;
    const options = { maxTimeMS: read_limit_ms, hint: ancestorIndexOf(type) };
    counts[type.name] = await db.collection(type.plural).countDocuments({ account, ancestors: root._id }, options);
  }
  // of the types with ancestors only devices have leaves
  const isAboveDevices = device.ancestors.some(({ plural }) => plural === resource.plural);
  const parents = isAboveDevices ? await findDevicesBelow(ctx, root) : [{ _id: root._id, id }];
  for (const { name, plural, field } of leavesOf(isAboveDevices ? device.plural : resource.plural)) {
    let count = 0;
    for (let from = 0; from < parents.length; from += max_parents) {
      const piece = parents.slice(from, from + max_parents);
      // another device may have had the identifier before
      const parent = { $in: piece.map(({ _id }) => _id) };
      const filter = { account, [field]: { $in: piece.map((each) => each.id) }, parent };
      count += await db.collection(plural).countDocuments(filter, { maxTimeMS: read_limit_ms });
    }
    counts[name] = count;
  }
  return Object.fromEntries(Object.entries(counts).filter(([, count]) => count > 0));
}
