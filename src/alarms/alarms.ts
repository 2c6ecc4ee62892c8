import type { Database } from '../db/database.js';
import { deleteInChunks } from '../db/delete-in-chunks.js';
import { findMany, findOne, showOne } from '../db/raw-find.js';
import { withTransaction } from '../db/transaction.js';
import { AppError, createFieldErrors, throwIfAny } from '../errors.js';
import { splitIntoBatches } from '../lib/batches.js';
import { assertConfirmed, atomic_limit_ms, max_atomic, max_documents } from '../objects/bulk/change.js';
import type { OperationContext } from '../objects/context.js';
import type { Bson } from '../objects/page.js';
import { compile } from '../objects/select/compile.js';
import { count, readOptions } from '../objects/select/read.js';
import { buildPlaceFilter, isAlarmState } from '../resources/alarm.js';
import type { AlarmState } from '../resources/alarm-states.js';
import { alarm } from '../resources/index.js';
import type { Values } from '../schema/fields.js';
import type { ListRequest } from '../schema/list-parameters.js';
import {
  type AlarmRecord,
  buildUpdate,
  describeChange,
  type RecordChange,
  recordsOf,
  updateRecord,
} from './records.js';

export interface AlarmUpdate {
  state?: AlarmState;
  /** `null` removes it. */
  note?: string | null;
}

const max_attempts = 20;
const notTaken = 'must be acknowledged or closed';

/** @throws AppError notFound (4041) */
export async function showAlarm(ctx: OperationContext, id: string): Promise<Bson> {
  return showOne(ctx.store.db.collection(alarm.plural), buildFilter(ctx, id));
}

function buildFilter({ account, limit }: OperationContext, id: string): object {
  return { account, id, ...(limit && buildPlaceFilter(limit)) };
}

/** Checks the body of an update. @throws AppError invalid (4003) */
export function parseAlarmUpdate(body: Values): AlarmUpdate {
  const faults = createFieldErrors();
  const update: AlarmUpdate = {};
  for (const [key, value] of Object.entries(body)) {
    if (key === 'state' && value !== null) {
      if (isAlarmState(value)) update.state = value;
      else faults.state = notTaken;
    } else if (key === 'note') {
      if (value === null) update.note = null;
      else update.note = alarm.fields.note?.type.body(value, 'note', faults) as string;
    } else if (key !== 'state' && !Object.hasOwn(alarm.readOnly, key)) faults[key] = 'unknown field';
  }
  throwIfAny('invalid', faults);
  return update;
}

/** Acknowledges, closes or annotates an alarm in one conditional write. @throws AppError notFound (4041), invalid (4003) */
export async function updateAlarm(ctx: OperationContext, id: string, update: AlarmUpdate): Promise<Bson> {
  const { db } = ctx.store;
  for (let attempt = 0; attempt < max_attempts; attempt++) {
    const record = await findOne(recordsOf(db), buildFilter(ctx, id));
    if (record === undefined) throw new AppError('notFound');
    const change = planUpdate(ctx, record, update);
    if (change === undefined || (await updateRecord(db, record, change)) !== undefined) return showAlarm(ctx, id);
  }
  throw new AppError('database', {}, { cause: new Error('the alarm changes too often') });
}

/** The states from which a person cannot bring an alarm to another one, by that. */
const refusedFrom: Readonly<Record<AlarmState, readonly AlarmState[]>> = {
  active: ['acknowledged', 'closed'],
  acknowledged: ['closed'],
  closed: [],
};

function isRefused({ state: present }: AlarmRecord, { state }: { state?: AlarmState | undefined }): boolean {
  return state !== undefined && present !== undefined && refusedFrom[state].includes(present);
}

/** @returns undefined if the alarm is so already @throws AppError invalid (4003) for a closed one that would be acknowledged */
function planUpdate(
  ctx: OperationContext,
  record: AlarmRecord,
  { state, note }: AlarmUpdate,
): RecordChange | undefined {
  const { user, now, request_id } = ctx;
  const isTransition = state !== undefined && state !== record.state;
  if (isRefused(record, { state }))
    throw new AppError('invalid', { state: state === 'active' ? notTaken : 'is closed already' });
  const noteChange = note === undefined || note === (record.note ?? null) ? {} : { note: note ?? undefined };
  if (!isTransition && !('note' in noteChange)) return undefined;
  const set: Partial<AlarmRecord> = { ...(noteChange.note !== undefined && { note: noteChange.note }) };
  if (isTransition && state === 'acknowledged')
    Object.assign(set, { state, acknowledged_at: now, acknowledged_by: user });
  if (isTransition && state === 'closed') Object.assign(set, { state, closed_at: now, closed_by: user });
  const after = { ...record, ...set };
  const unset = 'note' in noteChange && noteChange.note === undefined ? (['note'] as const) : [];
  for (const key of unset) delete after[key];
  if (isTransition && state !== 'active') set.last_change = describeChange(state, after, { user, request_id });
  return { set, unset };
}

/** Changes all alarms that match. @throws AppError conflict (4005) unless `confirmed` match, invalid (4003); then none is changed */
export async function updateMatchingAlarms(
  ctx: OperationContext,
  request: ListRequest,
  update: AlarmUpdate,
): Promise<{ matched: number; changed?: number }> {
  const { db } = ctx.store;
  const selection = await compile(ctx, alarm, request);
  const { filter, hint } = selection;
  const matched = await count(ctx, selection);
  // what is invalid for one of them changes none
  if (update.state !== undefined) {
    const refusing = { $and: [filter, { state: { $in: [...refusedFrom[update.state]] } }] };
    const refused = await findOne(recordsOf(db), refusing, readOptions(hint));
    if (refused !== undefined) planUpdate(ctx, refused, update);
  }
  const { confirm } = request.params;
  if (typeof confirm !== 'number') return { matched };
  assertConfirmed(confirm, matched);
  if (matched <= max_atomic) return { matched, changed: (await updateFirst(ctx, filter, update, matched)).changed };
  let changed = 0;
  for (let piece: object | undefined = filter; piece !== undefined; ) {
    const done = await updateFirst(ctx, piece, update);
    changed += done.changed;
    piece = done.next && { $and: [filter, done.next] };
  }
  return { matched, changed };
}

/**
 * Changes the first alarms that match, in order of their internal ids, in one transaction. @param confirmed so many match, or
 * none is changed; without it, those that no longer take the change are left out @returns the condition on those that follow
 * @throws AppError conflict (4005), invalid (4003); then none is changed
 */
function updateFirst(
  ctx: OperationContext,
  filter: object,
  update: AlarmUpdate,
  confirmed?: number,
): Promise<{ changed: number; next: object | undefined }> {
  const { db } = ctx.store;
  const limit = confirmed === undefined ? max_atomic : confirmed + 1;
  return withTransaction(db.collection(alarm.plural), atomic_limit_ms, async (session) => {
    const options = { session, sort: { _id: 1 }, limit } as const;
    const records = await findMany(recordsOf(db), filter, options);
    if (confirmed !== undefined) assertConfirmed(confirmed, records.length);
    const taking = confirmed === undefined ? records.filter((record) => !isRefused(record, update)) : records;
    const writes = taking.flatMap((record) => {
      const change = planUpdate(ctx, record, update);
      if (change === undefined) return [];
      const write = buildUpdate(record, change);
      return [{ updateOne: { filter: write.filter, update: write.update } }];
    });
    // each command within the time limit of the socket, also on a busy machine
    for (const batch of splitIntoBatches(writes, max_documents)) await recordsOf(db).bulkWrite([...batch], { session });
    const last = records.at(-1);
    return { changed: taking.length, next: last && records.length === limit ? { _id: { $gt: last._id } } : undefined };
  });
}

const retention_s = 90 * 86_400;

/** Deletes the alarms that were closed 90 days before `now` (epoch seconds). */
export async function removeOldAlarms(db: Database, now: number): Promise<void> {
  const filter = { closed_at: { $lt: now - retention_s } };
  await deleteInChunks(db.collection(alarm.plural), filter, { sort: { closed_at: 1 } });
}
