import { read_limit_ms } from '../db/database.js';
import { findAll, type RawQuery } from '../db/raw-find.js';
import { AppError } from '../errors.js';
import { buildAlarmConditions } from '../resources/device/alarms.js';
import { alarm } from '../resources/index.js';
import type { ListRequest } from '../schema/list-parameters.js';
import type { OperationContext } from './context.js';

type Scope = Pick<OperationContext, 'store' | 'account'>;

/** Their ids are a condition of one query, which has to be read within its time. */
const max_alarmed = 200_000;
const alarmsByState = { account: 1, state: 1, raised_at: 1, _id: 1 } as const;
const alarmsByDevice = { account: 1, device: 1, raised_at: 1, _id: 1 } as const;

/** Builds the filter of devices by their open alarms. @throws AppError badParameter (4004) if they are too many */
export async function buildAlarmFilter(scope: Scope, { params }: ListRequest): Promise<object[]> {
  if (typeof params.alarm !== 'string') return [];
  const match = { account: scope.account, ...buildAlarmConditions(params.alarm) };
  const pipeline = [{ $match: match }, { $group: { _id: '$parent' } }, { $limit: max_alarmed + 1 }];
  const devices = await scope.store.db
    .collection(alarm.plural)
    .aggregate(pipeline, { hint: alarmsByState, maxTimeMS: read_limit_ms })
    .toArray();
  if (devices.length > max_alarmed)
    throw new AppError('badParameter', { alarm: `matches more than ${max_alarmed} devices` });
  return [selectIds(devices.map(({ _id }) => _id))];
}

/** Builds the same filter of some devices, now or at an earlier moment. @param ids identifiers */
export async function buildAlarmFilterOf(
  { store, account }: Scope,
  { params }: ListRequest,
  ids: readonly string[],
  readConcern?: RawQuery['readConcern'],
): Promise<object[]> {
  if (typeof params.alarm !== 'string') return [];
  const alarms = await findAll(store.db.collection(alarm.plural), {
    filter: { account, device: { $in: ids }, ...buildAlarmConditions(params.alarm) },
    projection: { parent: 1 },
    hint: alarmsByDevice,
    maxTimeMS: read_limit_ms,
    ...(readConcern && { readConcern }),
  });
  return [selectIds(alarms.map(({ parent }) => parent))];
}

/** A condition on ids, not at the top, where the id that a key is limited to is compared. */
export function selectIds(ids: readonly unknown[]): object {
  return { $and: [{ _id: { $in: ids } }] };
}
