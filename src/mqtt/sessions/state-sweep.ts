import type { Database, Log } from '../../db/database.js';
import { type LeasedJob, startPeriodicJob, type Turn } from '../../db/leased-job.js';
import { readInBatches } from '../../lib/batches.js';
import { deleteQueue } from '../store/queue.js';
import { deleteSession, findOfflineSessions } from '../store/sessions.js';

const sweep_period_ms = 3_600_000;
const batch_size = 100;

interface Deps {
  db: Database;
  /** Epoch milliseconds. */
  clock: () => number;
  log: Log;
  /** Finds the owners that cannot log in any more. `now` in epoch seconds. */
  findGoneOwners(db: Database, owners: readonly string[], now: number): Promise<ReadonlySet<string>>;
}

/**
 * Deletes what the recheck misses, one instance once an hour: sessions of deleted credentials and keys in accounts of which
 * no client logs in any more.
 */
export function startStateSweep({ db, clock, log, findGoneOwners }: Deps): LeasedJob {
  async function work({ isLeaseHeld }: Turn): Promise<void> {
    for await (const sessions of readInBatches(findOfflineSessions(db), batch_size)) {
      if (!isLeaseHeld()) return;
      const owners = [...new Set(sessions.map(({ owner }) => owner))];
      const gone = await findGoneOwners(db, owners, clock() / 1000);
      for (const stored of sessions)
        if (gone.has(stored.owner) && (await deleteSession(db, stored))) await deleteQueue(db, stored.session);
    }
  }
  return startPeriodicJob({ db, log, name: 'mqtt-sweep', period_ms: sweep_period_ms, work });
}
