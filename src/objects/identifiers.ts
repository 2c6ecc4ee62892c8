import type { StoredObject } from '../db/database.js';
import { isDuplicate } from '../db/driver-errors.js';
import type { Resource } from '../schema/resource.js';
import { buildSearchText } from '../schema/search.js';
import type { OperationContext } from './context.js';
import { rethrowDuplicate } from './references.js';
import { identifierOf, type SharedName } from './shared-names.js';

/** Inserts a new object under a given identifier. @throws the driver's error if it is taken */
export async function insertAs(
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
export async function insertWithIdentifier(
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
