import type { mongo } from 'mongoose';
import type { Database } from './database.js';
import { isDuplicate } from './driver-errors.js';

/** A lease that one instance holds at a time. */
interface Lease {
  _id: string;
  holder: string;
  until: Date;
  /** Set by the first holder and kept by all later ones. */
  tag: string;
}

const leases = (db: Database) => db.collection('leases') as unknown as mongo.Collection<Lease>;

/**
 * Acquires or renews a lease for `lasts_ms` by the database's clock, starting after the call. Until it expires, only the
 * holder can renew it. @returns the lease's tag (`tag` if it has none yet), or undefined while another instance holds it
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
    // another instance created the lease at the same time
    if (isDuplicate(error)) return undefined;
    throw error;
  }
}

/** Ends a lease, so that others can acquire it at once. */
export async function releaseLease(db: Database, name: string, holder: string): Promise<void> {
  await leases(db).updateOne({ _id: name, holder }, [{ $set: { until: '$$NOW' } }]);
}
