import type { Database, Log } from '../../db/database.js';
import { type LeasedJob, startPeriodicJob, type Turn } from '../../db/leased-job.js';
import { readInBatches } from '../../lib/batches.js';
import { findGoneOwners } from '../login/login.js';
import { deleteQueue } from '../store/queue.js';
import { deleteSession, findOfflineSessions } from '../store/sessions.js';

const sweep_period_ms = 3_600_000;
const batch_size = 100;

/**
 * Deletes what the recheck misses, one instance once an hour: sessions of deleted credentials and keys in accounts of which
 * no client logs in any more. @param clock epoch milliseconds
 */
export function startStateSweep(db: Database, log: Log, clock: () => number): LeasedJob {
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
