import { read_limit_ms } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { collections } from '../db/indexes.js';
import { AppError } from '../errors.js';
import type { ListedType, Resource } from '../schema/resource.js';
import type { OperationContext } from './context.js';

/** Objects whose children one query counts. */
const max_parents = 10_000;

interface FoundObject {
  _id: Id;
  id: string;
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
  const root = await store.loader(resource.plural).idOf(account, id);
  if (root === undefined) throw new AppError('notFound');
  const found = new Map<string, FoundObject[]>([[resource.plural, [{ _id: root, id }]]]);
  const counts: Record<string, number> = { [resource.name]: 1 };
  // parents come before their children
  for (const listed of collections) {
    const hasChildren = collections.some(({ parentCollections }) =>
      Object.values(parentCollections).includes(listed.plural),
    );
    let count = counts[listed.name] ?? 0;
    for (const [field, parent] of Object.entries(listed.parentCollections)) {
      const parents = found.get(parent) ?? [];
      for (let from = 0; from < parents.length; from += max_parents) {
        const filter = childrenOf(account, field, parents.slice(from, from + max_parents));
        if (!hasChildren) {
          count += await store.db.collection(listed.plural).countDocuments(filter, { maxTimeMS: read_limit_ms });
          continue;
        }
        const children = await findChildren(ctx, listed, filter);
        found.set(listed.plural, [...(found.get(listed.plural) ?? []), ...children]);
        count += children.length;
      }
    }
    if (count > 0) counts[listed.name] = count;
  }
  return counts;
}

/** The children of objects; those of an earlier object with the same identifier have another parent. */
function childrenOf(account: string, field: string, parents: readonly FoundObject[]): object {
  return {
    account,
    [field]: { $in: parents.map(({ id }) => id) },
    parent: { $in: parents.map(({ _id }) => _id) },
  };
}

async function findChildren(
  { store }: OperationContext,
  { plural }: ListedType,
  filter: object,
): Promise<FoundObject[]> {
  const options = { projection: { id_developer: 1 }, maxTimeMS: read_limit_ms };
  const found = await store.db.collection(plural).find(filter, options).toArray();
  return found.map(({ _id, id_developer }) => ({ _id, id: String(id_developer) }));
}
