import mongoose, { type mongo } from 'mongoose';
import { formatClusterTime, readClusterTime } from '../db/change-stream.js';
import type { DatabaseAccess } from '../db/database.js';
import { deleteInChunks } from '../db/delete-in-chunks.js';
import { hasOnlyDuplicates } from '../db/driver-errors.js';
import { findMany, findOne } from '../db/raw-find.js';
import type { Bson } from '../objects/page.js';
import type { StoredEvent } from '../resources/event.js';
import { event } from '../resources/index.js';

/** The event log of all accounts, in order of `_id`. */
export function eventsOf(db: DatabaseAccess): mongo.Collection<StoredEvent> {
  return db.collection(event.plural);
}

/**
 * Appends events in order of their ids, durably. Events that are stored already are left as they are, so a batch may be
 * repeated.
 */
export async function appendEvents(db: DatabaseAccess, events: readonly StoredEvent[]): Promise<void> {
  if (events.length === 0) return;
  try {
    await eventsOf(db).insertMany([...events], { ordered: false });
    db.wakeUps?.emit('alarm-watch');
  } catch (error) {
    if (!hasOnlyDuplicates(error)) throw error;
  }
}

/** Writes the id of an event: the cluster time of its change, and a count of the events of one time. */
export function writeEventId(time: mongo.Timestamp, count: number): string {
  return formatClusterTime(time) + count.toString(36).padStart(2, '0');
}

/** Deletes the events of all accounts written before `moment` (epoch milliseconds). */
export async function removeEventsBefore(db: DatabaseAccess, moment: number): Promise<void> {
  const time = new mongoose.mongo.Timestamp({ t: Math.floor(moment / 1000), i: 0 });
  await deleteInChunks(db.collection(event.plural), { _id: { $lt: writeEventId(time, 0) } }, { sort: { _id: 1 } });
}

/** Finds stored events in ascending order of their ids, as BSON: those after `after`, up to `until`, at most `max`. */
export async function findEventsAfter(
  db: DatabaseAccess,
  { filter = {}, after, until, max }: { filter?: object; after: string; until?: string; max: number },
): Promise<Bson[]> {
  const range = { _id: { $gt: after, ...(until !== undefined && { $lte: until }) } };
  // acknowledged by a majority: what is read now is there after a failover
  const options = { sort: { _id: 1 }, limit: max, raw: true, readConcern: { level: 'majority' } } as const;
  return (await findMany(eventsOf(db), { $and: [range, filter] }, options)) as unknown as Bson[];
}

/** Finds the greatest id of the log; empty if there is none. */
export async function findLastEventId(db: DatabaseAccess): Promise<string> {
  const options = { sort: { _id: -1 }, projection: { _id: 1 }, readConcern: { level: 'majority' } } as const;
  const last = await findOne(eventsOf(db), {}, options);
  return last?._id ?? '';
}

/** Sorts behind the counts of all events of one time. */
const last_count = 'zz';

/** Reads an id behind those of all changes acknowledged so far, written or not, and before those of later ones. */
export async function readCurrentEventId(db: DatabaseAccess): Promise<string> {
  return formatClusterTime(await readClusterTime(db)) + last_count;
}

/** @returns an event of the account, undefined if the log does not have it, or no more */
export function findEvent(db: DatabaseAccess, account: string, id: string): Promise<StoredEvent | undefined> {
  return findOne(eventsOf(db), { _id: id, account });
}
