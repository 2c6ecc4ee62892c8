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

/**
 * Reads and writes records. Evaluations at the same time share commands (docs/decisions/0008-batched-commands.md). The result of
 * a write is undefined if the record was changed since it was read: read it again.
 */
export interface RecordBatches {
  /** Finds the current record of a rule and a device. @param watch_key `buildWatchKey` of both */
  find(watch_key: string): Promise<AlarmRecord | undefined>;
  /** Changes a record. @returns the record after the change */
  update(record: AlarmRecord, change: RecordChange): Promise<AlarmRecord | undefined>;
  /** Deletes a record that never was an alarm. */
  delete(record: AlarmRecord): Promise<'none' | undefined>;
  /** Ends a record whose rule no longer covers its device: an alarm is closed. @param now epoch seconds */
  end(record: AlarmRecord, now: number): Promise<void>;
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

/** Creates the access of a process to the records of all accounts. */
export function createRecordBatches(db: Database): RecordBatches {
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

  const batches: RecordBatches = {
    find,
    async update(record, change) {
      const { filter, update, after } = buildUpdate(record, change);
      const { _id, revision, tenant: account } = after;
      // the event holds the values too
      const bytes = 2 * sizeOfOpaque(update.$set);
      return (await write({ _id, account, operation: { updateOne: { filter, update } }, revision, bytes }))
        ? after
        : undefined;
    },
    async delete({ _id, tenant: account, revision }) {
      const operation = { deleteOne: { filter: { _id, revision } } };
      return (await write({ _id, account, operation, bytes: 0 })) ? 'none' : undefined;
    },
    async end(record, now) {
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
