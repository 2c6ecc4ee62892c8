import { randomBytes } from 'node:crypto';
import mongoose, { type mongo } from 'mongoose';
import { AppError } from '../../errors.js';
import { asBuffer } from '../../serialize/bson.js';
import type { Collection, StoredDocument } from '../database.js';
import { findRaw } from '../raw-find.js';
import { createBatcher } from './batcher.js';
import { keyOf, keyOfDocument, queryFor, type ResourceKey } from './loader.js';

const { MongoBulkWriteError } = mongoose.mongo;

/** A change of one object where `condition` holds; it always changes something. */
export interface Update extends ResourceKey {
  condition: object;
  update: object;
}

/** Applies a change, durably. @returns the changed document as BSON, undefined where the condition did not hold */
export type ApplyUpdate = (change: Update) => Promise<Uint8Array | undefined>;

/** How many an object keeps: the last ones. */
const most_marks = 4;

interface Job extends Update {
  after?: Uint8Array | undefined;
}

/**
 * Changes that arrive while others are under way leave together as the next batch, those of one object one after the
 * other. The database only tells how many of a batch it has made, so each leaves its mark in its object: reading them
 * once shows which, and gives the documents. @param maxTimeMS the longest a read may keep the database busy
 */
export function openUpdateBatcher(collection: Collection, maxTimeMS: number): ApplyUpdate {
  async function alone({ account, id, condition, update }: Job): Promise<Uint8Array | undefined> {
    const filter = { account, id_developer: id, ...condition };
    const options = { returnDocument: 'after', raw: true } as const;
    const changed = await collection.findOneAndUpdate(filter, update as mongo.UpdateFilter<StoredDocument>, options);
    return changed === null ? undefined : (changed as unknown as Uint8Array);
  }

  async function commit(jobs: readonly Job[]): Promise<ReadonlyMap<Job, Error>> {
    const refused = new Map<Job, Error>();
    const [first] = jobs;
    if (jobs.length === 1 && first !== undefined) {
      first.after = await alone(first);
      return refused;
    }
    const marks = new Map(jobs.map((job) => [job, randomBytes(9).toString('base64url')]));
    const { made, failed } = await applied(collection, marks);
    const sent = jobs.filter((job) => !failed.has(job));
    const found = new Map<string, Uint8Array>();
    for await (const batch of findRaw(collection, { filter: queryFor(sent), maxTimeMS }).batches)
      for (const bson of batch) found.set(keyOfDocument(bson), bson);
    let unseen = made;
    const unmarked: Job[] = [];
    for (const job of sent) {
      const now = found.get(keyOf(job));
      const ours = now !== undefined && asBuffer(now).includes(marks.get(job) ?? '');
      if (ours) job.after = now;
      else if (now !== undefined) unmarked.push(job);
      // what is gone is gone, whether it was changed before or not
      if (ours || now === undefined) unseen--;
    }
    // our mark went with those of many others, faster than it could be read
    if (unseen > 0)
      for (const job of unmarked)
        refused.set(job, new AppError('database', {}, { cause: new Error('not known whether it was made') }));
    // what is wrong with one is told only where it is alone
    await Promise.all(
      [...failed].map(async (job) => {
        job.after = await alone(job).catch((reason: Error) => {
          refused.set(job, reason);
          return undefined;
        });
      }),
    );
    return refused;
  }

  const submit = createBatcher(commit, { size: () => 1, maxBatchSize: 64, maxInFlight: 1 });
  const last = new Map<string, Promise<void>>();
  return async (change) => {
    const job: Job = { ...change };
    const key = keyOf(change);
    const before = last.get(key);
    const mine = before === undefined ? submit(job) : before.then(() => submit(job));
    const settled = mine.catch(() => undefined);
    last.set(key, settled);
    try {
      await mine;
    } finally {
      if (last.get(key) === settled) last.delete(key);
    }
    return job.after;
  };
}

/** Sends the changes with their marks. @returns how many were made, and those that the database refuses @throws where all failed */
async function applied(
  collection: Collection,
  marks: ReadonlyMap<Job, string>,
): Promise<{ made: number; failed: ReadonlySet<Job> }> {
  const jobs = [...marks.keys()];
  const updates = [...marks].map(([{ account, id, condition, update }, mark]) => {
    const filter = { account, id_developer: id, ...condition };
    const $push = { marks: { $each: [mark], $slice: -most_marks } };
    return { updateOne: { filter, update: { ...update, $push } } };
  }) as unknown as mongo.AnyBulkWriteOperation<StoredDocument>[];
  try {
    const { matchedCount } = await collection.bulkWrite(updates, { ordered: false });
    return { made: matchedCount, failed: new Set() };
  } catch (error) {
    if (!(error instanceof MongoBulkWriteError) || error.result.getWriteConcernError() !== undefined) throw error;
    const places = new Set([error.writeErrors].flat().map(({ index }) => index));
    if (places.size === 0) throw error;
    return { made: error.result.matchedCount, failed: new Set(jobs.filter((_job, index) => places.has(index))) };
  }
}
