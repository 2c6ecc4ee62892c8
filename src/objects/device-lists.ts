import { type Collection, read_limit_ms } from '../db/database.js';
import { findRaw } from '../db/raw-find.js';
import { AppError } from '../errors.js';
import { buildAlarmConditions } from '../resources/device/alarms.js';
import { buildStatusConditions, statuses } from '../resources/device/status.js';
import { alarm } from '../resources/index.js';
import type { ListRequest } from '../schema/list-parameters.js';
import type { OperationContext } from './context.js';
import { refreshBounds } from './device-deadlines.js';
import type { Bson, ListHooks, Page } from './page.js';

/** Their ids are a condition of one query, which has to be read within its time. */
const max_alarmed = 200_000;
const alarmsByState = { account: 1, state: 1, raised_at: 1, _id: 1 } as const;

/** Lists by `status`, which is computed from the deadlines (reference/devices.md#status), and by open alarms. */
export const deviceListHooks: ListHooks = {
  async prepare(ctx, request) {
    const { store, account, now } = ctx;
    const { params, sort, filter } = request;
    const isCounted = Array.isArray(params.by) && params.by.includes('status');
    if (params.status !== undefined || sort.key === 'status' || isCounted) await refreshBounds(store.db, account, now);
    if (typeof params.alarm !== 'string') return request;
    const devices = await findAlarmed(ctx, params.alarm);
    const { $and = [] } = filter as { $and?: readonly object[] };
    return { ...request, filter: { ...filter, $and: [...$and, { _id: { $in: devices } }] } };
  },
  sortBy: new Map([['status', listByStatus]]),
};

/** Finds the devices that have an open alarm of a kind. @throws AppError badParameter (4004) if they are too many */
async function findAlarmed({ store, account }: OperationContext, kind: string): Promise<readonly unknown[]> {
  const match = { account, ...buildAlarmConditions(kind) };
  const pipeline = [{ $match: match }, { $group: { _id: '$parent' } }, { $limit: max_alarmed + 1 }];
  const devices = await store.db
    .collection(alarm.plural)
    .aggregate(pipeline, { hint: alarmsByState, maxTimeMS: read_limit_ms })
    .toArray();
  if (devices.length > max_alarmed)
    throw new AppError('badParameter', { alarm: `matches more than ${max_alarmed} devices` });
  return devices.map(({ _id }) => _id);
}

/** Each status is a range of deadlines: concatenated, the ranges are the sorted list. */
async function listByStatus(collection: Collection, filter: object, request: ListRequest): Promise<Page> {
  const { now, sort } = request;
  const ordered = statuses.toSorted();
  if (sort.direction === -1) ordered.reverse();
  const filters = ordered.map((status) => ({ $and: [filter, buildStatusConditions(status, now)] }));
  const counts = await Promise.all(
    filters.map((range) => collection.countDocuments(range, { maxTimeMS: read_limit_ms })),
  );
  async function* readRanges(): AsyncGenerator<readonly Bson[]> {
    let { max, offset } = request;
    for (const [index, count] of counts.entries()) {
      const limit = Math.min(max, count - offset);
      if (limit > 0) {
        const query = { filter: filters[index] ?? {}, sort: { _id: sort.direction }, skip: offset, limit };
        yield* findRaw(collection, { ...query, maxTimeMS: read_limit_ms }).batches;
      }
      max -= Math.max(0, limit);
      offset = Math.max(0, offset - count);
      if (max === 0) return;
    }
  }
  return { total_documents: counts.reduce((sum, count) => sum + count, 0), batches: readRanges() };
}
