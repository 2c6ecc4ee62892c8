import { countOpenAlarms, type OpenAlarms } from '../alarms/open-alarms.js';
import type { Database, JobDeps } from '../db/database.js';
import { storedNameOf } from '../db/former-versions.js';
import { deriveFilterIndex } from '../db/indexes.js';
import { type LeasedJob, startPeriodicJob } from '../db/leased-job.js';
import { runPipeline } from '../db/raw-find.js';
import { byStatus, deriveStatus, type Status, statuses } from '../resources/device/status.js';
import { apikey, device } from '../resources/index.js';

/** Sizes of the whole installation. */
export interface FleetCounts {
  accounts: number;
  devices: Record<Status, number>;
  /** Open ones. */
  alarms: readonly OpenAlarms[];
}

interface Deps extends JobDeps {
  /** Receives the latest counts; undefined while another instance counts. */
  report(counts: FleetCounts | undefined): void;
}

const count_period_ms = 60_000;

/** Counts accounts, devices and open alarms once a minute on one instance; a scrape never waits for it. */
export function startFleetCounts({ db, log, clock, report }: Deps): LeasedJob {
  return startPeriodicJob({
    ...{ db, log, name: 'fleet-counts', lease_ms: 30_000, period_ms: count_period_ms },
    onElsewhere: () => report(undefined),
    work: async () => report(await countFleet(db, clock() / 1000)),
  });
}

/** One row of the counting query: devices late or not by kind of stream, or the accounts. */
interface CountRow {
  _id: { stream_late: boolean; status_late: boolean } | 'accounts';
  count: number;
}

/**
 * Counts accounts with an API key, and devices by status, from index entries alone, and open alarms, none if these cannot be
 * counted. The status comes from the bounds of the deadlines, which the status watch keeps exact within seconds.
 * @param now epoch seconds
 */
export async function countFleet(db: Database, now: number): Promise<FleetCounts> {
  const options = { hint: deriveFilterIndex(device, byStatus).key, readPreference: 'secondaryPreferred' } as const;
  const [rows, alarms] = await Promise.all([
    runPipeline<CountRow>(db.collection(device.plural), buildCountPipeline(now), options),
    countOpenAlarms(db).catch(() => []),
  ]);
  const counts: FleetCounts = {
    accounts: 0,
    alarms,
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
        coll: storedNameOf(apikey.plural),
        pipeline: [
          { $sort: { account: 1, created_at: 1, _id: 1 } },
          { $group: { _id: '$account' } },
          { $group: { _id: 'accounts', count: { $sum: 1 } } },
        ],
      },
    },
  ];
}
