import { setTimeout as sleep } from 'node:timers/promises';
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

const limit_ms = 30_000;
const poll_ms = 50;

/** Reads the database's current time: writes acknowledged before the call have no greater one, later writes have. */
export function readClusterTime(db: DatabaseAccess): Promise<mongo.Timestamp> {
  return waitForOperationTime(() => db.command({ ping: 1, maxTimeMS: 1000 }));
}

/**
 * Repeats a command until its reply has an operationTime: for some 0.4 s after its start, a mongod whose clients log in has
 * not read the keys that sign times, and leaves it out. @throws Error if it never comes, as from a standalone server
 */
export async function waitForOperationTime(command: () => Promise<mongo.Document>): Promise<mongo.Timestamp> {
  for (const end = performance.now() + limit_ms; ; await sleep(poll_ms)) {
    const { operationTime } = await command();
    if (operationTime !== undefined) return operationTime;
    if (performance.now() > end) throw new Error('the database does not tell its time; it has to be a replica set');
  }
}
