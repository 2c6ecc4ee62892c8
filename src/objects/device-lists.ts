import { type Collection, read_limit_ms } from '../db/database.js';
import { findRaw } from '../db/raw-find.js';
import { buildStatusConditions, statuses } from '../resources/device/status.js';
import type { ListRequest } from '../schema/list-parameters.js';
import { refreshBounds } from './device-deadlines.js';
import type { Bson, ListHooks, Page } from './page.js';

/** Lists by `status`, which is computed from the deadlines (reference/devices.md#status). */
export const deviceListHooks: ListHooks = {
  async prepare({ store, account, now }, { params, sort }) {
    const isCounted = Array.isArray(params.by) && params.by.includes('status');
    if (params.status !== undefined || sort.key === 'status' || isCounted) await refreshBounds(store.db, account, now);
  },
  sortBy: new Map([['status', listByStatus]]),
};

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
