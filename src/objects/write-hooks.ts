import { AppError } from '../errors.js';
import { model } from '../resources/model.js';
import { describeFaults, parseSavedQuery, savedFilter } from '../resources/saved-filter.js';
import type { Values } from '../schema/fields.js';
import type { Resource } from '../schema/resource.js';
import type { OperationContext } from './context.js';
import { withMeasuredPaths } from './measured-paths.js';
import { assertPathsApply } from './saved-filters.js';

/** Runs a write with what its values need beside the object. @param written matches the objects of an update */
type WriteHook = <T>(ctx: OperationContext, values: Values, write: () => Promise<T>, written?: object) => Promise<T>;

const hooksByType: ReadonlyMap<string, WriteHook> = new Map([
  [model.plural, withMeasuredPaths],
  [savedFilter.plural, withSavedPaths],
]);

/** @throws AppError invalid (4003) if a saved filter has a path of no measure with `filter`, or an ambiguous one */
async function withSavedPaths<T>(ctx: OperationContext, { query }: Values, write: () => Promise<T>): Promise<T> {
  const { paths } = typeof query === 'string' ? parseSavedQuery(query, ctx.now) : {};
  await assertPathsApply(ctx, paths).catch((error: unknown) => {
    if (!(error instanceof AppError)) throw error;
    throw new AppError('invalid', { query: describeFaults(error) });
  });
  return write();
}

/** Runs a write with the hook of its type. @param written matches the objects of an update */
export function withClaims<T>(
  ctx: OperationContext,
  { plural }: Pick<Resource, 'plural'>,
  values: Values,
  write: () => Promise<T>,
  written?: object,
): Promise<T> {
  const hook: WriteHook | undefined = hooksByType.get(plural);
  return hook === undefined ? write() : hook(ctx, values, write, written);
}
