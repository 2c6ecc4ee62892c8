import { timingSafeEqual } from 'node:crypto';
import { createBatcher } from '../db/batching/batcher.js';
import { buildKeyQuery } from '../db/batching/loader.js';
import { type Database, read_limit_ms, type StoredObject } from '../db/database.js';
import type { Id } from '../db/ids.js';
import type { KeyLimit } from '../db/key-limit.js';
import { OpaqueJson } from '../db/opaque-json.js';
import { findAll } from '../db/raw-find.js';
import { isWithin } from '../db/reach.js';
import { AppError, createFieldErrors, type FieldErrors } from '../errors.js';
import { awaitLater } from '../lib/promises.js';
import { createShares } from '../lib/shares.js';
import { createTurns } from '../lib/turns.js';
import type { AreAncestorsEnabled } from '../objects/ancestors.js';
import { type DeadlineMove, extendDeadlines } from '../objects/device-deadlines.js';
import { replaceRevisions } from '../objects/last-stream-cache.js';
import type { PrepareEvaluation, ReceivedStream, SendingDevice } from '../objects/received-streams.js';
import { createValueRecorder } from '../objects/values/recorder.js';
import type { DeadlineKind } from '../resources/device/status.js';
import { device } from '../resources/index.js';
import type { StreamKind } from '../resources/stream.js';
import { checksumOf } from './checksum.js';
import { buildDocument, insertDocuments, type StreamDocument, setSender } from './documents.js';
import { type AccountPart, createFinisher } from './finish.js';
import { createNumbering } from './numbering.js';
import type { Entry, ParsedStreams } from './parse-streams.js';
import { removeByKeys } from './store.js';

/** Streams of one request or publish; all are stored or none. */
interface Submission extends ParsedStreams {
  account: string;
  /** Streams of devices out of reach are refused as those of unknown ones. */
  limit: KeyLimit | undefined;
  /** The sender; undefined: the owner of each device. */
  user: string | undefined;
  /** Time of receipt in whole epoch seconds. */
  now: number;
  /** A last will is no sign of life: it moves no deadline. */
  isWill?: boolean;
}

/** Streams with their documents, numbered in the order of receipt, as one batch can overtake another. */
interface Job extends Submission {
  documents: readonly StreamDocument[];
  /** Work of its account with its streams after the batch. */
  finished?: Promise<void> | undefined;
}

/** Stores streams durably and moves the deadlines of their devices. */
export type Ingest = (submission: Submission) => Promise<void>;

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

interface StoredDevice extends StoredObject {
  owner: string;
  id_model?: string;
  checksum?: string;
  condition_met_at?: number;
}

interface Device extends SendingDevice {
  owner: string;
  checksum: string | undefined;
  accepting: boolean;
}

const batch_entries = 2000;
/** Streams of all accounts that are not answered yet; more would be answered too late. */
const max_unanswered = 100_000;

/** The fault of a `device` that does not exist in the account. */
export const unknownDevice = 'does not exist';

/**
 * Group commit: streams that arrive together are written together. Looking up devices, inserting streams and moving
 * deadlines are one command each per batch, acknowledged by a majority and journaled before any job resolves
 * (reference/streams.md#durability). Values and alarms follow for each account by itself.
 * @returns a function that throws AppError invalid (4003) for unknown or disabled devices, overloaded (5033) before
 * anything is stored, database (5031)
 */
export function createIngest(options: Options): Ingest {
  const { db, areAncestorsEnabled, metrics, clock, prepareEvaluation } = options;
  const values = createValueRecorder(db, clock);
  const finish = createFinisher(values);
  const unanswered = createShares({ capacity: max_unanswered });
  const nextNumber = createNumbering(clock);
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
    if (documents.size === 0) return refused;
    const all = [...documents.values()].flat();
    for (const document of all) {
      const sender = devices.get(document._id.device);
      if (sender !== undefined) setSender(document, sender);
    }
    let endReview = await values.begin(findSenders(all, devices));
    await insertDocuments(db, all, nextNumber);
    const isMeasured = endReview !== undefined;
    let finishing: ReadonlyMap<string, Promise<void>> = new Map();
    for (;;) {
      const parts = await evaluateParts(documents, devices, { prepareEvaluation, isMeasured });
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
    metrics.stored(all.length);
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
    const release = unanswered.take(submission.account, submission.entries.length);
    try {
      const documents = submission.entries.map((entry) => buildDocument(submission, entry, nextNumber(submission.now)));
      const job: Job = { ...submission, documents };
      await submit(job);
      await job.finished;
    } finally {
      release();
    }
    metrics.ingested(performance.now() - begun);
  };
}

type Devices = Map<string, Device>;

async function findDevices(
  db: Database,
  areAncestorsEnabled: AreAncestorsEnabled,
  jobs: readonly Job[],
): Promise<Devices> {
  const sent = jobs.flatMap(({ account, entries }) => entries.map(({ device }) => ({ account, id: device })));
  const stored = await findAll(db.collection<StoredDevice>(device.plural), {
    filter: buildKeyQuery(sent),
    projection: {
      account: 1,
      id_developer: 1,
      ancestors: 1,
      enabled: 1,
      id_model: 1,
      checksum: 1,
      owner: 1,
      condition_met_at: 1,
    },
    maxTimeMS: read_limit_ms,
  });
  const devices = new Map<string, Device>();
  await Promise.all(
    stored.map(async ({ _id, account, id_developer, ancestors = [], enabled, ...members }) => {
      const accepting = enabled === true && (await areAncestorsEnabled(account, ancestors));
      const { id_model, owner, checksum, condition_met_at } = members;
      const device = { _id, account, id_developer, ancestors, id_model, owner, checksum, condition_met_at, accepting };
      devices.set(id_developer, device);
    }),
  );
  return devices;
}

async function findFaults(jobs: readonly Job[], devices: Devices): Promise<ReadonlyMap<Job, FieldErrors>> {
  const faulty = new Map<Job, FieldErrors>();
  const takeTurns = createTurns();
  for (const job of jobs) {
    for (const [index, entry] of job.entries.entries()) {
      await takeTurns();
      const [field, fault] = faultOf(job, entry, devices.get(entry.device)) ?? [];
      if (field === undefined || fault === undefined) continue;
      const faults = faulty.get(job) ?? createFieldErrors();
      faults[job.fieldOf(index, field)] = fault;
      faulty.set(job, faults);
    }
  }
  return faulty;
}

/** @returns the field that an entry has wrong, and the rule */
function faultOf({ account, limit }: Job, entry: Entry, sender: Device | undefined): [string, string] | undefined {
  if (sender === undefined || sender.account !== account) return ['device', unknownDevice];
  if (!isWithin(limit, device.plural, sender)) return ['device', unknownDevice];
  if (!sender.accepting) return ['device', 'disabled'];
  const fault = checksumFault(entry, sender.checksum);
  return fault === undefined ? undefined : ['checksum', fault];
}

function checksumFault({ checksum, data, protocol }: Entry, key: string | undefined): string | undefined {
  if (checksum === undefined) return protocol === 'v3' && key !== undefined ? 'is required' : undefined;
  const matches = timingSafeEqual(Buffer.from(checksum), Buffer.from(checksumOf(data.parse() as object, key)));
  return matches ? undefined : 'does not match the data';
}

/** The devices of data streams. */
function findSenders(stored: readonly StreamDocument[], devices: Devices): ReadonlySet<Device> {
  return new Set(stored.flatMap(({ _id, _t }) => (_t === 'str' ? (devices.get(_id.device) ?? []) : [])));
}

/** The data streams among stored ones, for the evaluation of alarm rules. */
function receivedStreams(stored: readonly StreamDocument[], devices: Devices): ReceivedStream[] {
  return stored.flatMap(({ _id, _t, data }) => {
    const sender = devices.get(_id.device);
    if (_t !== 'str' || sender === undefined || !(data instanceof OpaqueJson)) return [];
    return [{ _id, device: sender, at: _id.at.value, data }];
  });
}

/** The data streams of each account, compared with its alarm rules. */
async function evaluateParts(
  documents: ReadonlyMap<Job, readonly StreamDocument[]>,
  devices: Devices,
  { prepareEvaluation, isMeasured }: { prepareEvaluation: Options['prepareEvaluation']; isMeasured: boolean },
): Promise<ReadonlyMap<string, AccountPart>> {
  const requests = new Map<string, ReceivedStream[][]>();
  for (const [{ account }, stored] of documents) {
    const streams = receivedStreams(stored, devices);
    const ofAccount = requests.get(account);
    if (ofAccount === undefined) requests.set(account, [streams]);
    else ofAccount.push(streams);
  }
  const parts = new Map<string, AccountPart>();
  for (const [account, ofAccount] of requests) {
    const evaluation = await prepareEvaluation?.(account)?.(ofAccount);
    parts.set(account, { account, streams: ofAccount.flat(), evaluation, isMeasured });
  }
  return parts;
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
  for (const { entries, now, isWill = false } of jobs) {
    for (const { device, _t } of entries) {
      const move = moves.get(device) ?? createMove(devices.get(device));
      const { receipts } = move;
      if (!isWill) receipts[path[_t]] = Math.max(receipts[path[_t]] ?? 0, now);
      if (isWill || _t === 'str') move.hasNewRevision = true;
      moves.set(device, move);
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
