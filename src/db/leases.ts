import type { mongo } from 'mongoose';
import type { Database } from './database.js';
import { isDuplicate } from './driver-errors.js';

/** What one instance at a time may do. */
interface Lease {
  _id: string;
  holder: string;
  until: Date;
  /** Given with the first taking; stays. */
  tag: string;
}

const leases = (db: Database) => db.collection('leases') as unknown as mongo.Collection<Lease>;

/**
 * Takes or renews a lease for `lasts_ms`, counted by the database's clock from a moment after the call; only the holder
 * may do so before it has run out. @returns the lease's tag (`tag`, if it has none yet), or undefined while another holds it
 */
export async function takeLease(
  db: Database,
  name: string,
  holder: string,
  lasts_ms: number,
  tag: string,
): Promise<string | undefined> {
  const free = { $or: [{ $eq: ['$holder', holder] }, { $lte: ['$until', '$$NOW'] }] };
  const taken = {
    holder: { $cond: [free, holder, '$holder'] },
    until: { $cond: [free, { $add: ['$$NOW', lasts_ms] }, '$until'] },
    tag: { $ifNull: ['$tag', tag] },
  };
  try {
    const options = { upsert: true, returnDocument: 'after' } as const;
    const now = await leases(db).findOneAndUpdate({ _id: name }, [{ $set: taken }], options);
    return now?.holder === holder ? now.tag : undefined;
  } catch (error) {
    // two made it at once, and the other was faster
    if (isDuplicate(error)) return undefined;
    throw error;
  }
}

/** Lets others have it at once. */
export async function releaseLease(db: Database, name: string, holder: string): Promise<void> {
  await leases(db).updateOne({ _id: name, holder }, [{ $set: { until: '$$NOW' } }]);
}
