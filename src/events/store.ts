import mongoose, { type mongo } from 'mongoose';
import { formatClusterTime } from '../db/cluster-time.js';
import { type Database, read_limit_ms } from '../db/database.js';
import type { Bson } from '../objects/page.js';
import type { StoredEvent } from '../resources/event.js';
import { event } from '../resources/index.js';

const { MongoBulkWriteError } = mongoose.mongo;
const duplicate_key = 11_000;

/** The event log of all accounts, in order of `_id`. */
export function eventsOf(db: Database): mongo.Collection<StoredEvent> {
  return db.collection(event.plural);
}

/**
 * Appends events in order of their ids, durably. Events that are stored already are left as they are, so a batch may be
 * repeated.
 */
export async function appendEvents(db: Database, events: readonly StoredEvent[]): Promise<void> {
  if (events.length === 0) return;
  try {
    await eventsOf(db).insertMany([...events], { ordered: false });
  } catch (error) {
    if (!(error instanceof MongoBulkWriteError) || error.result.getWriteConcernError() !== undefined) throw error;
    const errors = [error.writeErrors].flat();
    if (errors.length === 0 || errors.some(({ code }) => code !== duplicate_key)) throw error;
  }
}

/** Writes the id of an event: the cluster time of its change, and a count of the events of one time. */
export function writeEventId(time: mongo.Timestamp, count: number): string {
  return formatClusterTime(time) + count.toString(36).padStart(2, '0');
}

const chunk_size = 5000;

/** Deletes the events of all accounts written before `moment` (epoch milliseconds), in pieces. */
export async function removeEventsBefore(db: Database, moment: number): Promise<void> {
  const events = eventsOf(db);
  const filter = {
    _id: { $lt: writeEventId(new mongoose.mongo.Timestamp({ t: Math.floor(moment / 1000), i: 0 }), 0) },
  };
  for (let isFull = true; isFull; ) {
    const page = await events.find(filter, { projection: { _id: 1 }, sort: { _id: 1 }, limit: chunk_size }).toArray();
    if (page.length > 0) await events.deleteMany({ _id: { $in: page.map(({ _id }) => _id) } });
    isFull = page.length === chunk_size;
  }
}

/** Finds stored events in ascending order of their ids, as BSON: those after `after`, up to `until`, at most `max`. */
export async function findEventsAfter(
  db: Database,
  { filter = {}, after, until, max }: { filter?: object; after: string; until?: string; max: number },
): Promise<Bson[]> {
  const range = { _id: { $gt: after, ...(until !== undefined && { $lte: until }) } };
  const options = { sort: { _id: 1 }, limit: max, maxTimeMS: read_limit_ms, raw: true } as const;
  // acknowledged by a majority: what is read now is there after a failover
  const found = eventsOf(db).find({ $and: [range, filter] }, { ...options, readConcern: { level: 'majority' } });
  return (await found.toArray()) as unknown as Bson[];
}

/** Finds the greatest id of the log; empty if there is none. */
export async function findLastEventId(db: Database): Promise<string> {
  const options = { sort: { _id: -1 }, projection: { _id: 1 }, maxTimeMS: read_limit_ms } as const;
  const last = await eventsOf(db).findOne({}, { ...options, readConcern: { level: 'majority' } });
  return last?._id ?? '';
}

/** @returns an event of the account, undefined if the log does not have it, or no more */
export async function findEvent(db: Database, account: string, id: string): Promise<StoredEvent | undefined> {
  return (await eventsOf(db).findOne({ _id: id, account }, { maxTimeMS: read_limit_ms })) ?? undefined;
}
