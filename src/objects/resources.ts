import type { StoredNode } from '../db/batching/loader.js';
import type { Id } from '../db/ids.js';
import { isNamed, isPlaced, type KeyLimit } from '../db/reach.js';
import { AppError } from '../errors.js';
import { device } from '../resources/index.js';
import type { Values } from '../schema/fields.js';
import type { Resource } from '../schema/resource.js';
import { getId, getString } from '../serialize/bson.js';
import type { OperationContext } from './context.js';
import type { Bson } from './page.js';

/** Loads one object. @param within `{field: identifier}` of the parent it must have @throws AppError notFound (4041) */
export async function showResource(
  ctx: OperationContext,
  { plural }: { plural: string },
  id: string,
  within: Readonly<Record<string, string>> = {},
): Promise<Bson> {
  let document = await ctx.store.loader(plural).find(ctx, id);
  if (document !== undefined && plural === device.plural && (await saveReceipts(ctx, document)))
    document = await ctx.store.loader(plural).find(ctx, id);
  if (document === undefined) throw new AppError('notFound');
  // the parent of the object that the operation is limited to is out of reach
  const isBelowLimit = ctx.limit === undefined || !isNamed(ctx.limit, getId(document, '_id'));
  if (Object.keys(within).length > 0 && !isBelowLimit) throw new AppError('notFound');
  for (const [field, parent] of Object.entries(within)) {
    if (getString(document, field) !== parent) throw new AppError('notFound');
  }
  return document;
}

/** Stores receipts that a device does not have yet. @returns true if there were some; without a promise for most devices */
function saveReceipts({ store, now }: OperationContext, bson: Bson): Promise<true | undefined> | undefined {
  return store.deferred.storeOf(getId(bson, '_id')) ?? store.storeShown(bson, now);
}

/** @returns the place of the object @throws AppError notFound (4041) */
export async function assertExists(
  ctx: OperationContext,
  { plural }: { plural: string },
  id: string,
): Promise<StoredNode> {
  const node = await ctx.store.loader(plural).locate(ctx, id);
  if (node === undefined) throw new AppError('notFound');
  return node;
}

/** Checks what a query by identifier alone would not: an object out of reach. @throws AppError notFound (4041) */
export async function assertWithinReach(
  ctx: OperationContext,
  resource: { plural: string },
  id: string,
): Promise<void> {
  if (ctx.limit !== undefined) await assertExists(ctx, resource, id);
}

/** @throws AppError forbidden (4031) if the operation is limited and the type belongs to the account as a whole */
export function assertCreatable({ limit }: OperationContext, { parents }: Pick<Resource, 'parents'>): void {
  if (limit !== undefined && parents.length === 0) throw new AppError('forbidden');
}

/** @throws AppError forbidden (4031) if the operation is limited and the type is not in the hierarchy */
export function assertChangeable({ limit }: OperationContext, { plural }: { plural: string }): void {
  if (limit !== undefined && !isPlaced(plural)) throw new AppError('forbidden');
}

/** @throws AppError forbidden (4031) also for the object that the operation is limited to */
export function assertRemovable(ctx: OperationContext, resource: { plural: string }, _id: Id): void {
  assertChangeable(ctx, resource);
  if (isNamed(ctx.limit, _id)) throw new AppError('forbidden');
}

/**
 * Keeps the object that an operation is limited to where it is: its parent, which is out of reach, may be sent as it is stored.
 * @returns the values that are left to change @throws AppError forbidden (4031) for another parent
 */
export function keepPlace(
  limit: KeyLimit | undefined,
  { plural, parents }: Resource,
  stored: Values,
  values: Values,
): Values {
  if (limit?.plural !== plural || stored.id_developer !== limit.id_developer) return values;
  const moves = parents.some((field) => typeof values[field] === 'string' && values[field] !== stored[field]);
  if (moves) throw new AppError('forbidden');
  return Object.fromEntries(
    Object.entries(values).filter(([field, value]) => !parents.includes(field) || typeof value !== 'string'),
  );
}
