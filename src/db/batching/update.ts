import mongoose, { type mongo } from 'mongoose';
import { AppError } from '../../errors.js';
import { createKeyedMutex } from '../../lib/keyed-mutex.js';
import { getString } from '../../serialize/bson.js';
import type { Collection, DatabaseAccess, StoredDocument } from '../database.js';
import { failedPlacesOf } from '../driver-errors.js';
import { sizeOfOpaque } from '../opaque-json.js';
import { findRaw } from '../raw-find.js';
import { createBatcher } from './batcher.js';
import { buildKeyQuery, keyOf, keyOfDocument, type ResourceKey } from './loader.js';

const { MongoBulkWriteError } = mongoose.mongo;

/** A conditional update of one object; it always changes something. */
export interface Update extends ResourceKey {
  condition: object;
  update: { $set: object; $inc?: Readonly<Record<string, number>>; $unset?: object };
  /** Fields that the database computes from the stored ones, by expression. */
  derived?: object | undefined;
  /** Stored as `last_request_id`, which shows that the update was applied. */
  request_id: string;
}

/** Applies an update durably. @returns the changed document as BSON, undefined if the condition does not hold */
export type ApplyUpdate = (update: Update) => Promise<Uint8Array | undefined>;

interface Job extends Update {
  after?: Uint8Array | undefined;
}

/**
 * With `documentsReturnedIn`, which the driver sets for its cursors, errors of the database are parsed. Raw ones have no labels, so
 * that the driver does not retry them, and their `topologyVersion` makes it throw a TypeError and neglect the state of the server.
 */
async function updateOne(collection: Collection, job: Job): Promise<Uint8Array | undefined> {
  const { filter, update } = statementOf(job);
  const options = {
    returnDocument: 'after',
    raw: true,
    documentsReturnedIn: 'value',
    // messages about a taken name may be cut within a character
    enableUtf8Validation: false,
  } as const;
  const changed = await collection.findOneAndUpdate(filter, update as mongo.UpdateFilter<StoredDocument>, options);
  return changed === null ? undefined : (changed as unknown as Uint8Array);
}

/**
 * Batches updates: those that arrive while a command is in flight are sent together in the next one, updates of one
 * object one after the other. A bulk write reports how many updates matched, not which, so one read afterwards looks for
 * each `last_request_id` and returns the documents
 * (docs/decisions/0008-batched-commands.md).
 * @param maxTimeMS upper bound of that read in the database
 * @returns a function that throws AppError database (5031) if the outcome is unknown
 */
export function openUpdateBatcher(db: DatabaseAccess, plural: string, maxTimeMS: number): ApplyUpdate {
  // asked for each command, which fails if the data must not be used any more
  const open = () => db.collection(plural);

  async function commit(jobs: readonly Job[]): Promise<ReadonlyMap<Job, Error>> {
    const errors = new Map<Job, Error>();
    const [first] = jobs;
    if (jobs.length === 1 && first !== undefined) {
      first.after = await updateOne(open(), first);
      return errors;
    }
    const { matched, rejected } = await bulkWrite(open(), jobs);
    const sent = jobs.filter((job) => !rejected.has(job));
    const documents = new Map<string, Uint8Array>();
    for await (const batch of findRaw(open(), { filter: buildKeyQuery(sent), maxTimeMS }).batches)
      for (const bson of batch) documents.set(keyOfDocument(bson), bson);
    for (const job of sent) {
      const document = documents.get(keyOf(job));
      if (document !== undefined && getString(document, 'last_request_id') === job.request_id) job.after = document;
    }
    attributeRest(sent, documents, matched, errors);
    // a bulk error does not name the colliding key: retry each rejected update alone to get its own error
    await Promise.all(
      [...rejected].map(async (job) => {
        job.after = await updateOne(open(), job).catch((error: Error) => {
          errors.set(job, error);
          return undefined;
        });
      }),
    );
    return errors;
  }

  const submit = createBatcher(commit, {
    maxBatchSize: 64,
    bytesOf: ({ update }) => sizeOfOpaque(update.$set),
    maxInFlight: 1,
    accountOf: ({ account }) => account,
  });
  const mutex = createKeyedMutex();
  return async (update) => {
    const job: Job = { ...update };
    await mutex(keyOf(update), () => submit(job));
    return job.after;
  };
}

/**
 * Decides the updates whose id was not found: applied if the number of matches accounts for all of them, refused if for
 * none. Otherwise another process has overwritten an id or deleted an object, and the outcome is unknown.
 */
function attributeRest(
  sent: readonly Job[],
  documents: ReadonlyMap<string, Uint8Array>,
  matched: number,
  errors: Map<Job, Error>,
): void {
  const rest = sent.filter(({ after }) => after === undefined);
  const unattributed = matched - (sent.length - rest.length);
  if (unattributed === 0) return;
  const cause = new Error('the outcome of a batched update is unknown');
  for (const job of rest) {
    const document = documents.get(keyOf(job));
    if (unattributed === rest.length) job.after = document;
    else if (document !== undefined) errors.set(job, new AppError('database', {}, { cause }));
  }
}

function statementOf({ account, id, condition, ...change }: Job) {
  return { filter: { account, id_developer: id, ...condition }, update: buildStatement(change) };
}

/** Builds the update of the database: operators, or a pipeline where fields are derived from stored ones. */
export function buildStatement({ update, derived, request_id }: Pick<Update, 'update' | 'derived' | 'request_id'>) {
  const complete = { ...update, $set: { ...update.$set, last_request_id: request_id } };
  return derived === undefined ? complete : buildPipeline(complete, derived);
}

/** Builds the same update as an aggregation pipeline, as only that can compute fields. */
function buildPipeline({ $set, $inc = {}, $unset = {} }: Update['update'], derived: object): object[] {
  const literals = Object.entries($set).map(([path, value]) => [path, { $literal: value }]);
  const sums = Object.entries($inc).map(([path, by]) => [path, { $add: [`$${path}`, by] }]);
  const unset = Object.keys($unset);
  return [
    { $set: { ...Object.fromEntries([...literals, ...sums]), ...derived } },
    ...(unset.length > 0 ? [{ $unset: unset }] : []),
  ];
}

/** @returns the number of matches and the rejected updates @throws if all failed */
async function bulkWrite(
  collection: Collection,
  jobs: readonly Job[],
): Promise<{ matched: number; rejected: ReadonlySet<Job> }> {
  const updates = jobs.map((job) => ({ updateOne: statementOf(job) }));
  try {
    const { matchedCount } = await collection.bulkWrite(
      updates as unknown as mongo.AnyBulkWriteOperation<StoredDocument>[],
      { ordered: false },
    );
    return { matched: matchedCount, rejected: new Set() };
  } catch (error) {
    if (!(error instanceof MongoBulkWriteError) || error.result.getWriteConcernError() !== undefined) throw error;
    const places = failedPlacesOf(error);
    if (places.size === 0) throw error;
    return { matched: error.result.matchedCount, rejected: new Set(jobs.filter((_job, index) => places.has(index))) };
  }
}
