import type { StoredNode } from '../db/batching/loader.js';
import { isNamed } from '../db/reach.js';
import { AppError } from '../errors.js';
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
  const document = await ctx.store.loader(plural).find(ctx, id);
  if (document === undefined) throw new AppError('notFound');
  // the parent of the object that the operation is limited to is out of reach
  const isBelowLimit = ctx.limit === undefined || !isNamed(ctx.limit, getId(document, '_id'));
  if (Object.keys(within).length > 0 && !isBelowLimit) throw new AppError('notFound');
  for (const [field, parent] of Object.entries(within)) {
    if (getString(document, field) !== parent) throw new AppError('notFound');
  }
  return document;
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
