import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { mongo } from 'mongoose';
import { AppError } from '../errors.js';
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

const lease_ms = 10_000;
const renewal_ms = 3000;
/** A holder stops this long before the database gives the lease to another instance. */
const margin_ms = 2000;

/** Observers of a lease. */
export interface LeaseEvents {
  /** The lease was acquired or renewed. @param tag of the lease */
  held(tag: string): void;
  /** Another instance has the lease, or it is about to expire. May be called again without `held` in between. */
  lost(): void | Promise<void>;
  /** It could not be acquired or renewed, and is kept until it expires. Errors of the connection are logged elsewhere. */
  failed(error: unknown): void;
}

/** A lease that this instance competes for. */
export interface HeldLease {
  isHeld(): boolean;
  /** Ends the competition, and releases the lease after `finish`. */
  stop(finish: () => Promise<void>): Promise<void>;
}

/** Competes for a lease and renews it. @param tag of the lease if it has none yet; default: of this instance */
export function holdLease(db: Database, name: string, events: LeaseEvents, tag: string = randomUUID()): HeldLease {
  const holder = randomUUID();
  const stopped = new AbortController();
  let held_until = 0;
  let expiry: NodeJS.Timeout | undefined;

  function lose(): void | Promise<void> {
    held_until = 0;
    clearTimeout(expiry);
    return events.lost();
  }

  async function compete(): Promise<void> {
    while (!stopped.signal.aborted) {
      const requested_at = performance.now();
      try {
        const taken = await takeLease(db, name, holder, lease_ms, tag);
        if (taken === undefined) await lose();
        else if (!stopped.signal.aborted) {
          held_until = requested_at + lease_ms - margin_ms;
          clearTimeout(expiry);
          expiry = setTimeout(() => void lose(), held_until - performance.now());
          events.held(taken);
        }
      } catch (error) {
        if (!(error instanceof AppError)) events.failed(error);
      }
      await sleep(renewal_ms, undefined, { signal: stopped.signal }).catch(() => undefined);
    }
  }

  const competing = compete();
  return {
    isHeld: () => performance.now() < held_until,
    async stop(finish) {
      stopped.abort();
      await competing;
      await finish();
      clearTimeout(expiry);
      await releaseLease(db, name, holder).catch(() => undefined);
    },
  };
}
