import type { mongo } from 'mongoose';
import type { Database } from './connect.js';
import { isDuplicate } from './failures.js';

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
  const taken = { holder, until: { $add: ['$$NOW', lasts_ms] }, tag: { $ifNull: ['$tag', tag] } };
  try {
    const lease = await leases(db).findOneAndUpdate({ _id: name, $expr: free }, [{ $set: taken }], {
      upsert: true,
      returnDocument: 'after',
    });
    return lease?.tag;
  } catch (error) {
    // it exists and is another's: the upsert met it
    if (isDuplicate(error)) return undefined;
    throw error;
  }
}

/** Lets others have it at once. */
export async function releaseLease(db: Database, name: string, holder: string): Promise<void> {
  await leases(db).updateOne({ _id: name, holder }, [{ $set: { until: '$$NOW' } }]);
}
