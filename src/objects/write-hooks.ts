import { AppError } from '../errors.js';
import { model } from '../resources/model.js';
import { describeFaults, parseSavedQuery, savedFilter } from '../resources/saved-filter.js';
import type { Values } from '../schema/fields.js';
import type { Resource } from '../schema/resource.js';
import type { OperationContext } from './context.js';
import { claimMeasuredPaths } from './measured-paths.js';
import { assertDeclared } from './values/conditions.js';

/** Claims what the values of a write need beside the object. @returns ends the claim, after the write */
type Claim = (ctx: OperationContext, values: Values) => Promise<() => Promise<void>>;

const claimsByType: ReadonlyMap<string, Claim> = new Map([
  [model.plural, claimMeasuredPaths],
  [savedFilter.plural, checkSavedPaths],
]);

/** @throws AppError invalid (4003) if a saved filter compares the values at a path of no measure with `filter` */
async function checkSavedPaths(ctx: OperationContext, { query }: Values): Promise<() => Promise<void>> {
  const { paths = [] } = typeof query === 'string' ? parseSavedQuery(query, ctx.now) : {};
  await assertDeclared(ctx, paths).catch((error: unknown) => {
    if (!(error instanceof AppError)) throw error;
    throw new AppError('invalid', { query: describeFaults(error) });
  });
  return async () => undefined;
}

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
