import { read_limit_ms } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { findRaw } from '../db/raw-find.js';
import { device } from '../resources/index.js';
import type { ListRequest } from '../schema/list-parameters.js';
import { getId, getString } from '../serialize/bson.js';
import type { OperationContext } from './context.js';
import { planMatches } from './lists.js';

/** Finds the devices that a saved filter selects. @throws AppError badParameter (4004) without the filter */
export async function findFilteredDevices(ctx: OperationContext, filter: string): Promise<{ _id: Id; id: string }[]> {
  const sort = { key: 'device', paths: ['id_developer'], direction: 1 } as const;
  const named: ListRequest = { filter: {}, params: { filter }, sort, max: 0, offset: 0, now: ctx.now };
  const plan = await planMatches(ctx, device, named);
  const projection = { id_developer: 1 };
  const query = { filter: plan.filter, projection, ...(plan.hint && { hint: plan.hint }), maxTimeMS: read_limit_ms };
  const selected: { _id: Id; id: string }[] = [];
  for await (const batch of findRaw(ctx.store.db.collection(device.plural), query).batches)
    selected.push(...batch.map((bson) => ({ _id: getId(bson, '_id'), id: getString(bson, 'id_developer') ?? '' })));
  return selected;
}
