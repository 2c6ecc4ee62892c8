import { read_limit_ms } from '../../db/database.js';
import { type Id, keyOfId } from '../../db/ids.js';
import type { Index } from '../../db/indexes.js';
import { isWholeList, type QueryPlan } from '../../db/query-plan.js';
import { findAll, runPipeline } from '../../db/raw-find.js';
import { AppError } from '../../errors.js';
import { splitIntoBatches } from '../../lib/batches.js';
import { buildAlarmConditions } from '../../resources/device/alarms.js';
import { buildEntryConditions } from '../../resources/device/configs.js';
import { alarm, device, devicestate, devicevalue } from '../../resources/index.js';
import type { ListRequest } from '../../schema/list-parameters.js';
import type { LookUpScope } from './path-filters.js';

type Stored = Readonly<Record<string, unknown>>;

/** A condition of devices on documents of another collection below them: one has to match an alternative. */
export interface RelatedCondition {
  /** Names the condition in faults. */
  param: string;
  plural: string;
  /** Not for devices of the excluded models. */
  alternatives: readonly { filter: Stored; excluded_models?: readonly string[] }[];
}

/** Adds the condition on some devices to a filter. */
type Narrow = (filter: Stored, devices: readonly Id[]) => Stored;

/** Indexes and queries of a collection. */
interface RelatedCollection {
  /** Index for the conditions alone, and the stage that yields the device of each document as `_id`. */
  all: Index['key'];
  toDevice: object;
  /** Index for the conditions of some devices. */
  ofDevices: Index['key'];
  narrow: Narrow;
}

export const statesByEntry = {
  account: 1,
  'configs.name': 1,
  'configs.status': 1,
  'configs.desired': 1,
  'configs.reported': 1,
} as const;

export const byValue = { path: 1, value: 1, parent: 1 } as const;

const alarmsByState = { account: 1, state: 1, raised_at: 1, _id: 1 } as const;
const byId = { $project: { _id: 1 } };
const byParent = { $project: { _id: '$parent' } };
/** An alarm is one of several of its device. */
const perParent = { $group: { _id: '$parent' } };

const ofParents: Narrow = (filter, devices) => ({ parent: { $in: devices }, ...filter });
const openOf: Narrow = (filter, devices) => ({ parent: { $in: devices }, is_current: true, ...filter });
const valuesOf: Narrow = ({ path, ...filter }, devices) => {
  const _id = { $in: devices.map((parent) => ({ parent, path })) };
  return { _id, ...filter };
};

const relatedCollections: ReadonlyMap<string, RelatedCollection> = new Map([
  [alarm.plural, { all: alarmsByState, toDevice: perParent, ofDevices: { parent: 1, is_current: 1 }, narrow: openOf }],
  [devicestate.plural, { all: statesByEntry, toDevice: byParent, ofDevices: { parent: 1 }, narrow: ofParents }],
  [devicevalue.plural, { all: byValue, toDevice: byParent, ofDevices: { _id: 1 }, narrow: valuesOf }],
]);

/** Builds the conditions on open alarms and on configuration files. */
export function buildStateConditions({ account }: LookUpScope, { params }: ListRequest): RelatedCondition[] {
  const conditions: RelatedCondition[] = [];
  if (typeof params.alarm === 'string') {
    const filter = { account, ...buildAlarmConditions(params.alarm) };
    conditions.push({ param: 'alarm', plural: alarm.plural, alternatives: [{ filter }] });
  }
  if (typeof params.config === 'string') {
    const filter = { account, configs: { $elemMatch: buildEntryConditions(params) } };
    conditions.push({ param: 'config', plural: devicestate.plural, alternatives: [{ filter }] });
  }
  return conditions;
}

/** Devices of other conditions that are compared one by one before more documents are read. */
const max_compared = 5000;
/** Devices that one command looks up. */
const piece_size = 5000;

/**
 * Selects the devices that meet all conditions: by the one that the fewest documents meet, or if these are many by the
 * other conditions of the request. @param planOthers plans the list without these conditions
 * @throws AppError badParameter (4004) if neither leaves few enough for their ids to be a condition of one query
 */
export async function selectDevices(
  scope: LookUpScope,
  conditions: readonly RelatedCondition[],
  planOthers: () => Promise<Pick<QueryPlan, 'filter' | 'hint'>>,
): Promise<readonly Id[]> {
  const { max_selected } = scope.store;
  const numbers = await Promise.all(conditions.map((condition) => countDocuments(scope, condition)));
  const number = Math.min(...numbers);
  if (number > Math.min(max_compared, max_selected)) {
    const plan = await planOthers();
    const max = number > max_selected ? max_selected : max_compared;
    const ids = isWholeList(plan) ? undefined : await findIds(scope, device.plural, plan, byId, max);
    if (ids !== undefined && ids.length <= max) return selectMatching(scope, conditions, ids);
  }
  const rarest = conditions[numbers.indexOf(number)];
  const ids = rarest === undefined ? [] : await findDevices(scope, rarest);
  const others = conditions.filter((condition) => condition !== rarest);
  if (ids.length <= max_selected) return selectMatching(scope, others, ids);
  const fault = `matches more than ${max_selected} devices: narrow it, or add a filter that leaves fewer`;
  throw new AppError('badParameter', Object.fromEntries(conditions.map(({ param }) => [param, fault])));
}

/** Counts the documents that match, up to one more than are selected. */
async function countDocuments({ store }: LookUpScope, { plural, alternatives }: RelatedCondition): Promise<number> {
  const options = { hint: accessOf(plural).all, limit: store.max_selected + 1, maxTimeMS: read_limit_ms };
  const collection = store.db.collection(plural);
  const numbers = await Promise.all(alternatives.map(({ filter }) => collection.countDocuments(filter, options)));
  return numbers.reduce((sum, number) => sum + number, 0);
}

/** Finds the devices that meet one condition, one more than are selected at most for each alternative. */
export async function findDevices(
  scope: LookUpScope,
  { plural, alternatives }: RelatedCondition,
): Promise<readonly Id[]> {
  const { all: hint, toDevice } = accessOf(plural);
  const found = await Promise.all(
    alternatives.map(async ({ filter, excluded_models }) => {
      const ids = await findIds(scope, plural, { filter, hint }, toDevice);
      return removeModels(scope, ids, excluded_models);
    }),
  );
  return found.flat();
}

/** Finds ids of devices, one more than `max`. @param toDevice stage that yields them */
async function findIds(
  { store }: LookUpScope,
  plural: string,
  { filter, hint }: Pick<QueryPlan, 'filter' | 'hint'>,
  toDevice: object,
  max = store.max_selected,
): Promise<readonly Id[]> {
  const pipeline = [{ $match: filter }, toDevice, { $limit: max + 1 }];
  const options = { ...(hint && { hint }), batchSize: piece_size };
  return (await runPipeline<{ _id: Id }>(store.db.collection(plural), pipeline, options)).map(({ _id }) => _id);
}

/** Finds out which of some devices meet all conditions, now or at an earlier moment. */
export async function selectMatching(
  scope: LookUpScope,
  conditions: readonly RelatedCondition[],
  ids: readonly Id[],
): Promise<readonly Id[]> {
  if (conditions.length === 0) return ids;
  const kept: Id[] = [];
  for (const piece of splitIntoBatches(ids, piece_size)) {
    let matching = piece;
    for (const condition of conditions) matching = await keepOfCondition(scope, condition, matching);
    kept.push(...matching);
  }
  return kept;
}

async function keepOfCondition(
  scope: LookUpScope,
  { plural, alternatives }: RelatedCondition,
  ids: readonly Id[],
): Promise<readonly Id[]> {
  const { ofDevices: hint, narrow } = accessOf(plural);
  const matching = new Set<string>();
  for (const { filter, excluded_models } of ids.length === 0 ? [] : alternatives) {
    const documents = await findAll(scope.store.db.collection(plural), {
      filter: narrow(filter, ids),
      projection: { _id: 0, parent: 1 },
      hint,
      readConcern: scope.readConcern,
    });
    const parents = documents.map(({ parent }) => parent as Id);
    for (const id of await removeModels(scope, parents, excluded_models)) matching.add(keyOfId(id));
  }
  return ids.filter((id) => matching.has(keyOfId(id)));
}

/** Leaves out devices of some models, which nearly none are. */
export async function removeModels(
  { store, account, readConcern }: LookUpScope,
  ids: readonly Id[],
  models: readonly string[] = [],
): Promise<readonly Id[]> {
  if (models.length === 0) return ids;
  const excluded = new Set<string>();
  for (const piece of splitIntoBatches(ids, piece_size)) {
    const documents = await findAll(store.db.collection(device.plural), {
      filter: { _id: { $in: piece }, account, id_model: { $in: models } },
      projection: { _id: 1 },
      hint: { _id: 1 },
      readConcern,
    });
    for (const { _id } of documents) excluded.add(keyOfId(_id));
  }
  return ids.filter((id) => !excluded.has(keyOfId(id)));
}

function accessOf(plural: string): RelatedCollection {
  const access = relatedCollections.get(plural);
  if (access === undefined) throw new Error(`${plural} select no devices`);
  return access;
}
