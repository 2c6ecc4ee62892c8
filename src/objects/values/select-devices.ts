import { read_limit_ms } from '../../db/database.js';
import type { Id } from '../../db/ids.js';
import { isWholeList, type QueryPlan } from '../../db/query-plan.js';
import { findAll, type RawCursor } from '../../db/raw-find.js';
import { readAhead, readInBatches } from '../../lib/batches.js';
import { device } from '../../resources/index.js';
import { getId, getString } from '../../serialize/bson.js';
import { keyOfId } from '../ancestors.js';
import type { OperationContext } from '../context.js';
import type { Bson } from '../page.js';
import type { DeviceValueCondition } from './conditions.js';
import {
  compareIds,
  compareValues,
  countValues,
  findMatching,
  piece_size,
  readMatches,
  removeModels,
} from './selection.js';

type Scope = Pick<OperationContext, 'store' | 'account'>;
/** The conditions of a list without those on values. */
export type OtherConditions = Pick<QueryPlan, 'filter' | 'hint' | 'scope'>;

/**
 * Selects the devices whose last values meet all conditions: by the index of values, or if that has many of them by comparing
 * those that meet the other conditions of the request. @param planOthers plans the list without the conditions on values
 * @returns undefined if more devices meet all conditions than are looked up by their ids
 */
export async function selectDevices(
  scope: Scope,
  conditions: readonly DeviceValueCondition[],
  planOthers: () => Promise<OtherConditions>,
): Promise<readonly Id[] | undefined> {
  const { max_looked_up, max_compared } = scope.store.selection;
  const { rarest, others, number } = await findRarest(scope, conditions, max_looked_up + 1);
  const ids: Id[] = [];
  if (number <= max_looked_up) {
    for await (const piece of matchByValue(scope, rarest, others)) ids.push(...piece);
    return ids;
  }
  const plan = await planOthers();
  const few = await findFew(scope, plan, max_compared);
  if (few !== undefined) return findMatching(scope, conditions, few);
  for await (const piece of matchInPieces(scope, conditions, plan)) {
    ids.push(...piece);
    if (ids.length > max_looked_up) return undefined;
  }
  return ids;
}

/** Counts the devices that meet conditions on values and those of a plan, which are too many to hold their ids. */
export async function countMatching(
  scope: Scope,
  conditions: readonly DeviceValueCondition[],
  plan: OtherConditions,
): Promise<number> {
  let total = 0;
  for await (const piece of matchInPieces(scope, conditions, plan)) total += piece.length;
  return total;
}

/** Finds the devices that a plan selects, unless they are more than `max`. */
async function findFew({ store }: Scope, plan: OtherConditions, max: number): Promise<readonly Id[] | undefined> {
  if (isWholeList(plan)) return undefined;
  const { filter, hint } = plan;
  const options = { projection: { _id: 1 }, ...(hint && { hint }), maxTimeMS: read_limit_ms };
  const documents = await findAll(store.db.collection(device.plural), { filter, limit: max + 1, ...options });
  return documents.length > max ? undefined : documents.map(({ _id }) => _id);
}

/** Finds the condition that the fewest values meet. @param limit counts no further */
async function findRarest(scope: Scope, conditions: readonly DeviceValueCondition[], limit?: number) {
  const numbers = await Promise.all(conditions.map((condition) => countValues(scope, condition, limit)));
  const number = Math.min(...numbers);
  const at = numbers.indexOf(number);
  const rarest = conditions[at];
  if (rarest === undefined) throw new Error('no condition');
  return { rarest, others: conditions.filter((_, index) => index !== at), number };
}

/** Finds the ids of many devices that meet conditions on values and those of a plan, from the side that has fewer. */
export async function* matchInPieces(
  scope: Scope,
  conditions: readonly DeviceValueCondition[],
  plan: OtherConditions,
): AsyncGenerator<readonly Id[]> {
  const devices = scope.store.db.collection(device.plural);
  const { rarest, others, number } = await findRarest(scope, conditions);
  const { filter, hint } = plan;
  const options = { ...(hint && { hint }), maxTimeMS: read_limit_ms };
  if (!isWholeList(plan) && (await devices.countDocuments(filter, { ...options, limit: number })) < number) {
    const cursor = devices.find(filter, { ...options, projection: { id_model: 1 }, batchSize: piece_size });
    for await (const candidates of readAhead(readInBatches(cursor, piece_size)))
      yield await compareIds(scope, conditions, candidates);
    return;
  }
  for await (const ids of readAhead(matchByValue(scope, rarest, others)))
    yield isWholeList(plan) ? ids : await findIn(scope, filter, ids);
}

/** Reads the ids of devices that meet conditions on values in pieces, by the index of the first one. */
async function* matchByValue(
  scope: Scope,
  { path, alternatives }: DeviceValueCondition,
  others: readonly DeviceValueCondition[],
): AsyncGenerator<readonly Id[]> {
  for (const alternative of alternatives)
    for await (const piece of readMatches(scope, path, alternative)) {
      const ids = await removeModels(scope, piece, alternative.excluded_models);
      yield others.length === 0 ? ids : await findMatching(scope, others, ids);
    }
}

async function findIn({ store }: Scope, filter: object, ids: readonly Id[]): Promise<readonly Id[]> {
  const documents = await findAll(store.db.collection(device.plural), {
    filter: { $and: [{ _id: { $in: ids } }, filter] },
    projection: { _id: 1 },
    hint: { _id: 1 },
    maxTimeMS: read_limit_ms,
  });
  return documents.map(({ _id }) => _id);
}

/** Reads the first objects that meet conditions on values; without any the database limits them. */
export function readCompared(
  scope: Scope,
  conditions: readonly DeviceValueCondition[] | undefined,
  limit: { limit?: number },
  read: (limit: { limit?: number }) => RawCursor,
): AsyncGenerator<readonly Bson[]> {
  return conditions === undefined ? read(limit).batches : keepMatching(scope, conditions, read({}).batches);
}

/** Leaves out devices that do not meet conditions on values. */
async function* keepMatching(
  scope: Scope,
  conditions: readonly DeviceValueCondition[],
  batches: AsyncIterable<readonly Bson[]>,
): AsyncGenerator<readonly Bson[]> {
  for await (const batch of batches) {
    const candidates = batch.map((bson) => ({ _id: getId(bson, '_id'), id_model: getString(bson, 'id_model'), bson }));
    const matching = await compareValues(scope, conditions, candidates);
    yield candidates.flatMap(({ _id, bson }) => (matching.has(keyOfId(_id)) ? [bson] : []));
  }
}
