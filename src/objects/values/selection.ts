import { read_limit_ms } from '../../db/database.js';
import type { Id } from '../../db/ids.js';
import { findAll, type RawQuery } from '../../db/raw-find.js';
import { readInBatches } from '../../lib/batches.js';
import { device } from '../../resources/index.js';
import { keyOfId } from '../ancestors.js';
import type { OperationContext } from '../context.js';
import type { DeviceValueCondition } from './conditions.js';
import { keyOfValue, type Scalar, valuesOf } from './values.js';

type Scope = Pick<OperationContext, 'store' | 'account'>;
export type Alternative = DeviceValueCondition['alternatives'][number];

/** A device whose values are compared. */
export interface Candidate {
  _id: Id;
  id_model?: string | undefined;
}

/** Devices that one command looks up. */
export const piece_size = 5000;
/** Index of the values at a path. */
export const byValue = { path: 1, value: 1, parent: 1 } as const;

/** Reports whether as many devices meet a condition as entries of the index do. */
export function isCountable({ alternatives }: DeviceValueCondition): boolean {
  return alternatives.every(({ excluded_models }) => excluded_models.length === 0);
}

/** Counts the devices that meet a condition, up to `limit`, by the index of values. */
export async function countValues(
  { store }: Scope,
  { path, alternatives }: DeviceValueCondition,
  limit?: number,
): Promise<number> {
  const options = { hint: byValue, maxTimeMS: read_limit_ms, ...(limit !== undefined && { limit }) };
  const count = (each: Alternative) =>
    valuesOf(store.db).countDocuments({ path, value: buildComparison(each) }, options);
  return (await Promise.all(alternatives.map(count))).reduce((sum, found) => sum + found, 0);
}

/** Reads the index of values in pieces. */
export async function* readMatches(
  { store }: Scope,
  path: Id,
  alternative: Alternative,
): AsyncGenerator<readonly Id[]> {
  const cursor = valuesOf(store.db).find(
    { path, value: buildComparison(alternative) },
    { projection: { _id: 0, parent: 1 }, hint: byValue, batchSize: piece_size, maxTimeMS: read_limit_ms },
  );
  for await (const piece of readInBatches(cursor, piece_size)) yield piece.map(({ parent }) => parent);
}

/** The comparison of an alternative for the database: those of numbers match numbers only. */
export function buildComparison({ values }: Alternative): object {
  if ('exact' in values) return { $eq: values.exact };
  const { from, to } = values;
  return { ...(from !== undefined && { $gte: from }), ...(to !== undefined && { $lte: to }) };
}

/** Leaves out devices of some models, which nearly none are. */
export async function removeModels(
  { store, account }: Scope,
  ids: readonly Id[],
  models: readonly string[],
): Promise<readonly Id[]> {
  if (models.length === 0 || ids.length === 0) return ids;
  const documents = await findAll(store.db.collection(device.plural), {
    filter: { _id: { $in: ids }, account, id_model: { $in: models } },
    projection: { _id: 1 },
    hint: { _id: 1 },
    maxTimeMS: read_limit_ms,
  });
  const excluded = new Set(documents.map(({ _id }) => keyOfId(_id)));
  return ids.filter((id) => !excluded.has(keyOfId(id)));
}

/** Finds out which of some devices meet all conditions now. */
export async function findMatching(
  scope: Scope,
  conditions: readonly DeviceValueCondition[],
  ids: readonly Id[],
): Promise<readonly Id[]> {
  const matching = await compareValues(scope, conditions, await findModels(scope, ids));
  return ids.filter((id) => matching.has(keyOfId(id)));
}

async function findModels({ store, account }: Scope, ids: readonly Id[]): Promise<readonly Candidate[]> {
  const documents = await findAll(store.db.collection(device.plural), {
    filter: { _id: { $in: ids }, account },
    projection: { id_model: 1 },
    hint: { _id: 1 },
    maxTimeMS: read_limit_ms,
  });
  return documents.map(({ _id, id_model }) => ({ _id, id_model: id_model as string | undefined }));
}

/** Compares the last values of some devices. @returns the ids of those that meet all conditions */
export async function compareIds(
  scope: Scope,
  conditions: readonly DeviceValueCondition[],
  candidates: readonly Candidate[],
): Promise<readonly Id[]> {
  const matching = await compareValues(scope, conditions, candidates);
  return candidates.flatMap(({ _id }) => (matching.has(keyOfId(_id)) ? [_id] : []));
}

/** Compares the last values of some devices, now or at an earlier moment. @returns those that meet all conditions, by `keyOfId` */
export async function compareValues(
  { store }: Scope,
  conditions: readonly DeviceValueCondition[],
  candidates: readonly Candidate[],
  readConcern?: RawQuery['readConcern'],
): Promise<ReadonlySet<string>> {
  const keys = candidates.flatMap(({ _id }) => conditions.map(({ path }) => ({ parent: _id, path })));
  const stored = await findAll(valuesOf(store.db), {
    filter: { _id: { $in: keys } },
    projection: { _id: 0, parent: 1, path: 1, value: 1 },
    maxTimeMS: read_limit_ms,
    ...(readConcern && { readConcern }),
  });
  const values = new Map(stored.map(({ parent, path, value }) => [keyOfValue({ parent, path }), value]));
  const isMatch = ({ _id, id_model }: Candidate) =>
    conditions.every(({ path, alternatives }) => {
      const value = values.get(keyOfValue({ parent: _id, path }));
      return alternatives.some((each) => matches(each, value) && !isExcluded(each, id_model));
    });
  return new Set(candidates.filter(isMatch).map(({ _id }) => keyOfId(_id)));
}

function matches({ values }: Alternative, value: Scalar | null | undefined): boolean {
  if ('exact' in values) return value === values.exact;
  const { from = Number.NEGATIVE_INFINITY, to = Number.POSITIVE_INFINITY } = values;
  return typeof value === 'number' && value >= from && value <= to;
}

function isExcluded({ excluded_models }: Alternative, id_model: string | undefined): boolean {
  return id_model !== undefined && excluded_models.includes(id_model);
}
