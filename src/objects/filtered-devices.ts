import type { Id } from '../db/ids.js';
import { device } from '../resources/index.js';
import { getId, getString } from '../serialize/bson.js';
import type { OperationContext } from './context.js';
import { compile } from './select/compile.js';
import { readBatches } from './select/read.js';

/** Finds the devices that a saved filter selects. @throws AppError badParameter (4004) without the filter */
export async function findFilteredDevices(ctx: OperationContext, filter: string): Promise<{ _id: Id; id: string }[]> {
  const sort = { key: 'device', paths: ['id_developer'], direction: 1 } as const;
  const request = { filter: {}, params: { filter }, sort, max: 0, offset: 0, now: ctx.now };
  const found: { _id: Id; id: string }[] = [];
  for await (const batch of readBatches(ctx, await compile(ctx, device, request), { projection: { id_developer: 1 } }))
    found.push(...batch.map((bson) => ({ _id: getId(bson, '_id'), id: getString(bson, 'id_developer') ?? '' })));
  return found;
}
