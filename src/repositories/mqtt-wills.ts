import type { mongo } from 'mongoose';
import { type Database, read_limit_ms } from '../db/database.js';

/** The last will of a connection, for other instances to publish should its own one be killed. */
export interface StoredWill {
  /** The connection. */
  _id: string;
  instance: string;
  account: string;
  /** The credentials or the API key of the connection. */
  owner: string;
  topic: string;
  payload: Buffer;
  qos: 0 | 1 | 2;
  retain: boolean;
}

const willsIn = (db: Database) => db.collection('mqtt_wills') as unknown as mongo.Collection<StoredWill>;

/** Creates the index by which the wills of a killed instance are found. */
export async function prepareWills(db: Database): Promise<void> {
  await willsIn(db).createIndex({ instance: 1 });
}

/** Stores a will, again if need be. */
export async function saveWill(db: Database, will: StoredWill): Promise<void> {
  const { _id, ...fields } = will;
  await willsIn(db).replaceOne({ _id }, fields, { upsert: true });
}

/** Takes a will: of all callers one gets it. @returns undefined if it was taken */
export async function deleteWill(db: Database, _id: string): Promise<StoredWill | undefined> {
  return (await willsIn(db).findOneAndDelete({ _id }, { promoteBuffers: true })) ?? undefined;
}

/** Finds the connections of an instance that have wills. */
export async function findWills(db: Database, instance: string): Promise<string[]> {
  const options = { projection: { _id: 1 }, maxTimeMS: read_limit_ms };
  const found = await willsIn(db).find({ instance }, options).toArray();
  return found.map(({ _id }) => _id);
}

/** Deletes the wills of an instance that stops. */
export async function deleteWills(db: Database, instance: string): Promise<void> {
  await willsIn(db).deleteMany({ instance });
}
