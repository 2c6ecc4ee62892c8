import { type Collection, read_limit_ms } from '../db/database.js';
import { findAll, type RawQuery } from '../db/raw-find.js';
import { AppError } from '../errors.js';
import { buildEntryConditions } from '../resources/device/configs.js';
import { devicestate } from '../resources/index.js';
import type { Values } from '../schema/fields.js';
import type { ListRequest } from '../schema/list-parameters.js';
import { selectIds } from './alarmed-devices.js';
import type { OperationContext } from './context.js';

type Scope = Pick<OperationContext, 'store' | 'account'>;

/** Their ids are a condition of one query, which has to be read within its time. */
const max_selected = 200_000;
/** Index of states by their configuration files. */
export const statesByEntry = {
  account: 1,
  'configs.name': 1,
  'configs.status': 1,
  'configs.desired': 1,
  'configs.reported': 1,
} as const;
const statesByDevice = { account: 1, device: 1 } as const;

/** Builds the filter of devices by a configuration file. @throws AppError badParameter (4004) if they are too many */
export async function buildConfigFilter({ store, account }: Scope, { params }: ListRequest): Promise<object[]> {
  if (typeof params.config !== 'string') return [];
  const pipeline = [
    { $match: { account, ...selectStates(params) } },
    { $limit: max_selected + 1 },
    { $project: { _id: '$parent' } },
  ];
  const devices = await statesOf(store)
    .aggregate(pipeline, { hint: statesByEntry, maxTimeMS: read_limit_ms })
    .toArray();
  if (devices.length > max_selected)
    throw new AppError('badParameter', { config: `matches more than ${max_selected} devices` });
  return [selectIds(devices.map(({ _id }) => _id))];
}

/** Builds the same filter of some devices, now or at an earlier moment. @param ids identifiers */
export async function buildConfigFilterOf(
  { store, account }: Scope,
  { params }: ListRequest,
  ids: readonly string[],
  readConcern?: RawQuery['readConcern'],
): Promise<object[]> {
  if (typeof params.config !== 'string') return [];
  const states = await findAll(statesOf(store), {
    filter: { account, device: { $in: ids }, ...selectStates(params) },
    projection: { parent: 1 },
    hint: statesByDevice,
    maxTimeMS: read_limit_ms,
    ...(readConcern && { readConcern }),
  });
  return [selectIds(states.map(({ parent }) => parent))];
}

function statesOf({ db }: OperationContext['store']): Collection {
  return db.collection(devicestate.plural);
}

function selectStates(params: Values): object {
  return { configs: { $elemMatch: buildEntryConditions(params) } };
}
