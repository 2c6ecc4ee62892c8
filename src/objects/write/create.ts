import type { StoredObject } from '../../db/database.js';
import { isDuplicate } from '../../db/driver-errors.js';
import { toDriverValues } from '../../db/opaque-json.js';
import type { Values } from '../../schema/fields.js';
import type { Resource } from '../../schema/resource.js';
import { buildSearchText } from '../../schema/search.js';
import type { OperationContext } from '../context.js';
import { assertCreatable } from '../resources.js';
import { findReferences, rethrowDuplicate } from '../tree/references.js';
import { withWriteHook } from '../type-hooks.js';
import { placeBelow } from './plan.js';
import { identifierOf, type SharedName } from './shared-names.js';
import { verifyAfterwards } from './verify.js';

/**
 * Creates a resource (reference/resources.md#create): insert, verify the references, compensate. If the parent was
 * deleted at the same time, the new object is deleted with it, and the create has succeeded before. @param identifier default: made from the name
 * @returns its id_developer @throws AppError invalid (4003)
 */
export async function createResource(
  ctx: OperationContext,
  resource: Resource,
  values: Values,
  identifier?: string,
): Promise<string> {
  assertCreatable(ctx, resource);
  const { store, account, user, now, request_id } = ctx;
  const references = await findReferences(ctx, resource, values);
  const { set } = resource.toStored(values, { now, creating: true });
  const document: StoredObject = {
    _id: store.db.newId(),
    account,
    id_developer: '',
    ...toDriverValues(resource.fields, set),
    owner: user,
    updater: user,
    created_at: now,
    updated_at: now,
    version: 0,
    last_request_id: request_id,
    ...placeBelow(resource, references),
  };
  const id = await withWriteHook(ctx, resource, values, () =>
    identifier === undefined
      ? insertWithIdentifier(ctx, resource, document)
      : insertAs(ctx, resource, document, identifier),
  );
  await verifyAfterwards(ctx, resource, { id, references });
  return id;
}

/** Inserts a new object under a given identifier. @throws the driver's error if it is taken */
async function insertAs(
  { store }: OperationContext,
  { plural }: Pick<Resource, 'plural'>,
  document: StoredObject,
  id: string,
): Promise<string> {
  document.id_developer = id;
  document.search_text = buildSearchText(document);
  await store.loader(plural).insert(document);
  return id;
}

/**
 * Inserts a new object under `name@account`, or if names may repeat under the next free of `name-2@account`,
 * `name-3@account`, … (reference/identifiers.md#names). The unique index decides races. @returns the id_developer
 * @throws AppError invalid (4003), or the driver's error
 */
async function insertWithIdentifier(
  ctx: OperationContext,
  resource: Resource,
  document: StoredObject,
): Promise<string> {
  const { store, account } = ctx;
  const { plural, uniqueNames } = resource;
  const name: SharedName = { account, name: String(document.name) };
  const insert = (id: string) => insertAs(ctx, { plural }, document, id);
  try {
    return await insert(`${name.name}@${account}`);
  } catch (error) {
    if (!isDuplicate(error)) throw error;
    if (uniqueNames) return rethrowDuplicate(ctx, resource, document, error);
  }
  for (let collided: number | undefined; ; ) {
    const number = await store.takeNumber(plural)(name, collided);
    try {
      return await insert(identifierOf(name, number));
    } catch (error) {
      if (!isDuplicate(error)) throw error;
    }
    collided = number;
  }
}
