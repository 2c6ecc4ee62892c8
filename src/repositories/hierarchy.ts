import { type Database, read_limit_ms } from '../db/database.js';
import { collectionOf, device, parentFieldOf, resources } from '../resources/index.js';
import type { OperationContext } from './context.js';

/** A resource of the hierarchy: `field` is the reference that names it (`id_group`), `id` its identifier. */
export interface AncestorRef {
  account: string;
  field: string;
  id: string;
}

/** An ancestor to look up, with the key of the reference that the climb to it started from. */
interface Climb {
  ref: AncestorRef;
  origin: string;
}

const keyOf = ({ account, field, id }: AncestorRef) => `${account} ${field} ${id}`;

/**
 * Finds which of many resources are enabled together with all their ancestors. One query per level and type, not one per
 * resource. @returns a predicate for the given references
 */
export async function findEnabled(db: Database, refs: readonly AncestorRef[]): Promise<(ref: AncestorRef) => boolean> {
  const enabled = new Set(refs.map(keyOf));
  let level: Climb[] = [...new Map(refs.map((ref) => [keyOf(ref), { ref, origin: keyOf(ref) }])).values()];
  while (level.length > 0) {
    const nextLevel: Climb[] = [];
    for (const field of new Set(level.map(({ ref }) => ref.field))) {
      const climbs = level.filter(({ ref }) => ref.field === field);
      const parentField = parentFieldOf.get(collectionOf.get(field) ?? '');
      const found = await findByKey(
        db,
        field,
        climbs.map(({ ref }) => ref),
      );
      for (const { ref, origin } of climbs) {
        const ancestor = found.get(keyOf(ref));
        if (ancestor?.enabled !== true) enabled.delete(origin);
        else if (parentField !== undefined)
          nextLevel.push({ ref: { ...ref, field: parentField, id: String(ancestor[parentField]) }, origin });
      }
    }
    level = nextLevel;
  }
  return (ref) => enabled.has(keyOf(ref));
}

/** Matches accounts × identifiers, so it may read more than was asked for; callers select by key. */
async function findByKey(db: Database, field: string, refs: readonly AncestorRef[]) {
  const plural = collectionOf.get(field) ?? '';
  const parentField = parentFieldOf.get(plural);
  const found = await db
    .collection(plural)
    .find(
      {
        account: { $in: [...new Set(refs.map(({ account }) => account))] },
        id_developer: { $in: [...new Set(refs.map(({ id }) => id))] },
      },
      {
        projection: { account: 1, id_developer: 1, enabled: 1, ...(parentField && { [parentField]: 1 }) },
        maxTimeMS: read_limit_ms,
      },
    )
    .toArray();
  return new Map(
    found.map((document) => [
      keyOf({ account: String(document.account), field, id: String(document.id_developer) }),
      document,
    ]),
  );
}

/** Identifiers that one query takes. */
const max_identifiers = 10_000;

/** Finds the identifiers of all devices below an object, at any level. */
export async function findDevicesBelow(ctx: OperationContext, plural: string, id: string): Promise<string[]> {
  const found = new Map<string, string[]>([[plural, [id]]]);
  for (const child of resources) {
    for (const [field, parent] of Object.entries(child.parentCollections)) {
      const children = await findChildren(ctx, child.plural, field, found.get(parent) ?? []);
      found.set(child.plural, [...(found.get(child.plural) ?? []), ...children]);
    }
  }
  return found.get(device.plural) ?? [];
}

async function findChildren(
  { store, account }: OperationContext,
  plural: string,
  field: string,
  parents: readonly string[],
): Promise<string[]> {
  const children: string[] = [];
  for (let from = 0; from < parents.length; from += max_identifiers) {
    const documents = await store.db
      .collection(plural)
      .find(
        { account, [field]: { $in: parents.slice(from, from + max_identifiers) } },
        { projection: { _id: 0, id_developer: 1 }, maxTimeMS: read_limit_ms },
      )
      .toArray();
    for (const { id_developer } of documents) children.push(String(id_developer));
  }
  return children;
}
