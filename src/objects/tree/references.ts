import type { StoredNode } from '../../db/batching/loader.js';
import { takenMessage } from '../../db/driver-errors.js';
import type { Id } from '../../db/ids.js';
import { protectedBy } from '../../db/indexes.js';
import { findOne, hasMatch } from '../../db/raw-find.js';
import { createFieldErrors, type FieldErrors, throwIfAny } from '../../errors.js';
import type { Values } from '../../schema/fields.js';
import type { Resource } from '../../schema/resource.js';
import { toPlainJson } from '../../serialize/plain-json.js';
import type { OperationContext } from '../context.js';
import { isSameChain } from './ancestors.js';

/** The objects that a resource refers to, by field. */
export type References = ReadonlyMap<string, Pick<StoredNode, '_id' | 'ancestors'>>;

/** Looks up the objects that `values` refer to. @returns those that exist within reach */
export async function locateReferences(ctx: OperationContext, resource: Resource, values: Values): Promise<References> {
  const references = new Map<string, StoredNode>();
  await Promise.all(
    resource.references.map(async (field) => {
      const identifier = values[field];
      if (typeof identifier !== 'string') return;
      const target = await ctx.store.loader(collectionOf(resource, field)).locate(ctx, identifier);
      if (target !== undefined) references.set(field, target);
    }),
  );
  return references;
}

/** @returns a fault for each object that `values` refer to and that is not among `references` */
export function findMissing(resource: Resource, values: Values, references: References): FieldErrors {
  const isMissing = (field: string) => typeof values[field] === 'string' && !references.has(field);
  return Object.fromEntries(resource.references.filter(isMissing).map((field) => [field, 'does not exist']));
}

/**
 * Looks up the objects that the values of a create, or of a change of many, refer to.
 * @throws AppError invalid (4003) with all faults: missing objects, and a taken name
 */
export async function findReferences(ctx: OperationContext, resource: Resource, values: Values): Promise<References> {
  const references = await locateReferences(ctx, resource, values);
  const faults = Object.assign(createFieldErrors(), findMissing(resource, values, references));
  // the unique index enforces names: this look-up only lets one answer have all faults
  if (Object.keys(faults).length > 0) Object.assign(faults, await findNameFault(ctx, resource, values));
  throwIfAny('invalid', faults);
  return references;
}

/** References that have changed since they were found. */
export interface ChangedReferences {
  /** Fields whose object was deleted. */
  missing: readonly string[];
  /** The parent, if it was moved. */
  movedParent: { _id: Id; plural: string } | undefined;
}

/** Reads references again after the write that relies on them. */
export async function findChangedReferences(
  { store }: OperationContext,
  resource: Resource,
  references: References,
): Promise<ChangedReferences> {
  const missing: string[] = [];
  let movedParent: ChangedReferences['movedParent'];
  await Promise.all(
    [...references].map(async ([field, before]) => {
      const plural = collectionOf(resource, field);
      const now = await store.loader(plural).node(before._id);
      if (now === undefined) missing.push(field);
      else if (resource.parents.includes(field) && !isSameChain(before.ancestors, now.ancestors))
        movedParent = { _id: before._id, plural };
    }),
  );
  return { missing, movedParent };
}

/** Refuses to delete objects that others need (reference/resources.md#delete). @throws AppError invalid (4003) naming their type */
export async function assertUnprotected(
  { store, account }: Pick<OperationContext, 'store' | 'account'>,
  plural: string,
  ids: readonly string[],
): Promise<void> {
  const faults = createFieldErrors();
  for (const { plural: others, field } of protectedBy.get(plural) ?? []) {
    const query = { account, [field]: { $in: [...ids] } };
    const other = await findOne(store.db.collection(others), query, { projection: { id_developer: 1 } });
    if (other !== undefined) faults[others] = `${String(other.id_developer)} names it`;
  }
  throwIfAny('invalid', faults);
}

/** @returns the objects that a stored object refers to, without parents, as plain JSON by field */
export async function findLinked(
  ctx: OperationContext,
  resource: Resource,
  stored: Values,
): Promise<Record<string, Values>> {
  const linked: Record<string, Values> = {};
  for (const field of resource.references) {
    const id = stored[field];
    if (resource.parents.includes(field) || typeof id !== 'string') continue;
    const target = await ctx.store.loader(collectionOf(resource, field)).find(ctx, id);
    if (target !== undefined) linked[field] = toPlainJson(target);
  }
  return linked;
}

/** @returns `{name: message}` if another object of the account has the name that `values` give */
export async function findNameFault(
  { store, account }: OperationContext,
  resource: Resource,
  values: Values,
  id = '',
): Promise<FieldErrors> {
  if (!resource.uniqueNames || typeof values.name !== 'string') return {};
  const query = { account, name: values.name, id_developer: { $ne: id } };
  const isTaken = await hasMatch(store.db.collection(resource.plural), query);
  return isTaken ? { name: takenMessage } : {};
}

/** Explains a violation of a unique index: a taken name makes a taken identifier too. @throws AppError invalid (4003), else `error` */
export async function rethrowDuplicate(
  ctx: OperationContext,
  resource: Resource,
  values: Values,
  error: unknown,
): Promise<never> {
  throwIfAny('invalid', await findNameFault(ctx, resource, values));
  throw error;
}

function collectionOf({ fields }: Resource, field: string): string {
  return fields[field]?.references?.plural ?? '';
}
