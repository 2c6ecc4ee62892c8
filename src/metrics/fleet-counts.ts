import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Database, type Log, read_limit_ms } from '../db/database.js';
import { deriveFilterIndex } from '../db/indexes.js';
import { releaseLease, takeLease } from '../db/leases.js';
import { byStatus, deriveStatus, type Status, statuses } from '../resources/device/status.js';
import { apikey, device } from '../resources/index.js';

/** Sizes of the whole installation. */
export interface FleetCounts {
  accounts: number;
  devices: Record<Status, number>;
}

interface Deps {
  db: Database;
  log: Log;
  /** Epoch milliseconds. */
  clock: () => number;
  /** Receives the latest counts; undefined while another instance counts. */
  report(counts: FleetCounts | undefined): void;
}

const lease_name = 'fleet-counts';
const count_period_ms = 60_000;
/** Longer than a period, so that the instance that counts stays the same. */
const lease_ms = 90_000;
const ready_check_ms = 1000;

/** Counts accounts and devices once a minute on one instance; a scrape never waits for it. */
export function startFleetCounts({ db, log, clock, report }: Deps): { stop(): Promise<void> } {
  const stopped = new AbortController();
  const holder = randomUUID();
  const pause = (ms: number) => sleep(ms, undefined, { signal: stopped.signal }).catch(() => undefined);
  let hasWarned = false;

  async function countOnce(): Promise<void> {
    try {
      const isMine = (await takeLease(db, lease_name, holder, lease_ms, '')) !== undefined;
      report(isMine ? await countFleet(db, clock() / 1000) : undefined);
      hasWarned = false;
    } catch (error) {
      report(undefined);
      if (!hasWarned && !stopped.signal.aborted) log.warn({ err: error }, 'accounts and devices cannot be counted');
      hasWarned = true;
    }
  }

  async function run(): Promise<void> {
    while (!stopped.signal.aborted) {
      const isReady = await db.isReady();
      if (isReady) await countOnce();
      await pause(isReady ? count_period_ms : ready_check_ms);
    }
    await releaseLease(db, lease_name, holder).catch(() => undefined);
  }

  const running = run();
  return {
    async stop() {
      stopped.abort();
      await running;
    },
  };
}

/** One row of the counting query: devices late or not by kind of stream, or the accounts. */
interface CountRow {
  _id: { stream_late: boolean; status_late: boolean } | 'accounts';
  count: number;
}

/**
 * Counts accounts with an API key, and devices by status, from index entries alone. The status comes from the bounds of
 * the deadlines, which the status watch keeps exact within seconds. @param now epoch seconds
 */
export async function countFleet(db: Database, now: number): Promise<FleetCounts> {
  const rows = await db
    .collection(device.plural)
    .aggregate<CountRow>(buildCountPipeline(now), {
      hint: deriveFilterIndex(device, byStatus).key,
      maxTimeMS: read_limit_ms,
      readPreference: 'secondaryPreferred',
    })
    .toArray();
  const counts: FleetCounts = {
    accounts: 0,
    devices: Object.fromEntries(statuses.map((status) => [status, 0])) as FleetCounts['devices'],
  };
  for (const { _id, count } of rows) {
    if (_id === 'accounts') counts.accounts = count;
    else counts.devices[deriveStatus(_id.stream_late, _id.status_late)] = count;
  }
  return counts;
}

/** Builds the counting query, one command for both collections. @param now epoch seconds */
export function buildCountPipeline(now: number): object[] {
  const isLate = (kind: string) => ({ $lte: [`$${kind}_safe_until`, now] });
  return [
    {
      $group: { _id: { stream_late: isLate('stream'), status_late: isLate('status') }, count: { $sum: 1 } },
    },
    {
      $unionWith: {
        coll: apikey.plural,
        pipeline: [
          { $sort: { account: 1, created_at: 1, _id: 1 } },
          { $group: { _id: '$account' } },
          { $group: { _id: 'accounts', count: { $sum: 1 } } },
        ],
      },
    },
  ];
}
