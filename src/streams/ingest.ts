import type { mongo } from 'mongoose';
import { createBatcher } from '../db/batching/batcher.js';
import type { Database } from '../db/database.js';
import { AppError, createFieldErrors, type FieldErrors } from '../errors.js';
import { awaitLater } from '../lib/promises.js';
import { createShares } from '../lib/shares.js';
import { createDeferredReceipts, type DeferredReceipts } from '../objects/receipts/deferred-receipts.js';
import type { PrepareEvaluation } from '../objects/receipts/received-streams.js';
import type { AreAncestorsEnabled } from '../objects/tree/ancestors.js';
import { replaceRevisions } from '../objects/values/last-stream-cache.js';
import { createValueRecorder } from '../objects/values/recorder.js';
import { stream } from '../resources/index.js';
import { createLateMarker } from '../summaries/marks.js';
import { buildDocument, insertDocuments, type StreamDocument, setSender } from './documents.js';
import { type AccountPart, compareWithRules, createFinisher, findLastTimes } from './finish.js';
import { createOnceInserter, findMissing } from './insert-once.js';
import { createNumbering, type NextNumber } from './numbering.js';
import { collectMoves, recordReceipts } from './receipts.js';
import {
  type Devices,
  findDevices,
  findFaults,
  findSenders,
  type StoredDevice,
  type Submission,
  unknownDevice,
} from './senders.js';
import { removeByKeys } from './store.js';

/** Streams with their documents, numbered in the order of receipt, as one batch can overtake another. */
interface Job extends Submission {
  /** Once they are stored: those that are not left out. */
  documents: readonly StreamDocument[];
  /** Work of its account with its streams after the batch. */
  finished?: Promise<void> | undefined;
}

/** Stores streams durably and moves the deadlines of their devices. */
export type Ingest = (submission: Submission) => Promise<unknown>;
/** Observers of the ingest. */
export interface IngestMetrics {
  stored(count: number): void;
  batch(jobs: number): void;
  /** Duration from submission until durable. */
  ingested(milliseconds: number): void;
}

interface Options {
  db: Database;
  /** Default: none are kept. */
  deferred?: DeferredReceipts;
  areAncestorsEnabled: AreAncestorsEnabled;
  metrics: IngestMetrics;
  /** Epoch milliseconds. */
  clock: () => number;
  /** Evaluates what was stored before any job resolves. */
  prepareEvaluation?: PrepareEvaluation;
}

const batch_entries = 2000;
/** Time that a stream waits for others, so that fewer and larger batches are written. */
const max_wait_ms = 20;
/** Streams of all accounts that are not answered yet; more would be answered too late. */
const max_unanswered = 100_000;

/**
 * Group commit: streams that arrive together are written together. Looking up devices, inserting streams, acknowledged by a
 * majority and journaled (reference/streams.md#durability), and looking at the devices again are one command each per batch
 * before any job resolves. Values and alarms follow for each account by itself.
 * @returns a function that reports of each stream whether it is stored: not if it is left out, as its device has it. It throws
 * AppError invalid (4003) for unknown or disabled devices, overloaded (5033) before anything is stored, database (5031)
 */
export function createIngest(options: Options): (submission: Submission) => Promise<boolean[]> {
  const { metrics, clock } = options;
  const unanswered = createShares({ capacity: max_unanswered });
  const nextNumber = createNumbering(clock);
  const stages = openStages(options, nextNumber);
  const submit = createBatcher((jobs: readonly Job[]) => commit(stages, jobs), {
    size: ({ entries }) => entries.length,
    bytesOf: ({ entries }) => entries.reduce((sum, { data }) => sum + data.size, 0),
    maxBatchSize: batch_entries,
    maxInFlight: 2,
    maxWait_ms: max_wait_ms,
    accountOf: ({ account }) => account,
  });
  return async (submission) => {
    const begun = performance.now();
    const { entries, account, now } = submission;
    const release = unanswered.take(account, entries.length);
    const documents = entries.map((entry) => buildDocument(submission, entry, nextNumber(now)));
    const job: Job = { ...submission, documents };
    try {
      await submit(job);
      await job.finished;
    } finally {
      release();
    }
    metrics.ingested(performance.now() - begun);
    const stored = new Set(job.documents);
    return documents.map((document) => stored.has(document));
  };
}

/** State and functions that the batches of a process share. */
type Stages = ReturnType<typeof openStages>;

function openStages(options: Options, nextNumber: NextNumber) {
  const { db, clock } = options;
  const values = createValueRecorder(db, clock);
  const insertOnce = createOnceInserter(db, nextNumber);
  return {
    deferred: createDeferredReceipts(db),
    ...options,
    nextNumber,
    insertOnce,
    values,
    late: createLateMarker(db, clock),
    finish: createFinisher(values),
  };
}

/** Stores the streams of a batch, from the look at their devices to the move of the deadlines. @returns refused jobs */
async function commit(stages: Stages, jobs: readonly Job[]): Promise<ReadonlyMap<Job, Error>> {
  const { db, areAncestorsEnabled, metrics, values, late } = stages;
  metrics.batch(jobs.length);
  const devices = await findDevices(db, areAncestorsEnabled, jobs);
  const faulty = await findFaults(jobs, devices);
  const valid = jobs.filter((job) => !faulty.has(job));
  for (const document of documentsOf(valid)) {
    const sender = devices.get(document._id.device);
    if (sender !== undefined) setSender(document, sender);
  }
  await simulate(
    db,
    valid.filter(({ isDryRun }) => isDryRun),
  );
  const storing = valid.filter(({ isDryRun }) => isDryRun !== true);
  const documents = documentsOf(storing);
  if (documents.length > 0) {
    const last = await findLast(stages, storing, devices);
    const endReview = await values.begin(findSenders(documents, devices));
    await late.begin(documents);
    await insert(stages, storing);
    await late.end(documents);
    const withdrawn = await follow(stages, storing, devices, { last, endReview });
    metrics.stored(documentsOf(storing.filter((job) => !withdrawn.has(job))).length);
    for (const [job, faults] of withdrawn) faulty.set(job, faults);
  }
  return new Map([...faulty].map(([job, faults]) => [job, new AppError('invalid', faults)]));
}

const documentsOf = (jobs: Iterable<Job>) => [...jobs].flatMap(({ documents }) => documents);

/** Leaves out of a dry run what devices have. */
async function simulate(db: Database, jobs: readonly Job[]): Promise<void> {
  const once = jobs.filter(({ skipsRepeated }) => skipsRepeated);
  const missing = new Set(await findMissing(db.collection<mongo.Document>(stream.plural), documentsOf(once)));
  for (const job of once) job.documents = job.documents.filter((document) => missing.has(document));
}

/** Finds the last streams of devices whose imported streams rules are compared with. */
async function findLast(
  { db, clock, prepareEvaluation }: Stages,
  jobs: readonly Job[],
  devices: Devices,
): Promise<ReadonlyMap<string, number>> {
  const imported = jobs.filter(({ account, isImport }) => isImport && prepareEvaluation?.(account) !== undefined);
  if (imported.length === 0) return new Map();
  return findLastTimes(db, findSenders(documentsOf(imported), devices), clock() / 1000);
}

async function insert({ db, nextNumber, insertOnce }: Stages, jobs: readonly Job[]): Promise<void> {
  const plain = documentsOf(jobs.filter(({ skipsRepeated }) => skipsRepeated !== true));
  if (plain.length > 0) await insertDocuments(db, plain, nextNumber);
  const once = jobs.filter(({ skipsRepeated }) => skipsRepeated === true);
  if (once.length === 0) return;
  const inserted = await insertOnce(documentsOf(once));
  for (const job of once) job.documents = job.documents.filter((document) => inserted.has(document));
}

interface Stored {
  /** `at` of the last data stream by device, before imported ones were stored. */
  last: ReadonlyMap<string, number>;
  /** Lists may be filtered by values of the streams: ends the review that a crash would leave. */
  endReview: (() => Promise<void>) | undefined;
}

/**
 * Compares stored streams with alarm rules and moves the deadlines of their devices, again if a device has changed in between,
 * and begins the rest of the work of each account. @returns the faults of jobs whose devices were deleted since
 */
async function follow(
  { db, deferred, prepareEvaluation, finish }: Stages,
  stored: readonly Job[],
  devices: Devices,
  { last, endReview }: Stored,
): Promise<ReadonlyMap<Job, FieldErrors>> {
  const withdrawn = new Map<Job, FieldErrors>();
  for (;;) {
    const jobs = stored.filter((job) => !withdrawn.has(job));
    const parts = await compareWithRules(jobs, devices, {
      ...{ prepareEvaluation, isMeasured: endReview !== undefined, last },
    });
    const stream_revision = db.newId();
    if (await recordReceipts({ db, deferred }, collectMoves(jobs, devices, parts), stream_revision)) {
      const finishing = beginFinishing(jobs, parts, (part) => finish(part, stream_revision));
      // a review may have seen what was deleted again
      if (endReview !== undefined && withdrawn.size === 0)
        Promise.all(finishing.values())
          .then(endReview)
          .catch(() => undefined);
      return withdrawn;
    }
    for (const [job, faults] of await rollBackOrphans(db, jobs, devices)) withdrawn.set(job, faults);
  }
}

/** Gives each job what its account still has to do with its streams. */
function beginFinishing(
  jobs: readonly Job[],
  parts: ReadonlyMap<string, AccountPart>,
  finish: (part: AccountPart) => Promise<void>,
): ReadonlyMap<string, Promise<void>> {
  const finishing = new Map<string, Promise<void>>();
  for (const [account, part] of parts) finishing.set(account, awaitLater(finish(part)));
  for (const job of jobs) job.finished = finishing.get(job.account);
  return finishing;
}

/**
 * Deletes the streams just stored for devices that were deleted since, and takes over the marks of the others.
 * @returns the faults of the jobs concerned
 */
async function rollBackOrphans(
  db: Database,
  jobs: readonly Job[],
  devices: Devices,
): Promise<ReadonlyMap<Job, FieldErrors>> {
  const ids = [...devices.values()].map(({ _id }) => _id);
  const still = await db
    .collection<StoredDevice>('devices')
    .find({ _id: { $in: ids } }, { projection: { id_developer: 1, condition_met_at: 1 }, maxTimeMS: 4000 })
    .toArray();
  for (const { id_developer, condition_met_at } of still) {
    const sender = devices.get(id_developer);
    if (sender !== undefined) devices.set(id_developer, { ...sender, condition_met_at });
  }
  const present = new Set(still.map(({ id_developer }) => id_developer));
  const orphans = new Map<Job, FieldErrors>();
  const withdrawn: StreamDocument['_id'][] = [];
  for (const job of jobs) {
    const faults = createFieldErrors();
    for (const [index, { device }] of job.entries.entries()) {
      if (!present.has(device)) faults[job.fieldOf(index, 'device')] = unknownDevice;
    }
    if (Object.keys(faults).length === 0) continue;
    orphans.set(job, faults);
    withdrawn.push(...job.documents.map(({ _id }) => _id));
  }
  await removeByKeys(db.collection('streams'), withdrawn);
  await replaceRevisions(db, still);
  return orphans;
}
