import { AppError } from '../errors.js';
import { alarmrule, device, model, savedFilter } from '../resources/index.js';
import { describeFaults, parseSavedQuery } from '../resources/saved-filter.js';
import type { Values } from '../schema/fields.js';
import type { ListedType } from '../schema/resource.js';
import type { OperationContext } from './context.js';
import type { RequestedMember } from './page.js';
import { selectDeviceLists } from './select/device-lists.js';
import { openAlarmCounts } from './select/open-alarms.js';
import { createOwnedSelection } from './select/owned-objects.js';
import { assertPathsApply } from './select/saved-filters.js';
import type { SelectOfType } from './select/selection.js';
import { latestValues } from './values/latest-values.js';
import { withMeasuredPaths } from './values/measured-paths.js';

/** Runs a write with what its values need beside the object. @param written matches the objects of an update */
type WriteHook = <T>(ctx: OperationContext, values: Values, write: () => Promise<T>, written?: object) => Promise<T>;

/** Behaviour of a type beyond its declaration. */
interface TypeHooks {
  write?: WriteHook;
  /** Looks up what the conditions of a list depend on. */
  select?: SelectOfType;
  /** Loaders of the members in `requested`. */
  requested?: Readonly<Record<string, RequestedMember>>;
}

const hooksByType: ReadonlyMap<string, TypeHooks> = new Map<string, TypeHooks>([
  [device.plural, { select: selectDeviceLists, requested: { latest: latestValues, alarms: openAlarmCounts } }],
  [alarmrule.plural, { select: createOwnedSelection(alarmrule) }],
  [model.plural, { write: withMeasuredPaths }],
  [savedFilter.plural, { write: withSavedPaths }],
]);

/** Returns the behaviour of a type beyond its declaration. */
export function hooksOf({ plural }: Pick<ListedType, 'plural'>): TypeHooks {
  return hooksByType.get(plural) ?? {};
}

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
export function withWriteHook<T>(
  ctx: OperationContext,
  resource: Pick<ListedType, 'plural'>,
  values: Values,
  write: () => Promise<T>,
  written?: object,
): Promise<T> {
  const { write: hook } = hooksOf(resource);
  return hook === undefined ? write() : hook(ctx, values, write, written);
}
