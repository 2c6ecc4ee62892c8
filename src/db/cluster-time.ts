import mongoose, { type mongo } from 'mongoose';
import type { DatabaseAccess } from './database.js';

/** Formats a time of the database's log as 16 hexadecimal digits: 8 of the seconds, 8 of the increment. */
export function formatClusterTime(time: mongo.Timestamp): string {
  return [time.getHighBitsUnsigned(), time.getLowBitsUnsigned()]
    .map((part) => part.toString(16).padStart(8, '0'))
    .join('');
}

/** Parses the text of `formatClusterTime`. */
export function parseClusterTime(digits: string): mongo.Timestamp {
  const [t, i] = [digits.slice(0, 8), digits.slice(8, 16)].map((part) => Number.parseInt(part, 16));
  return new mongoose.mongo.Timestamp({ t: t ?? 0, i: i ?? 0 });
}

/** Reads the database's current time: writes acknowledged before the call have no greater one, later writes have. */
export async function readClusterTime(db: DatabaseAccess): Promise<mongo.Timestamp> {
  const { operationTime } = await db.command({ ping: 1, maxTimeMS: 1000 });
  return operationTime;
}
