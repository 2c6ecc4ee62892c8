import { randomInt } from 'node:crypto';
import type { mongo } from 'mongoose';
import { createBatcher } from '../db/batching/batcher.js';
import { createLookup } from '../db/batching/lookup.js';
import type { Database } from '../db/database.js';
import { type Id, keyOfId } from '../db/ids.js';
import { OpaqueJson, sizeOfOpaque } from '../db/opaque-json.js';
import { findMany } from '../db/raw-find.js';
import type { Ancestors } from '../objects/tree/ancestors.js';
import { formatLastChange } from '../objects/write/last-change.js';
import { type AlarmState, openStates, type Severity } from '../resources/alarm-states.js';
import { ancestorFields } from '../resources/event.js';
import { alarm } from '../resources/index.js';

/** Revisions are random: a stored one shows which write was applied. */
const max_revision = 2 ** 48 - 1;

/** State of the conditions of a rule at a device. */
export interface Memory {
  /** The conditions that were evaluated. */
  conditions_key: string;
  /** Which conditions were met. */
  met: readonly boolean[];
  /** When the path of each condition on absence was last received, epoch seconds; null for other conditions. */
  seen: readonly (number | null)[];
  /** Since when the rule holds. */
  since?: number | undefined;
  /** When it has to be looked at again without a stream. */
  due_at?: number | undefined;
}

/** The document of a rule and a device: an alarm, or what may become one. */
export interface AlarmRecord extends Memory, Ancestors {
  _id: Id;
  /** Set when the alarm is raised, so that lists show it. */
  account?: string;
  tenant: string;
  rule_id: Id;
  rule: string;
  /** The device. */
  parent: Id;
  device: string;
  ancestors: readonly Id[];
  is_current?: true;
  watch_key: string;
  revision: number;
  id?: string;
  severity?: Severity;
  gravity?: number;
  state?: AlarmState;
  values?: unknown;
  /** The `at` of the stream that raised it. */
  at?: number;
  raised_at?: number;
  acknowledged_at?: number;
  acknowledged_by?: string;
  closed_at?: number;
  closed_by?: string;
  note?: string;
  last_change?: string;
}

/** The user behind a change; undefined if the service makes it. */
export interface AlarmAuthor {
  user: string;
  request_id: string;
}

/** The records of all accounts. */
export const recordsOf = (db: Database) => db.collection<AlarmRecord>(alarm.plural);

/** Reports whether a record is an alarm that is not closed. */
export function isOpen({ state }: AlarmRecord): boolean {
  return state !== undefined && openStates.includes(state);
}

/** Reports whether a condition is met. */
export function isAnyMet({ met }: Pick<AlarmRecord, 'met'>): boolean {
  return met.some(Boolean);
}

/** The key that only the current record of a rule and a device has. */
export function buildWatchKey(rule_id: Id, device: Id): string {
  return `${String(rule_id)} ${String(device)}`;
}

/** Finds the current records of devices, by device and rule. */
export async function findRecords(
  db: Database,
  devices: readonly Id[],
): Promise<ReadonlyMap<string, ReadonlyMap<string, AlarmRecord>>> {
  const query = { parent: { $in: [...devices] }, is_current: true as const };
  // the event of the last change is only written
  const options = { projection: { last_change: 0 }, hint: { parent: 1, is_current: 1 } };
  const byDevice = new Map<string, Map<string, AlarmRecord>>();
  for (const record of await findMany(recordsOf(db), query, options)) {
    const key = keyOfId(record.parent);
    const byRule = byDevice.get(key) ?? new Map<string, AlarmRecord>();
    byDevice.set(key, byRule.set(keyOfId(record.rule_id), record));
  }
  return byDevice;
}

const shownMembers = [
  ...['id', 'rule', 'device', 'severity', 'state', 'values', 'at', 'raised_at', 'acknowledged_at'],
  ...['acknowledged_by', 'closed_at', 'closed_by', 'note', ...ancestorFields],
] as const;

type EventKind = 'raised' | 'acknowledged' | 'closed';

/** Writes the event of a change, with the alarm as it is after it. */
export function describeChange(kind: EventKind, record: AlarmRecord, author?: AlarmAuthor): string {
  const members = shownMembers.map((key) => [key, record[key as keyof AlarmRecord]]);
  const data = Object.fromEntries(members.filter(([, value]) => value !== undefined));
  return formatLastChange({ events: [{ type: `alarm.${kind}`, ...author, data }] });
}

/** A change of a record: members to set, and members to remove. */
export interface RecordChange {
  set: Partial<AlarmRecord>;
  unset?: readonly (keyof AlarmRecord)[];
}

/** Changes a record unless it was changed since it was read. @returns the record after the change, undefined if it was */
export async function updateRecord(
  db: Database,
  record: AlarmRecord,
  change: RecordChange,
): Promise<AlarmRecord | undefined> {
  const { filter, update, after } = buildUpdate(record, change);
  return (await recordsOf(db).updateOne(filter, update)).modifiedCount === 1 ? after : undefined;
}

/** Builds the write that changes a record unless it was changed since it was read, and the record after it. */
export function buildUpdate(record: AlarmRecord, { set, unset = [] }: RecordChange) {
  const revision = randomInt(max_revision);
  const values = set.values === undefined ? {} : { values: new OpaqueJson(set.values) };
  const update = {
    $set: { ...withoutUndefined(set), ...values, revision },
    ...(unset.length > 0 && { $unset: Object.fromEntries(unset.map((key) => [key, 1 as const])) }),
  };
  const after: AlarmRecord = { ...record, ...set, revision };
  for (const key of unset) delete after[key];
  return { filter: { _id: record._id, revision: record.revision }, update, after };
}

function withoutUndefined<T extends object>(values: T): T {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as T;
}

/** The change that makes a record no longer the current one of its rule and device. */
export function buildRetirement({ _id }: AlarmRecord): RecordChange {
  return {
    set: { watch_key: String(_id) },
    unset: ['is_current', 'met', 'seen', 'since', 'due_at'],
  };
}

/** The change that closes an alarm. @param now epoch seconds */
export function buildClosing(record: AlarmRecord, now: number): RecordChange {
  const set = { state: 'closed' as const, closed_at: Math.floor(now) };
  const { set: retired, unset = [] } = buildRetirement(record);
  return { set: { ...set, ...retired, last_change: describeChange('closed', { ...record, ...set }) }, unset };
}

interface Job {
  _id: Id;
  operation: mongo.AnyBulkWriteOperation<AlarmRecord>;
  /** The revision after the write; undefined for a deletion. */
  revision?: number;
  account: string;
  bytes: number;
  isApplied?: boolean;
}

const maxBatchSize = 250;

/**
 * Creates the reader and writer of records. Evaluations at the same time share commands (docs/decisions/0008-batched-commands.md).
 * The result of a write is undefined if the record was changed since it was read: read it again.
 */
export function createRecordBatches(db: Database) {
  const find = createLookup<string, AlarmRecord>({
    async fetch(keys) {
      const stored = await findMany(recordsOf(db), { watch_key: { $in: [...keys] } });
      return new Map(stored.map((record) => [record.watch_key, record]));
    },
    keyOf: (watch_key) => watch_key,
    maxBatchSize,
  });
  const submit = createBatcher<Job>(
    async (jobs) => {
      const operations = jobs.map(({ operation }) => operation);
      const { matchedCount, deletedCount } = await recordsOf(db).bulkWrite(operations, { ordered: false });
      if (matchedCount + deletedCount === jobs.length) for (const job of jobs) job.isApplied = true;
      else await markApplied(db, jobs);
    },
    { maxBatchSize, bytesOf: ({ bytes }) => bytes, maxInFlight: 2, accountOf: ({ account }) => account },
  );

  async function write(job: Job): Promise<boolean> {
    await submit(job);
    return job.isApplied === true;
  }

  const batches = {
    /** Finds the current record of a rule and a device by `buildWatchKey` of both. */
    find,
    /** Changes a record. @returns the record after the change */
    async update(record: AlarmRecord, change: RecordChange): Promise<AlarmRecord | undefined> {
      const { filter, update, after } = buildUpdate(record, change);
      const { _id, revision, tenant: account } = after;
      // the event holds the values too
      const bytes = 2 * sizeOfOpaque(update.$set);
      return (await write({ _id, account, operation: { updateOne: { filter, update } }, revision, bytes }))
        ? after
        : undefined;
    },
    /** Deletes a record that never was an alarm. */
    async delete({ _id, tenant: account, revision }: AlarmRecord): Promise<'none' | undefined> {
      const operation = { deleteOne: { filter: { _id, revision } } };
      return (await write({ _id, account, operation, bytes: 0 })) ? 'none' : undefined;
    },
    /** Ends a record whose rule no longer covers its device: an alarm is closed. @param now epoch seconds */
    async end(record: AlarmRecord, now: number): Promise<void> {
      if (record.state === undefined) await batches.delete(record);
      else await batches.update(record, isOpen(record) ? buildClosing(record, now) : buildRetirement(record));
    },
  };
  return batches;
}

/** A bulk write reports how many writes were applied, not which: the revisions show it, unless they were written since. */
async function markApplied(db: Database, jobs: readonly Job[]): Promise<void> {
  const filter = { _id: { $in: jobs.map(({ _id }) => _id) } };
  const stored = await findMany(recordsOf(db), filter, { projection: { revision: 1 } });
  const revisions = new Map(stored.map(({ _id, revision }) => [keyOfId(_id), revision]));
  for (const job of jobs)
    job.isApplied = job.revision !== undefined && revisions.get(keyOfId(job._id)) === job.revision;
}
