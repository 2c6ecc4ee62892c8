import type { Id } from '../db/ids.js';
import type { KeyLimit } from '../db/key-limit.js';
import { isNamed, isPlaced } from '../db/reach.js';
import { AppError } from '../errors.js';
import type { Values } from '../schema/fields.js';
import type { Resource } from '../schema/resource.js';
import type { OperationContext } from './context.js';

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
