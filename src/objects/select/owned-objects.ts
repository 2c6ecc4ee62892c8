import type { Id } from '../../db/ids.js';
import { findMany } from '../../db/raw-find.js';
import { isWithin, type KeyLimit } from '../../db/reach.js';
import type { Resource } from '../../schema/resource.js';
import type { OperationContext } from '../context.js';
import type { SelectOfType } from './selection.js';

/**
 * Finds the objects of a type that an object beside the limit owns; what concerns the limited part stays (reference/access.md#limited-keys).
 * The type has few objects in an account.
 */
export async function findOwnedBeside({ store, account, limit }: OperationContext, owned: Resource): Promise<Id[]> {
  if (limit === undefined) return [];
  const projection = { parent: 1, ...Object.fromEntries(owned.owners.map((field) => [field, 1])) };
  const objects = store.db.collection(owned.plural);
  const stored = await findMany(objects, { account, parent: { $exists: true } }, { projection });
  const place = await store.loader(limit.plural).node(limit._id);
  const above = new Set((place?.ancestors ?? []).map(String));
  const areBeside = await Promise.all(
    stored.map(async ({ parent, ...names }) => {
      const field = owned.owners.find((name) => names[name] !== undefined);
      if (field === undefined || above.has(String(parent))) return false;
      const plural = owned.parentCollections[field] ?? '';
      const owner = await store.loader(plural).node(parent as Id);
      return owner === undefined || !isWithin(limit as KeyLimit, plural, owner);
    }),
  );
  return stored.filter((_, index) => areBeside[index]).map(({ _id }) => _id as Id);
}

/** Leaves them out of the lists of a type. */
export function createOwnedSelection(owned: Resource): SelectOfType {
  return async (ctx) => {
    const beside = await findOwnedBeside(ctx, owned);
    return { filters: beside.length === 0 ? [] : [{ _id: { $nin: beside } }] };
  };
}
