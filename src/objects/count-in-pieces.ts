import { read_limit_ms, type StoredObject } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { findAll } from '../db/raw-find.js';
import { splitIntoBatches } from '../lib/batches.js';
import { device } from '../resources/index.js';
import type { Grouping } from '../schema/filters.js';
import { keyOfId } from './ancestors.js';
import type { OperationContext } from './context.js';
import type { CountRow } from './count-rows.js';
import type { DeviceValueCondition } from './values/conditions.js';
import { matchInPieces, type OtherConditions } from './values/select-devices.js';

/** Counts devices by values, a piece at a time: too many meet conditions on their last values to name them in one query. */
export async function countInPieces(
  ctx: OperationContext,
  { plan, conditions }: { plan: OtherConditions; conditions: readonly DeviceValueCondition[] },
  groupings: readonly Grouping[],
): Promise<readonly CountRow[]> {
  const devices = ctx.store.db.collection(device.plural);
  const options = { hint: { _id: 1 }, maxTimeMS: read_limit_ms };
  const group = { _id: groupings.map(({ buildExpression }) => buildExpression(ctx.now)), count: { $sum: 1 } };
  const rows = new Map<string, CountRow>();
  for await (const ids of matchInPieces(ctx, conditions, plan)) {
    const pipeline = [{ $match: { _id: { $in: ids } } }, { $group: group }];
    for await (const { _id: values, count } of devices.aggregate<{ _id: unknown[]; count: number }>(
      pipeline,
      options,
    )) {
      const key = JSON.stringify(values);
      rows.set(key, { values, count: count + (rows.get(key)?.count ?? 0) });
    }
  }
  let identified: readonly CountRow[] = [...rows.values()];
  for (const [at, { plural }] of groupings.entries())
    if (plural !== undefined) identified = await identify(ctx, plural, identified, at);
  return identified;
}

const max_identified = 5000;

/** Replaces internal ids by the identifiers of their objects. */
async function identify(
  { store }: OperationContext,
  plural: string,
  rows: readonly CountRow[],
  at: number,
): Promise<readonly CountRow[]> {
  const ids = [...new Map(rows.flatMap(({ values }) => idOf(values[at])).map((id) => [keyOfId(id), id])).values()];
  const identifiers = new Map<string, string>();
  for (const batch of splitIntoBatches(ids, max_identified)) {
    const filter = { _id: { $in: batch } };
    const query = { filter, projection: { id_developer: 1 }, maxTimeMS: read_limit_ms };
    for (const { _id, id_developer } of await findAll(store.db.collection<StoredObject>(plural), query))
      identifiers.set(keyOfId(_id), id_developer);
  }
  return rows.map(({ values, count }) => {
    const [id] = idOf(values[at]);
    return { values: values.with(at, (id && identifiers.get(keyOfId(id))) ?? null), count };
  });
}

function idOf(value: unknown): readonly Id[] {
  return value === null ? [] : [value as Id];
}
