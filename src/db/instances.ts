import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import type { mongo } from 'mongoose';
import { findRestore, finishReplacement } from './replacement.js';

/** A process that uses the database. */
interface Instance {
  _id: string;
  host: string;
  pid: number;
  /** Clock of the database. */
  seen_at: Date;
}

const beat_ms = 5000;
const instance_timeout_ms = 30_000;
const forgotten_ms = 86_400_000;
const leave_timeout_ms = 1000;

const instancesOf = (db: mongo.Db) => db.collection<Instance>('instances');
const olderThan = (ms: number) => ({ $expr: { $lte: ['$seen_at', { $subtract: ['$$NOW', ms] }] } });

/**
 * Registers this process as a user of the database, so that nothing is restored under it (docs/operations.md#restore), and
 * completes a replacement that was interrupted. Registration before the second look for a restore, and the reverse order
 * in the restore, make sure that one of the two sees the other.
 * @returns the function that ends the registration. @throws Error while a restore is in progress
 */
export async function joinDatabase(db: mongo.Db): Promise<() => Promise<void>> {
  await settleRestore(db);
  const instances = instancesOf(db);
  const _id = randomUUID();
  const set = [{ $set: { host: hostname(), pid: process.pid, seen_at: '$$NOW' } }];
  const beat = () => instances.updateOne({ _id }, set, { upsert: true });
  await beat();
  const timer = setInterval(() => void beat().catch(() => undefined), beat_ms).unref();
  const leave = async () => {
    clearInterval(timer);
    const removed = instances.deleteOne({ _id }).catch(() => undefined);
    await Promise.race([removed, sleep(leave_timeout_ms, undefined, { ref: false })]);
  };
  try {
    await settleRestore(db);
    await instances.deleteMany(olderThan(forgotten_ms));
  } catch (error) {
    await leave();
    throw error;
  }
  return leave;
}

/** Completes an interrupted replacement. @throws Error while a restore is in progress */
async function settleRestore(db: mongo.Db): Promise<void> {
  const restore = await findRestore(db);
  if (restore === undefined) return;
  if (restore.isAlive) throw new Error('a restore of this database is in progress');
  if (restore.phase === 'replacing') await finishReplacement(db, restore);
}

/** Finds a process that has used the database in the last 30 s. */
export async function findInstance(db: mongo.Db): Promise<{ host: string; pid: number } | undefined> {
  return (await instancesOf(db).findOne({ $nor: [olderThan(instance_timeout_ms)] })) ?? undefined;
}
