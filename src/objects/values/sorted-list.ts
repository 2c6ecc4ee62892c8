import { type Collection, read_limit_ms } from '../../db/database.js';
import type { Id } from '../../db/ids.js';
import { isWholeList, planQuery, type QueryPlan } from '../../db/query-plan.js';
import { findRaw } from '../../db/raw-find.js';
import { readInBatches } from '../../lib/batches.js';
import { device } from '../../resources/index.js';
import type { ListRequest } from '../../schema/list-parameters.js';
import { getId } from '../../serialize/bson.js';
import { keyOfId } from '../ancestors.js';
import type { OperationContext } from '../context.js';
import { isExport } from '../exports.js';
import type { Bson, ListSorted, PreparedRequest } from '../page.js';
import type { DeviceValueCondition } from './conditions.js';
import { countMatching } from './select-devices.js';
import {
  buildComparison,
  byValue,
  compareIds,
  countValues,
  findMatching,
  isCountable,
  piece_size,
} from './selection.js';
import { valuesOf } from './values.js';

/** The order of a list by the values at a path. */
export interface ValueOrder {
  path: Id;
  /** All conditions of the list on values. */
  conditions: readonly DeviceValueCondition[];
}

/** Devices in their order. */
type ListPart = Pick<QueryPlan, 'filter' | 'sort' | 'hint' | 'scanIndex'>;

/** `sort` is that of the devices without a value. */
interface CountedPlan extends QueryPlan {
  total_documents: number;
  /** Index entries to skip. */
  skip: number;
}

/** Most lists end with the first piece. */
const first_size = 100;
const reply_size = 1000;

/**
 * Lists devices by their last values at a path (reference/lists.md#paths): those without one, in order of their creation, then
 * the others from the index of values; in descending order the other way round.
 */
export function createValueOrder(order: ValueOrder): ListSorted {
  return async (ctx, plan, request) => {
    const { path, conditions } = order;
    const total_documents = await countTotal(ctx, plan, conditions, request);
    const { direction } = request.sort;
    const byCreation = { ...request, sort: { ...request.sort, key: 'created_at' } };
    const isWhole = isWholeList(plan);
    const unvalued = isWhole ? planQuery(device, ctx, byCreation) : { sort: { _id: direction } };
    // index entries are devices, so that those before the page are skipped there
    const isIndexed = isWhole && conditions.length > 0 && conditions.every((each) => isIndexedBy(path, each));
    const [skip, offset] = isIndexed ? [request.offset, 0] : [0, request.offset];
    const pieces = readInOrder(ctx, { ...plan, ...unvalued, total_documents, skip }, direction, order);
    return { total_documents, batches: cutPage(pieces, { ...request, offset }) };
  };
}

/** Reports whether index entries of a path are the devices that meet a condition. */
function isIndexedBy(path: Id, condition: DeviceValueCondition): boolean {
  return condition.path.equals(path) && isCountable(condition);
}

/** Lists devices in an order of their own that meet a condition which many meet, and nothing else is compared. */
export function createComparedList(condition: DeviceValueCondition): ListSorted {
  return async (ctx, plan, request) => ({
    total_documents: await countValues(ctx, condition),
    batches: readInParts(ctx, [plan], [condition], request),
  });
}

/** Lists devices that meet conditions on values beside others. @param divide divides the list into parts in their order */
export function createManyList(divide: (plan: QueryPlan, request: ListRequest) => readonly ListPart[]): ListSorted {
  return async (ctx, plan, request) => {
    const { compared = [] } = request;
    const total_documents = await countTotal(ctx, plan, compared, request);
    return { total_documents, batches: readInParts(ctx, divide(plan, request), compared, request) };
  };
}

async function countTotal(
  ctx: OperationContext,
  plan: QueryPlan,
  [condition]: readonly DeviceValueCondition[],
  request: PreparedRequest,
): Promise<number> {
  const { store, account } = ctx;
  const { compared } = request;
  // exports do not show it
  if (compared !== undefined && isExport(request)) return 0;
  if (compared !== undefined) return countMatching(ctx, compared, plan);
  const { filter, hint } = plan;
  const options = { ...(hint && { hint }), maxTimeMS: read_limit_ms };
  if (!isWholeList(plan)) return store.db.collection(device.plural).countDocuments(filter, options);
  return condition ? countValues(ctx, condition) : store.counts.count(device.plural, { account }, options);
}

/** Cuts a page out of the pieces of a list. */
async function* cutPage<Item>(
  pieces: AsyncIterable<readonly Item[]>,
  { offset, max }: Pick<ListRequest, 'offset' | 'max'>,
): AsyncGenerator<readonly Item[]> {
  let [skipped, remaining] = [offset, max];
  for await (const piece of pieces) {
    const page = piece.slice(skipped, skipped + remaining);
    skipped = Math.max(0, skipped - piece.length);
    remaining -= page.length;
    if (page.length > 0) yield page;
    if (remaining === 0) return;
  }
}

/** Reads the page of a list whose devices are compared one by one. */
async function* readInParts(
  ctx: OperationContext,
  parts: readonly ListPart[],
  conditions: readonly DeviceValueCondition[],
  request: ListRequest,
): AsyncGenerator<readonly Bson[]> {
  const devices = ctx.store.db.collection(device.plural);
  // an export lasts as long as its client reads
  const limits = isExport(request) ? { noCursorTimeout: true } : { maxTimeMS: read_limit_ms };
  async function* readMatching(): AsyncGenerator<readonly Id[]> {
    for (const { filter, sort, hint, scanIndex = hint } of parts) {
      const options = { sort, ...(scanIndex && { hint: scanIndex }), ...limits };
      const cursor = devices.find(filter, { ...options, projection: { id_model: 1 }, batchSize: reply_size });
      for await (const candidates of readInBatches(cursor, piece_size, first_size))
        yield compareIds(ctx, conditions, candidates);
    }
  }
  for await (const ids of cutPage(readMatching(), request)) yield findInOrder(devices, {}, ids);
}

async function* readInOrder(
  ctx: OperationContext,
  plan: CountedPlan,
  direction: 1 | -1,
  order: ValueOrder,
): AsyncGenerator<readonly Bson[]> {
  const devices = ctx.store.db.collection(device.plural);
  const { path, conditions } = order;
  const compared = plan.selected ? [] : conditions.filter((condition) => !isIndexedBy(path, condition));
  const parts = [readWithoutValue(ctx, plan, order), readByValue(ctx, plan, order, direction)];
  for (const part of direction === 1 ? parts : parts.reverse())
    for await (const ids of part) {
      const matching = compared.length === 0 ? ids : await findMatching(ctx, compared, ids);
      yield await findInOrder(devices, plan.unselected ?? plan.filter, matching);
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
  { selected, skip }: CountedPlan,
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
      skip,
      batchSize: reply_size,
      maxTimeMS: read_limit_ms,
    },
  );
  for await (const piece of readInBatches(cursor, piece_size, first_size)) {
    const ids = piece.map(({ parent }) => parent);
    yield isSelected === undefined ? ids : ids.filter((id) => isSelected.has(keyOfId(id)));
  }
}

function toBounds({ alternatives }: DeviceValueCondition): object {
  return { $or: alternatives.map((alternative) => ({ value: buildComparison(alternative) })) };
}

/** Reads the ids of devices that have sent no number, text or boolean. */
async function* readWithoutValue(
  ctx: OperationContext,
  { filter, sort, hint, total_documents }: CountedPlan,
  { path, conditions }: ValueOrder,
): AsyncGenerator<readonly Id[]> {
  // whatever is compared at the path has a value
  if (conditions.some((condition) => condition.path.equals(path))) return;
  if (total_documents > piece_size && (await isAlwaysSent(ctx, path))) return;
  const cursor = ctx.store.db.collection(device.plural).find(filter, {
    projection: { _id: 1 },
    sort,
    ...(hint && { hint }),
    batchSize: piece_size,
    maxTimeMS: read_limit_ms,
  });
  for await (const piece of readInBatches(cursor, piece_size))
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
  const options = { projection: { _id: 0, parent: 1 }, batchSize: piece_size, maxTimeMS: read_limit_ms };
  const valued = await valuesOf(store.db).find(filter, options).toArray();
  const isValued = new Set(valued.map(({ parent }) => keyOfId(parent)));
  return ids.filter((id) => !isValued.has(keyOfId(id)));
}
