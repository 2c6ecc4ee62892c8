import { read_limit_ms } from '../db/database.js';
import type { QueryPlan } from '../db/query-plan.js';
import { findRaw } from '../db/raw-find.js';
import { AppError } from '../errors.js';
import { buildStatusConditions, statuses } from '../resources/device/status.js';
import { device } from '../resources/index.js';
import type { ListRequest } from '../schema/list-parameters.js';
import { countPaths, max_paths } from '../schema/path-filters.js';
import { alarmFilter } from './alarmed-devices.js';
import { resolveAncestors } from './ancestors.js';
import { configFilter } from './configured-devices.js';
import type { OperationContext } from './context.js';
import { refreshBounds } from './device-deadlines.js';
import type { Bson, ListHooks, ListSorted, Page } from './page.js';
import { buildPropertyFilters, loadSavedFilter, prepareSavedConditions } from './saved-filters.js';
import { type DeviceValueCondition, prepareValueConditions } from './values/conditions.js';
import { selectDevices } from './values/select-devices.js';
import { countValues, isCountable } from './values/selection.js';
import { createComparedList, createManyList, createValueOrder, type ValueOrder } from './values/sorted-list.js';

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
    const { conditions: own, sortedBy } = await prepareValueConditions(ctx, request);
    const conditions = [...own, ...(saved === undefined ? [] : await prepareSavedConditions(ctx, saved))];
    const order = sortedBy && { path: sortedBy, conditions };
    const isByStatus = request.sort.key === 'status';
    const compared = await Promise.all(
      requests.flatMap((each) => [
        alarmFilter.build(ctx, each),
        configFilter.build(ctx, each),
        buildPropertyFilters(ctx, each),
      ]),
    );
    const placed = saved && (await resolveAncestors(ctx, device, saved));
    return {
      filters: [...(placed ? [placed.filter] : []), ...(compared.flat() as Record<string, unknown>[])],
      ...(conditions.length > 0 && {
        conditions,
        select: (planOthers) => selectDevices(ctx, conditions, planOthers),
        listMany: await findWalk(ctx, request, conditions, order),
        listCompared: order ? createValueOrder(order) : createManyList(isByStatus ? divideByStatus : (plan) => [plan]),
      }),
      listSorted: order ? createValueOrder(order) : isByStatus ? listByStatus : undefined,
    };
  },
};

/** Chooses how to read a list in its order that has one condition on values, which many devices meet or which is on their order. */
async function findWalk(
  ctx: OperationContext,
  { sort, offset }: ListRequest,
  [condition, ...others]: readonly DeviceValueCondition[],
  order: ValueOrder | undefined,
): Promise<ListSorted | undefined> {
  const { max_looked_up, max_walked } = ctx.store.selection;
  if (condition === undefined || others.length > 0 || !isCountable(condition)) return undefined;
  if (order?.path.equals(condition.path) === true) return createValueOrder(order);
  if (sort.key === 'status' || offset > max_walked) return undefined;
  if ((await countValues(ctx, condition, max_looked_up + 1)) <= max_looked_up) return undefined;
  return order === undefined ? createComparedList(condition) : createValueOrder(order);
}

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
function divideByStatus({ filter }: QueryPlan, { now, sort: { direction } }: ListRequest) {
  const ordered = statuses.toSorted();
  if (direction === -1) ordered.reverse();
  return ordered.map((status) => ({
    filter: { $and: [filter, buildStatusConditions(status, now)] },
    sort: { _id: direction },
  }));
}

async function listByStatus({ store }: OperationContext, plan: QueryPlan, request: ListRequest): Promise<Page> {
  const collection = store.db.collection(device.plural);
  const ranges = divideByStatus(plan, request);
  const counts = await Promise.all(
    ranges.map(({ filter }) => collection.countDocuments(filter, { maxTimeMS: read_limit_ms })),
  );
  async function* readRanges(): AsyncGenerator<readonly Bson[]> {
    let { max, offset } = request;
    for (const [index, count] of counts.entries()) {
      const limit = Math.min(max, count - offset);
      if (limit > 0) {
        const { filter = {}, sort } = ranges[index] ?? {};
        const query = { filter, ...(sort && { sort }), skip: offset, limit, maxTimeMS: read_limit_ms };
        yield* findRaw(collection, query).batches;
      }
      max -= Math.max(0, limit);
      offset = Math.max(0, offset - count);
      if (max === 0) return;
    }
  }
  return { total_documents: counts.reduce((sum, count) => sum + count, 0), batches: readRanges() };
}
