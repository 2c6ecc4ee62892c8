import { read_limit_ms } from '../db/database.js';
import { takenMessage } from '../db/driver-errors.js';
import type { Id } from '../db/ids.js';
import { createFieldErrors, type FieldErrors, throwIfAny } from '../errors.js';
import type { Values } from '../schema/fields.js';
import type { Resource } from '../schema/resource.js';
import { toPlainJson } from '../serialize/plain-json.js';
import type { OperationContext } from './context.js';

/** Internal ids of the objects that a resource refers to, by field. */
export type References = ReadonlyMap<string, Id>;

/**
 * Looks up the objects that `values` refer to. @param id identifier of the resource, on an update
 * @throws AppError invalid (4003) for missing objects, together with a taken name
 */
export async function findReferences(
  ctx: OperationContext,
  resource: Resource,
  values: Values,
  id?: string,
): Promise<References> {
  const { store, account } = ctx;
  const found = new Map<string, Id>();
  const faults = createFieldErrors();
  await Promise.all(
    resource.references.map(async (field) => {
      const identifier = values[field];
      if (typeof identifier !== 'string') return;
      const target = await store.loader(collectionOf(resource, field)).idOf(account, identifier);
      if (target === undefined) faults[field] = 'does not exist';
      else found.set(field, target);
    }),
  );
  await throwWithNameTaken(ctx, resource, faults, values, id);
  return found;
}

/** @returns a message for each of `references` deleted since */
export async function findMissingReferences(
  { store }: OperationContext,
  resource: Resource,
  references: References,
): Promise<FieldErrors> {
  const faults = createFieldErrors();
  await Promise.all(
    [...references].map(async ([field, _id]) => {
      const exists = await store.loader(collectionOf(resource, field)).exists(_id);
      if (!exists) faults[field] = 'does not exist';
    }),
  );
  return faults;
}

/** @returns the internal id of the parent among `references`, if any */
export function parentIdOf({ parents }: Resource, references: References): Id | undefined {
  const field = parents.find((parent) => references.has(parent));
  return field === undefined ? undefined : references.get(field);
}

/** @returns the objects that a stored object refers to, without parents, as plain JSON by field */
export async function findLinked(
  { store, account }: OperationContext,
  resource: Resource,
  stored: Values,
): Promise<Record<string, Values>> {
  const linked: Record<string, Values> = {};
  for (const field of resource.references) {
    const id = stored[field];
    if (resource.parents.includes(field) || typeof id !== 'string') continue;
    const target = await store.loader(collectionOf(resource, field)).find(account, id);
    if (target !== undefined) linked[field] = toPlainJson(target);
  }
  return linked;
}

/**
 * Reports a taken name together with other faults. The unique index enforces uniqueness; this look-up runs only if the
 * request fails anyway, so that one response has all faults. @throws AppError invalid (4003) with all faults, if any
 */
export async function throwWithNameTaken(
  ctx: OperationContext,
  resource: Resource,
  faults: FieldErrors,
  values: Values,
  id?: string,
): Promise<void> {
  if (Object.keys(faults).length > 0) Object.assign(faults, await findNameFault(ctx, resource, values, id));
  throwIfAny('invalid', faults);
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
  const other = await store.db
    .collection(resource.plural)
    .findOne(query, { projection: { _id: 1 }, maxTimeMS: read_limit_ms });
  return other === null ? {} : { name: takenMessage };
}

function collectionOf({ fields }: Resource, field: string): string {
  return fields[field]?.references?.plural ?? '';
}
