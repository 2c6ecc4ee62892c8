import { AppError } from '../../errors.js';
import { buildStatusConditions, statuses } from '../../resources/device/status.js';
import { device } from '../../resources/index.js';
import type { Conditions } from '../../schema/filters.js';
import type { ListRequest } from '../../schema/list-parameters.js';
import { countPaths, max_paths } from '../../schema/path-filters.js';
import { refreshBounds } from '../receipts/device-deadlines.js';
import { resolveAncestors } from '../tree/ancestors.js';
import { prepareConditions } from '../values/conditions.js';
import { createValueOrder } from '../values/sorted-list.js';
import { assertUnambiguous } from './path-filters.js';
import { loadSavedFilter, rethrowNamed } from './saved-filters.js';
import type { SelectOfType } from './selection.js';

/**
 * Lists by `status`, which is computed from the deadlines (reference/devices.md#status), by open alarms, by
 * configuration files, by saved filters and by values at paths.
 */
export const selectDeviceLists: SelectOfType = async (ctx, request) => {
  const { filter } = request.params;
  const saved = typeof filter === 'string' ? await loadSavedFilter(ctx, filter) : undefined;
  const requests = saved === undefined ? [request] : [request, saved];
  checkPaths(requests);
  if (requests.some(dependsOnStatus)) await refreshBounds(ctx.store.db, ctx.account, ctx.now);
  await assertUnambiguous(ctx, request.paths);
  if (saved !== undefined) await assertUnambiguous(ctx, saved.paths).catch(rethrowNamed);
  const { filters, related, order } = await prepareConditions(ctx, request);
  if (saved !== undefined) {
    const ofSaved = await prepareConditions(ctx, saved).catch(rethrowNamed);
    filters.push((await resolveAncestors(ctx, device, saved)).filter, ...ofSaved.filters);
    related.push(...ofSaved.related.map((condition) => ({ ...condition, param: 'filter' })));
  }
  return {
    filters,
    related,
    readInOrder: order && createValueOrder(order, request.sort.direction),
    parts: request.sort.key === 'status' ? listStatusRanges(request) : undefined,
  };
};

function dependsOnStatus({ params, sort }: ListRequest): boolean {
  const isCounted = Array.isArray(params.by) && params.by.includes('status');
  return params.status !== undefined || sort.key === 'status' || isCounted;
}

/** Each status is a range of deadlines: concatenated, the ranges are the sorted list. */
function listStatusRanges({ sort, now }: ListRequest): Conditions[] {
  const ranges = statuses.toSorted().map((status) => buildStatusConditions(status, now));
  return sort.direction === 1 ? ranges : ranges.reverse();
}

/** @throws AppError badParameter (4004) if the request and its saved filter name too many paths together */
function checkPaths(requests: readonly ListRequest[]): void {
  const named = requests.flatMap(({ paths = [], pathSort = [] }) => [...paths, ...[pathSort].flat()]);
  if (countPaths(named) > max_paths)
    throw new AppError('badParameter', { filter: `together with the request it names more than ${max_paths} paths` });
}
