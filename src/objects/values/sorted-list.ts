import { type Collection, read_limit_ms } from '../../db/database.js';
import { type Id, keyOfId } from '../../db/ids.js';
import { isWholeList, planQuery } from '../../db/query-plan.js';
import { findRaw } from '../../db/raw-find.js';
import { readInBatches } from '../../lib/batches.js';
import { device, devicevalue } from '../../resources/index.js';
import { getId } from '../../serialize/bson.js';
import type { OperationContext } from '../context.js';
import type { Bson } from '../page.js';
import { readIds } from '../select/read.js';
import { byValue, findDevices, removeModels } from '../select/related-devices.js';
import type { ObjectSelection, TypeSelection } from '../select/selection.js';
import { type ComparedPath, kindOf, kinds } from './conditions.js';
import { type DeviceValue, findStored, valuesOf } from './values.js';

type Valued = Pick<DeviceValue, 'parent' | 'value'>;

/** A list in the order of values. `sort` is that of the devices without one. */
interface ValueList
  extends ComparedPath,
    Pick<ObjectSelection, 'listed' | 'filter' | 'hint' | 'sort' | 'selected' | 'unselected'> {
  direction: 1 | -1;
  total: number;
  /** Conditions on values at the same path. */
  bounds: readonly object[];
}

/** Devices that one command looks up; most lists end with the first piece. */
const piece_size = 5000;
const first_size = 100;
const reply_size = 1000;

/**
 * Lists devices by their last values at a path (reference/lists.md#paths): those without one, in order of their creation, then
 * the others from the index of values; in descending order the other way round.
 */
export function createValueOrder(compared: ComparedPath, direction: 1 | -1): TypeSelection['readInOrder'] {
  return (ctx, selection, total) => {
    const byCreation = { key: 'created_at', paths: ['created_at'], direction };
    const unvalued = isWholeList(selection)
      ? planQuery(device, ctx, { filter: {}, params: {}, sort: byCreation })
      : { sort: { _id: direction } };
    const bounds = findBounds(compared.path, selection);
    return readInOrder(ctx, { ...selection, ...unvalued, ...compared, direction, total, bounds });
  };
}

/** The conditions on values at a path: whatever meets them has a value there. */
function findBounds(path: Id, { related = [] }: ObjectSelection): object[] {
  const onPath = related.filter(({ alternatives }) =>
    alternatives.every(({ filter }) => path.equals(filter.path as Id)),
  );
  return onPath.map(({ alternatives }) => ({ $or: alternatives.map(({ filter: { value } }) => ({ value })) }));
}

async function* readInOrder(ctx: OperationContext, list: ValueList): AsyncGenerator<readonly Bson[]> {
  const devices = ctx.store.db.collection(device.plural);
  const parts = [readWithoutValue(ctx, list), readByValue(ctx, list)];
  for (const part of list.direction === 1 ? parts : parts.reverse())
    for await (const ids of part) yield await findInOrder(devices, list.unselected, ids);
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
async function* readByValue(ctx: OperationContext, list: ValueList): AsyncGenerator<readonly Id[]> {
  const { path, selected, bounds, direction } = list;
  const cursor = valuesOf(ctx.store.db).find<Valued>(
    { $and: [{ path, value: { $ne: null }, ...(selected && { parent: { $in: selected } }) }, ...bounds] },
    {
      projection: { _id: 0, parent: 1, value: 1 },
      sort: { value: direction, parent: direction },
      hint: byValue,
      batchSize: reply_size,
      maxTimeMS: read_limit_ms,
    },
  );
  for await (const piece of readInBatches(cursor, piece_size, first_size)) yield keepDeclared(ctx, list, piece);
}

/** Leaves out values of another kind than the models of their devices declare, which count as none. Keeps the order. */
async function keepDeclared(
  ctx: OperationContext,
  { otherKinds, direction }: ValueList,
  values: readonly Valued[],
): Promise<readonly Id[]> {
  const byKind = await Promise.all(
    kinds.map((kind) => {
      const ids = values.flatMap(({ parent, value }) => (value !== null && kindOf(value) === kind ? [parent] : []));
      return removeModels(ctx, ids, otherKinds[kind]);
    }),
  );
  return (direction === 1 ? byKind : byKind.reverse()).flat();
}

/** Reads the ids of devices that have sent no number, text or boolean, or one that their model does not declare. */
async function* readWithoutValue(ctx: OperationContext, list: ValueList): AsyncGenerator<readonly Id[]> {
  const { sort, bounds, total } = list;
  if (bounds.length > 0) return;
  const undeclared = total > piece_size ? await findUndeclared(ctx, list) : undefined;
  if (undeclared !== undefined) {
    yield undeclared;
    return;
  }
  for await (const ids of readIds(ctx, list, piece_size, { sort })) {
    const keys = ids.map((parent) => ({ parent, path: list.path }));
    const stored = await findStored(ctx.store.db, keys);
    const valued = new Set((await keepDeclared(ctx, list, [...stored.values()])).map(keyOfId));
    yield ids.filter((id) => !valued.has(keyOfId(id)));
  }
}

const valuesOfKind = { number: { $gte: Number.NEGATIVE_INFINITY }, text: { $gte: '' }, boolean: { $gte: false } };

/**
 * Finds the devices whose value is of another kind than their model declares if every device of the account has one, so
 * that no others have to be looked for. @returns undefined if devices have none, or if these values are too many
 */
async function findUndeclared(
  ctx: OperationContext,
  { path, otherKinds, direction }: ValueList,
): Promise<readonly Id[] | undefined> {
  const { db, max_selected } = ctx.store;
  const options = { hint: byValue, maxTimeMS: read_limit_ms };
  const [values, devices] = await Promise.all([
    valuesOf(db).countDocuments({ path, value: { $ne: null } }, options),
    db.collection(device.plural).countDocuments({ account: ctx.account }, { maxTimeMS: read_limit_ms }),
  ]);
  if (values < devices) return undefined;
  const found: (readonly Id[])[] = [];
  for (const kind of kinds.filter((each) => otherKinds[each].length > 0)) {
    const alternatives = [{ filter: { path, value: valuesOfKind[kind] } }];
    const ids = await findDevices(ctx, { param: 'sort', plural: devicevalue.plural, alternatives });
    if (ids.length > max_selected) return undefined;
    const declared = new Set((await removeModels(ctx, ids, otherKinds[kind])).map(keyOfId));
    found.push(ids.filter((id) => !declared.has(keyOfId(id))));
  }
  return found.flat().sort((a, b) => direction * Buffer.compare(a.buffer, b.buffer));
}
