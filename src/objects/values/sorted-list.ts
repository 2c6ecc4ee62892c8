import { type Collection, read_limit_ms } from '../../db/database.js';
import type { Id } from '../../db/ids.js';
import type { QueryPlan } from '../../db/query-plan.js';
import { findRaw } from '../../db/raw-find.js';
import { readInBatches } from '../../lib/batches.js';
import { device } from '../../resources/index.js';
import type { ListRequest } from '../../schema/list-parameters.js';
import { getId } from '../../serialize/bson.js';
import { keyOfId } from '../ancestors.js';
import type { OperationContext } from '../context.js';
import type { Bson, Page } from '../page.js';
import type { DeviceValueCondition } from './conditions.js';
import { buildComparison, byValue } from './selection.js';
import { valuesOf } from './values.js';

/** The order of a list by the values at a path. */
export interface ValueOrder {
  path: Id;
  /** All conditions of the list on values. */
  conditions: readonly DeviceValueCondition[];
}

interface CountedPlan extends QueryPlan {
  total_documents: number;
}

/** Devices that one command looks up. */
const piece_size = 1000;
/** Devices of which one command finds out whether they have a value. */
const scanned_size = 5000;

/**
 * Lists devices by their last values at a path (reference/lists.md#paths): those without one, in order of their creation, then
 * the others from the index of values; in descending order the other way round.
 */
export async function listByValue(
  ctx: OperationContext,
  plan: QueryPlan,
  request: ListRequest,
  order: ValueOrder,
): Promise<Page> {
  const devices = ctx.store.db.collection(device.plural);
  const options = { ...(plan.hint && { hint: plan.hint }), maxTimeMS: read_limit_ms };
  const total_documents = await devices.countDocuments(plan.filter, options);
  return { total_documents, batches: readInOrder(ctx, { ...plan, total_documents }, request, order) };
}

async function* readInOrder(
  ctx: OperationContext,
  plan: CountedPlan,
  { max, offset, sort: { direction } }: ListRequest,
  order: ValueOrder,
): AsyncGenerator<readonly Bson[]> {
  const devices = ctx.store.db.collection(device.plural);
  const parts = [readWithoutValue(ctx, plan, order, direction), readByValue(ctx, plan, order, direction)];
  let [skipped, remaining] = [offset, max];
  for (const part of direction === 1 ? parts : parts.reverse())
    for await (const ids of part) {
      const piece = await findInOrder(devices, plan.unselected ?? plan.filter, ids);
      const page = piece.slice(skipped, skipped + remaining);
      skipped = Math.max(0, skipped - piece.length);
      remaining -= page.length;
      if (page.length > 0) yield page;
      if (remaining === 0) return;
    }
}

async function findInOrder(devices: Collection, filter: object, ids: readonly Id[]): Promise<readonly Bson[]> {
  const query = {
    filter: { $and: [{ _id: { $in: ids } }, filter] },
    hint: { _id: 1 },
    maxTimeMS: read_limit_ms,
  } as const;
  const documents = new Map<string, Bson>();
  for await (const batch of findRaw(devices, query).batches)
    for (const bson of batch) documents.set(keyOfId(getId(bson, '_id')), bson);
  return ids.flatMap((id) => documents.get(keyOfId(id)) ?? []);
}

/** Reads ids in the order of their values, in pieces that grow: most lists end soon. */
async function* readByValue(
  { store: { db } }: OperationContext,
  { selected }: QueryPlan,
  { path, conditions }: ValueOrder,
  direction: 1 | -1,
): AsyncGenerator<readonly Id[]> {
  const isSelected = selected && new Set(selected.map(keyOfId));
  const bounds = conditions.flatMap((condition) => (condition.path.equals(path) ? [toBounds(condition)] : []));
  const cursor = valuesOf(db).find(
    { $and: [{ path, value: { $ne: null } }, ...bounds] },
    {
      projection: { _id: 0, parent: 1 },
      sort: { value: direction, parent: direction },
      hint: byValue,
      batchSize: piece_size,
      maxTimeMS: read_limit_ms,
    },
  );
  let [piece, size]: [Id[], number] = [[], piece_size / 10];
  for await (const { parent } of cursor) {
    if (isSelected?.has(keyOfId(parent)) === false) continue;
    piece.push(parent);
    if (piece.length < size) continue;
    yield piece;
    [piece, size] = [[], piece_size];
  }
  yield piece;
}

function toBounds({ alternatives }: DeviceValueCondition): object {
  return { $or: alternatives.map((alternative) => ({ value: buildComparison(alternative) })) };
}

/** Reads the ids of devices that have sent no number, text or boolean. */
async function* readWithoutValue(
  ctx: OperationContext,
  { filter, hint, total_documents }: CountedPlan,
  { path, conditions }: ValueOrder,
  direction: 1 | -1,
): AsyncGenerator<readonly Id[]> {
  // whatever is compared at the path has a value
  if (conditions.some((condition) => condition.path.equals(path))) return;
  if (total_documents > scanned_size && (await isAlwaysSent(ctx, path))) return;
  const cursor = ctx.store.db.collection(device.plural).find(filter, {
    projection: { _id: 1 },
    sort: { _id: direction },
    ...(hint && { hint }),
    batchSize: scanned_size,
    maxTimeMS: read_limit_ms,
  });
  for await (const piece of readInBatches(cursor, scanned_size))
    yield await withoutValued(
      ctx,
      path,
      piece.map(({ _id }) => _id),
    );
}

/** Reports whether all devices of the account have a value, so that none has to be looked for. */
async function isAlwaysSent({ store, account }: OperationContext, path: Id): Promise<boolean> {
  const [values, devices] = await Promise.all([
    valuesOf(store.db).countDocuments({ path, value: { $ne: null } }, { hint: byValue, maxTimeMS: read_limit_ms }),
    store.db.collection(device.plural).countDocuments({ account }, { maxTimeMS: read_limit_ms }),
  ]);
  return values >= devices;
}

async function withoutValued({ store }: OperationContext, path: Id, ids: readonly Id[]): Promise<readonly Id[]> {
  const filter = { _id: { $in: ids.map((parent) => ({ parent, path })) }, value: { $ne: null } };
  const options = { projection: { _id: 0, parent: 1 }, batchSize: scanned_size, maxTimeMS: read_limit_ms };
  const valued = await valuesOf(store.db).find(filter, options).toArray();
  const isValued = new Set(valued.map(({ parent }) => keyOfId(parent)));
  return ids.filter((id) => !isValued.has(keyOfId(id)));
}
