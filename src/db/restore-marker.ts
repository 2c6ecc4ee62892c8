import type { mongo } from 'mongoose';
import { StartError } from '../errors.js';

/** Marks a database into which a backup is being restored. */
interface RestoreMarker {
  _id: 'restore';
  /** Last sign of life, by the clock of the database. */
  beat_at: Date;
}

const beat_ms = 1000;
/** Without a sign of life for so long, a restore counts as interrupted. */
const beat_timeout_ms = 10_000;

const markersOf = (db: mongo.Db) => db.collection<RestoreMarker>('maintenance');

/** Keeps the service away from a database that is restored by halves. @throws Error while a restore is in progress or interrupted */
export async function assertNotRestoring(db: mongo.Db): Promise<void> {
  if ((await markersOf(db).findOne({ _id: 'restore' })) !== null)
    throw new Error('a restore of this database is in progress or was interrupted: repeat it, or drop the database');
}

/**
 * Marks the database until the returned function is called. @returns also whether an earlier restore was interrupted, so that all
 * that is there is what it has loaded @throws StartError while another process restores
 */
export async function beginRestore(db: mongo.Db): Promise<{ isRepeated: boolean; unmark(): Promise<void> }> {
  const markers = markersOf(db);
  const silent = { $expr: { $lte: ['$beat_at', { $subtract: ['$$NOW', beat_timeout_ms] }] } };
  const mark = [{ $set: { beat_at: '$$NOW' } }];
  const { matchedCount } = await markers.updateOne({ _id: 'restore', ...silent }, mark);
  const markIfAbsent = [{ $set: { beat_at: { $ifNull: ['$beat_at', '$$NOW'] } } }];
  const { upsertedCount } = await markers.updateOne({ _id: 'restore' }, markIfAbsent, { upsert: true });
  if (matchedCount + upsertedCount === 0)
    throw new StartError('another restore of this database is in progress; nothing was changed');
  const timer = setInterval(() => {
    void markers.updateOne({ _id: 'restore' }, mark).catch(() => undefined);
  }, beat_ms).unref();
  return {
    isRepeated: matchedCount === 1,
    async unmark() {
      clearInterval(timer);
      await markers.deleteOne({ _id: 'restore' });
    },
  };
}
