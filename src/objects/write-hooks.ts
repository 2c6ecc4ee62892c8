import { model } from '../resources/model.js';
import type { Values } from '../schema/fields.js';
import type { Resource } from '../schema/resource.js';
import type { OperationContext } from './context.js';
import { claimMeasuredPaths } from './measured-paths.js';

/** Claims what the values of a write need beside the object. @returns ends the claim, after the write */
type Claim = (ctx: OperationContext, values: Values) => Promise<() => Promise<void>>;

const claimsByType: ReadonlyMap<string, Claim> = new Map([[model.plural, claimMeasuredPaths]]);

/** Runs a write between the claims of its type and their end. */
export async function withClaims<T>(
  ctx: OperationContext,
  { plural }: Pick<Resource, 'plural'>,
  values: Values,
  write: () => Promise<T>,
): Promise<T> {
  const claim = claimsByType.get(plural);
  if (claim === undefined) return write();
  const release = await claim(ctx, values);
  try {
    return await write();
  } finally {
    await release();
  }
}
