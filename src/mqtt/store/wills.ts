import mongoose from 'mongoose';
import type { Database } from '../../db/database.js';
import type { Id } from '../../db/ids.js';
import { findMany } from '../../db/raw-find.js';
import type { MessageContent } from './messages.js';

/** The last will of a connection, for other instances to publish should its own one be killed. */
export interface StoredWill extends Omit<MessageContent, 'expires_at'> {
  /** The connection. */
  _id: string;
  instance: string;
  account: string;
  /** The credentials or the API key of the connection. */
  owner: string;
  retain: boolean;
  message_expiry_s?: number;
  /** It waits so long for the client, or until its session ends. */
  delay_s?: number;
  /** The session that it waits for, by its `_id`. */
  session?: string;
  /** It is published then, by any instance; absent while the connection lasts. */
  due_at?: Date;
  /** The instance that publishes it instead of its own one, which was killed. */
  taken_by?: string;
  /** Names the message from the first attempt to publish it on. */
  message?: Id;
}

/** A will that this instance has taken to publish it. */
export type TakenWill = StoredWill & Required<Pick<StoredWill, 'message'>>;

const willsIn = (db: Database) => db.collection<StoredWill>('mqtt_wills');

/** Stores a will, again if need be. */
export async function saveWill(db: Database, will: StoredWill): Promise<void> {
  const { _id, ...fields } = will;
  await willsIn(db).replaceOne({ _id }, fields, { upsert: true });
}

/** Takes the will of an own connection back. @returns false if another instance has taken it */
export async function withdrawWill(db: Database, _id: string): Promise<boolean> {
  return (await willsIn(db).deleteOne({ _id, taken_by: { $exists: false } })).deletedCount === 1;
}

/**
 * Takes a will of a killed instance: of all callers one gets it, until it is deleted.
 * @param former the instance that had taken it and is gone @returns undefined if another one was faster
 */
export async function takeWill(
  db: Database,
  { _id, taken_by: former }: WillRef,
  instance: string,
): Promise<TakenWill | undefined> {
  const query = { _id, taken_by: former ?? { $exists: false } };
  const message = { $ifNull: ['$message', db.newId()] };
  const options = { returnDocument: 'after', promoteBuffers: true } as const;
  const taken = await willsIn(db).findOneAndUpdate(query, [{ $set: { taken_by: instance, message } }], options);
  if (taken === null) return undefined;
  // `promoteBuffers` applies to ids, too
  return { ...taken, message: new mongoose.mongo.UUID(taken.message as unknown as Buffer) };
}

/** Deletes a will that is published. */
export async function deleteWill(db: Database, _id: string): Promise<void> {
  await willsIn(db).deleteOne({ _id });
}

/** The connection of a will, and the instance that has taken it. */
export type WillRef = Pick<StoredWill, '_id' | 'taken_by'>;

/** Lets the wills of a killed instance wait for their time; they belong to no instance any more. */
export async function scheduleWills(db: Database, instance: string, now: Date): Promise<void> {
  const due_at = { $add: [now, { $multiply: [{ $ifNull: ['$delay_s', 0] }, 1000] }] };
  await willsIn(db).updateMany({ instance }, [{ $set: { due_at, instance: '' } }]);
}

/** Finds the wills that have waited long enough. */
export function findDueWills(db: Database, now: Date): Promise<WillRef[]> {
  return findMany(willsIn(db), { due_at: { $lte: now } }, { projection: { taken_by: 1 } });
}

/** Ends the wait of the wills of a session: they are dropped if it continues, and due if it has ended. */
export async function endDelay(db: Database, session: string, isResumed: boolean): Promise<void> {
  const waiting = { session, due_at: { $exists: true }, taken_by: { $exists: false } };
  if (isResumed) await willsIn(db).deleteMany(waiting);
  else await willsIn(db).updateMany(waiting, { $set: { due_at: new Date(0) } });
}

/** Deletes the wills of an instance that stops. */
export async function deleteWills(db: Database, instance: string): Promise<void> {
  await willsIn(db).deleteMany({ instance });
}
