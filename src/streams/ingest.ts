import type { mongo } from 'mongoose';
import { createBatcher } from '../db/batching/batcher.js';
import type { Database } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { AppError, createFieldErrors, type FieldErrors } from '../errors.js';
import { awaitLater } from '../lib/promises.js';
import { createShares } from '../lib/shares.js';
import type { AreAncestorsEnabled } from '../objects/ancestors.js';
import { type DeadlineMove, extendDeadlines } from '../objects/device-deadlines.js';
import { replaceRevisions } from '../objects/last-stream-cache.js';
import type { PrepareEvaluation } from '../objects/received-streams.js';
import { createValueRecorder } from '../objects/values/recorder.js';
import type { DeadlineKind } from '../resources/device/status.js';
import { stream } from '../resources/index.js';
import type { StreamKind } from '../resources/stream.js';
import { createLateMarker } from '../summaries/marks.js';
import { buildDocument, insertDocuments, type StreamDocument, setSender } from './documents.js';
import { type AccountPart, compareWithRules, createFinisher, findLastTimes } from './finish.js';
import { createOnceInserter, findMissing } from './insert-once.js';
import { createNumbering } from './numbering.js';
import {
  type Device,
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
/** Numbers of streams that are stored, and that are left out as their devices have them. */
export interface Ingested {
  created: number;
  skipped: number;
}

/** Observers of the ingest. */
export interface IngestMetrics {
  stored(count: number): void;
  batch(jobs: number): void;
  /** Duration from submission until durable. */
  ingested(milliseconds: number): void;
}

interface Options {
  db: Database;
  areAncestorsEnabled: AreAncestorsEnabled;
  metrics: IngestMetrics;
  /** Epoch milliseconds. */
  clock: () => number;
  /** Evaluates what was stored before any job resolves. */
  prepareEvaluation?: PrepareEvaluation;
}

const batch_entries = 2000;
/** Streams of all accounts that are not answered yet; more would be answered too late. */
const max_unanswered = 100_000;

/**
 * Group commit: streams that arrive together are written together. Looking up devices, inserting streams and moving
 * deadlines are one command each per batch, acknowledged by a majority and journaled before any job resolves
 * (reference/streams.md#durability). Values and alarms follow for each account by itself.
 * @returns a function that throws AppError invalid (4003) for unknown or disabled devices, overloaded (5033) before
 * anything is stored, database (5031)
 */
export function createIngest(options: Options): (submission: Submission) => Promise<Ingested> {
  const { db, areAncestorsEnabled, metrics, clock, prepareEvaluation } = options;
  const values = createValueRecorder(db, clock);
  const finish = createFinisher(values);
  const unanswered = createShares({ capacity: max_unanswered });
  const nextNumber = createNumbering(clock);
  const insertOnce = createOnceInserter(db, nextNumber);
  const late = createLateMarker(db, clock);
  /** Inserts the streams of jobs. */
  async function insert(jobs: readonly Job[]): Promise<void> {
    const plain = jobs.filter(({ skipsRepeated }) => skipsRepeated !== true).flatMap(({ documents }) => documents);
    if (plain.length > 0) await insertDocuments(db, plain, nextNumber);
    const once = jobs.filter(({ skipsRepeated }) => skipsRepeated === true);
    if (once.length === 0) return;
    const inserted = await insertOnce(once.flatMap(({ documents }) => documents));
    for (const job of once) job.documents = job.documents.filter((document) => inserted.has(document));
  }
  /** Leaves out of a dry run what devices have. */
  async function simulate(jobs: readonly Job[]): Promise<void> {
    const once = jobs.filter(({ skipsRepeated }) => skipsRepeated);
    const streams = db.collection<mongo.Document>(stream.plural);
    const missing = new Set(
      await findMissing(
        streams,
        once.flatMap(({ documents }) => documents),
      ),
    );
    for (const job of once) job.documents = job.documents.filter((document) => missing.has(document));
  }
  /** Finds the last streams of devices whose imported streams rules are compared with. */
  async function findLast(jobs: readonly Job[], devices: Devices): Promise<ReadonlyMap<string, number>> {
    const imported = jobs.filter(({ account, isImport }) => isImport && prepareEvaluation?.(account) !== undefined);
    if (imported.length === 0) return new Map();
    const senders = findSenders(
      imported.flatMap(({ documents }) => documents),
      devices,
    );
    return findLastTimes(db, senders, clock() / 1000);
  }
  async function commit(jobs: readonly Job[]): Promise<ReadonlyMap<Job, Error>> {
    metrics.batch(jobs.length);
    const refused = new Map<Job, Error>();
    const devices = await findDevices(db, areAncestorsEnabled, jobs);
    const documents = new Map<Job, readonly StreamDocument[]>();
    const faulty = await findFaults(jobs, devices);
    for (const job of jobs) {
      const faults = faulty.get(job);
      if (faults !== undefined) refused.set(job, new AppError('invalid', faults));
      else documents.set(job, job.documents);
    }
    for (const document of [...documents.values()].flat()) {
      const sender = devices.get(document._id.device);
      if (sender !== undefined) setSender(document, sender);
    }
    await simulate([...documents.keys()].filter(({ isDryRun }) => isDryRun));
    for (const job of jobs) if (job.isDryRun) documents.delete(job);
    if (documents.size === 0) return refused;
    const all = [...documents.values()].flat();
    const last = await findLast([...documents.keys()], devices);
    let endReview = await values.begin(findSenders(all, devices));
    await late.begin(all);
    await insert([...documents.keys()]);
    await late.end(all);
    for (const job of documents.keys()) documents.set(job, job.documents);
    const isMeasured = endReview !== undefined;
    let finishing: ReadonlyMap<string, Promise<void>> = new Map();
    for (;;) {
      const parts = await compareWithRules(documents, devices, { prepareEvaluation, isMeasured, last });
      const stream_revision = db.newId();
      if (await move(db, [...documents.keys()], devices, { parts, stream_revision })) {
        finishing = beginFinishing(documents.keys(), parts, (part) => finish(part, stream_revision));
        break;
      }
      for (const [job, faults] of await rollBackOrphans(db, documents, devices)) {
        refused.set(job, new AppError('invalid', faults));
        documents.delete(job);
        // a review may have seen what was deleted again
        endReview = undefined;
      }
    }
    if (endReview !== undefined)
      Promise.all(finishing.values())
        .then(endReview)
        .catch(() => undefined);
    metrics.stored([...documents.values()].flat().length);
    return refused;
  }
  const submit = createBatcher(commit, {
    size: ({ entries }) => entries.length,
    bytesOf: ({ entries }) => entries.reduce((sum, { data }) => sum + data.size, 0),
    maxBatchSize: batch_entries,
    maxInFlight: 2,
    accountOf: ({ account }) => account,
  });
  return async (submission) => {
    const begun = performance.now();
    const { entries, account, now } = submission;
    const release = unanswered.take(account, entries.length);
    const job: Job = {
      ...submission,
      documents: entries.map((entry) => buildDocument(submission, entry, nextNumber(now))),
    };
    try {
      await submit(job);
      await job.finished;
    } finally {
      release();
    }
    metrics.ingested(performance.now() - begun);
    const created = job.documents.length;
    return { created, skipped: entries.length - created };
  };
}

/** Gives each job what its account still has to do with its streams. */
function beginFinishing(
  jobs: Iterable<Job>,
  parts: ReadonlyMap<string, AccountPart>,
  finish: (part: AccountPart) => Promise<void>,
): ReadonlyMap<string, Promise<void>> {
  const finishing = new Map<string, Promise<void>>();
  for (const [account, part] of parts) finishing.set(account, awaitLater(finish(part)));
  for (const job of jobs) job.finished = finishing.get(job.account);
  return finishing;
}

const path: { [kind in StreamKind]: DeadlineKind } = { str: 'stream', sta: 'status' };

/** @returns false if a device was deleted or marked since */
function move(
  db: Database,
  jobs: readonly Job[],
  devices: Devices,
  { parts, stream_revision }: { parts: ReadonlyMap<string, AccountPart>; stream_revision: Id },
): Promise<boolean> {
  const moves = new Map<string, DeadlineMove>();
  const createMove = (sender: Device | undefined): DeadlineMove => ({
    _id: sender?._id,
    receipts: {},
    hasNewRevision: false,
    mark: sender && parts.get(sender.account)?.evaluation?.markOf(sender),
  });
  for (const { entries, documents, now, isWill, skipsRepeated, isImport } of jobs) {
    for (const { device, _t } of entries) {
      const move = moves.get(device) ?? createMove(devices.get(device));
      // a majority then has what a stream was left out for
      if (isWill || skipsRepeated || _t === 'str') move.hasNewRevision = true;
      moves.set(device, move);
    }
    if (isWill) continue;
    for (const { _id, _t } of documents) {
      const { receipts = {} } = moves.get(_id.device) ?? {};
      const received = isImport ? Math.floor(Math.min(_id.at.value, now)) : now;
      receipts[path[_t]] = Math.max(receipts[path[_t]] ?? 0, received);
    }
  }
  return extendDeadlines(db, [...moves.values()], stream_revision);
}

/**
 * Deletes the streams just stored for devices that were deleted since, and takes over the marks of the others.
 * @returns the faults of the jobs concerned
 */
async function rollBackOrphans(
  db: Database,
  documents: ReadonlyMap<Job, readonly StreamDocument[]>,
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
  for (const [job, stored] of documents) {
    const faults = createFieldErrors();
    for (const [index, { device }] of job.entries.entries()) {
      if (!present.has(device)) faults[job.fieldOf(index, 'device')] = unknownDevice;
    }
    if (Object.keys(faults).length === 0) continue;
    orphans.set(job, faults);
    withdrawn.push(...stored.map(({ _id }) => _id));
  }
  await removeByKeys(db.collection('streams'), withdrawn);
  await replaceRevisions(db, still);
  return orphans;
}
