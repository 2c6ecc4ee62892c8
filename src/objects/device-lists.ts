import { read_limit_ms } from '../db/database.js';
import type { QueryPlan } from '../db/query-plan.js';
import { findRaw } from '../db/raw-find.js';
import { AppError } from '../errors.js';
import { buildStatusConditions, statuses } from '../resources/device/status.js';
import { device } from '../resources/index.js';
import type { ListRequest } from '../schema/list-parameters.js';
import { countPaths, max_paths } from '../schema/path-filters.js';
import { resolveAncestors } from './ancestors.js';
import type { OperationContext } from './context.js';
import { refreshBounds } from './device-deadlines.js';
import type { Bson, ListHooks, Page } from './page.js';
import { assertUnambiguous } from './path-filters.js';
import { buildPropertyFilters, loadSavedFilter, rethrowNamed } from './saved-filters.js';
import { prepareConditions } from './values/conditions.js';
import { createValueOrder } from './values/sorted-list.js';

/**
 * Lists by `status`, which is computed from the deadlines (reference/devices.md#status), by open alarms, by
 * configuration files, by saved filters and by values at paths.
 */
export const deviceListHooks: ListHooks = {
  async prepare(ctx, request) {
    const { filter } = request.params;
    const saved = typeof filter === 'string' ? await loadSavedFilter(ctx, filter) : undefined;
    const requests = saved === undefined ? [request] : [request, saved];
    checkPaths(requests);
    if (requests.some(dependsOnStatus)) await refreshBounds(ctx.store.db, ctx.account, ctx.now);
    await assertUnambiguous(ctx, request.paths);
    if (saved !== undefined) await assertUnambiguous(ctx, saved.paths).catch(rethrowNamed);
    const { conditions, order } = await prepareConditions(ctx, request);
    const ofSaved = saved && (await prepareConditions(ctx, saved).catch(rethrowNamed)).conditions;
    const properties = (await Promise.all(requests.map((each) => buildPropertyFilters(ctx, each)))).flat();
    const placed = saved && (await resolveAncestors(ctx, device, saved));
    return {
      filters: [...(placed ? [placed.filter] : []), ...(properties as Record<string, unknown>[])],
      conditions: [...conditions, ...(ofSaved ?? []).map((condition) => ({ ...condition, param: 'filter' }))],
      listSorted: order ? createValueOrder(order) : request.sort.key === 'status' ? listByStatus : undefined,
    };
  },
};

function dependsOnStatus({ params, sort }: ListRequest): boolean {
  const isCounted = Array.isArray(params.by) && params.by.includes('status');
  return params.status !== undefined || sort.key === 'status' || isCounted;
}

/** @throws AppError badParameter (4004) if the request and its saved filter name too many paths together */
function checkPaths(requests: readonly ListRequest[]): void {
  const named = requests.flatMap(({ paths = [], pathSort = [] }) => [...paths, ...[pathSort].flat()]);
  if (countPaths(named) > max_paths)
    throw new AppError('badParameter', { filter: `together with the request it names more than ${max_paths} paths` });
}

/** Each status is a range of deadlines: concatenated, the ranges are the sorted list. */
async function listByStatus({ store }: OperationContext, plan: QueryPlan, request: ListRequest): Promise<Page> {
  const collection = store.db.collection(device.plural);
  const { direction } = request.sort;
  const ordered = statuses.toSorted();
  if (direction === -1) ordered.reverse();
  const ranges = ordered.map((status) => ({ $and: [plan.filter, buildStatusConditions(status, request.now)] }));
  const options = { ...(plan.selected && plan.hint && { hint: plan.hint }), maxTimeMS: read_limit_ms };
  const counts = await Promise.all(ranges.map((filter) => collection.countDocuments(filter, options)));
  async function* readRanges(): AsyncGenerator<readonly Bson[]> {
    let { max, offset } = request;
    for (const [index, count] of counts.entries()) {
      const limit = Math.min(max, count - offset);
      if (limit > 0) {
        const filter = ranges[index] ?? {};
        yield* findRaw(collection, { filter, ...options, sort: { _id: direction }, skip: offset, limit }).batches;
      }
      max -= Math.max(0, limit);
      offset = Math.max(0, offset - count);
      if (max === 0) return;
    }
  }
  return { total_documents: counts.reduce((sum, count) => sum + count, 0), batches: readRanges() };
}
