import type { mongo } from 'mongoose';
import { createBatcher } from '../db/batching/batcher.js';
import { createLookup } from '../db/batching/lookup.js';
import type { Database } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { sizeOfOpaque } from '../db/opaque-json.js';
import { findMany } from '../db/raw-find.js';
import { keyOfId } from '../objects/ancestors.js';
import {
  type AlarmRecord,
  buildClosing,
  buildRetirement,
  buildUpdate,
  isOpen,
  type RecordChange,
  recordsOf,
} from './records.js';

export type RecordBatches = ReturnType<typeof createRecordBatches>;

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
