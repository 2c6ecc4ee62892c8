import type { StoredObject } from '../../db/database.js';
import { toDriverValues } from '../../db/opaque-json.js';
import type { Values } from '../../schema/fields.js';
import type { Resource } from '../../schema/resource.js';
import type { OperationContext } from '../context.js';
import { insertAs, insertWithIdentifier } from '../identifiers.js';
import { findReferences } from '../references.js';
import { assertCreatable } from '../resources.js';
import { withWriteHook } from '../type-hooks.js';
import { placeBelow } from './plan.js';
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
