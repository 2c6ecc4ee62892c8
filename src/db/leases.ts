import type { mongo } from 'mongoose';
import { ignore } from '../lib/promises.js';
import { createBatcher } from './batching/batcher.js';
import type { DatabaseAccess, LeaseRequest, TakeLease } from './database.js';
import { isDuplicate } from './driver-errors.js';

/** A lease that one instance holds at a time. */
interface Lease {
  _id: string;
  holder: string;
  until: Date;
  /** Set by the first holder and kept by all later ones. */
  tag: string;
}

const leases = (db: DatabaseAccess) => db.collection('leases') as unknown as mongo.Collection<Lease>;
const afterNow = (lasts_ms: number) => ({ $add: ['$$NOW', lasts_ms] });
const hasExpired = { $lte: ['$until', '$$NOW'] };

/** Takes one lease (TakeLease). */
export async function takeLease(
  db: DatabaseAccess,
  { name, holder, lasts_ms, tag }: LeaseRequest,
): Promise<string | undefined> {
  const free = { $or: [{ $eq: ['$holder', holder] }, hasExpired] };
  const taken = {
    holder: { $cond: [free, holder, '$holder'] },
    until: { $cond: [free, afterNow(lasts_ms), '$until'] },
    tag: { $ifNull: ['$tag', tag] },
  };
  const options = { upsert: true, returnDocument: 'after' } as const;
  const now = await leases(db)
    .findOneAndUpdate({ _id: name }, [{ $set: taken }], options)
    // another instance created the lease at the same time
    .catch(ignore(isDuplicate));
  return now?.holder === holder ? now.tag : undefined;
}

/** Ends a lease, so that others can acquire it at once. */
export async function releaseLease(db: DatabaseAccess, name: string, holder: string): Promise<void> {
  await leases(db).updateOne({ _id: name, holder }, [{ $set: { until: '$$NOW' } }]);
}

/** Finds the leases that have expired, by how their names begin. */
export async function findExpired(
  db: DatabaseAccess,
  prefix: string,
): Promise<readonly Pick<Lease, '_id' | 'until'>[]> {
  const names = { _id: { $gte: prefix, $lt: `${prefix}\uffff` }, $expr: hasExpired };
  return leases(db)
    .find(names, { projection: { until: 1 } })
    .toArray();
}

/** Removes a lease whose name is not used again. */
export async function removeLease(db: DatabaseAccess, name: string): Promise<void> {
  await leases(db).deleteOne({ _id: name });
}

interface Job extends LeaseRequest {
  taken?: string | undefined;
}

/** Creates the `TakeLease` of a process: the leases that are renewed at the same time are read and written by one command each. */
export function createLeaseTaker(db: DatabaseAccess): TakeLease {
  /** @returns false if another instance holds some by now */
  async function renew(jobs: readonly Job[]): Promise<boolean> {
    const renewals = jobs.map(({ name, holder, lasts_ms }) => ({
      updateOne: { filter: { _id: name, holder }, update: [{ $set: { until: afterNow(lasts_ms) } }] },
    }));
    if (jobs.length === 0) return true;
    return (await leases(db).bulkWrite(renewals, { ordered: false })).matchedCount === jobs.length;
  }

  async function commit(jobs: readonly Job[]): Promise<ReadonlyMap<Job, Error>> {
    const errors = new Map<Job, Error>();
    const renewals = jobs.filter(({ isRenewal }) => isRenewal);
    if (await renew(renewals)) for (const job of renewals) job.taken = job.tag;
    const others = jobs.filter(({ taken }) => taken === undefined);
    if (others.length === 0) return errors;
    const held = { _id: { $in: others.map(({ name }) => name) }, $expr: { $not: [hasExpired] } };
    const holders = await leases(db)
      .find(held, { projection: { holder: 1 } })
      .toArray();
    const holderOf = new Map(holders.map(({ _id, holder }) => [_id, holder]));
    const free = others.filter(({ name, holder }) => [undefined, holder].includes(holderOf.get(name)));
    const takeAlone = async (job: Job) => {
      job.taken = await takeLease(db, job);
    };
    await Promise.all(free.map((job) => takeAlone(job).catch((error: Error) => void errors.set(job, error))));
    return errors;
  }

  const submit = createBatcher(commit, { maxBatchSize: 100, maxInFlight: 1 });
  return async (request) => {
    const job: Job = { ...request };
    await submit(job);
    return job.taken;
  };
}
