import { LRUCache } from 'lru-cache';
import type { mongo } from 'mongoose';
import type { Database } from '../../db/database.js';
import { type Id, keyOfId } from '../../db/ids.js';
import { findMany } from '../../db/raw-find.js';
import { runInParallel } from '../../lib/parallel.js';
import { createTurns } from '../../lib/turns.js';
import { readPath } from '../../schema/data-path.js';
import type { ReceivedStream } from '../receipts/received-streams.js';
import { cache_ms, measuredPathsOf } from './measured-paths.js';
import { openReview, scheduleReview } from './reviews.js';
import {
  buildValue,
  type DeviceValue,
  isLater,
  type KeptPath,
  keyOfValue,
  saveLaterValues,
  toKeptPaths,
} from './values.js';

export type ValueRecorder = ReturnType<typeof createValueRecorder>;

/** Values and times that streams bring. */
interface Recorded {
  /** The last of each device and path. */
  values: Map<string, DeviceValue>;
  /** The first `at` of the future by device. */
  next: Map<string, { device: ReceivedStream['device']; at: number }>;
}

const max_cached_accounts = 10_000;
const max_concurrent = 8;

/** Creates what keeps the values at measured paths up to date with the streams that are stored. @param clock epoch milliseconds */
export function createValueRecorder(db: Database, clock: () => number) {
  const findPaths = createPathCache(db);
  return {
    /** Runs before streams of these devices are stored. @returns ends it after `record`; undefined if no path is kept */
    async begin(devices: Iterable<{ _id: Id; account: string }>) {
      const senders = [...devices];
      const paths = await findPaths(new Set(senders.map(({ account }) => account)));
      const measuring = senders.filter(({ account }) => paths.has(account)).map(({ _id }) => _id);
      return measuring.length === 0 ? undefined : openReview(db, measuring, clock() / 1000);
    },
    /** Runs when streams are durable, and before their senders are answered. */
    async record(streams: readonly ReceivedStream[]): Promise<void> {
      const recorded: Recorded = { values: new Map(), next: new Map() };
      const paths = await findPaths(new Set(streams.map(({ device }) => device.account)));
      if (paths.size === 0) return;
      const now = clock() / 1000;
      const takeTurns = createTurns();
      for (const stream of streams) {
        await takeTurns();
        const kept = paths.get(stream.device.account);
        if (kept !== undefined) collect(db, recorded, stream, { kept, now });
      }
      await saveLaterValues(db, [...recorded.values.values()]);
      await runInParallel(recorded.next.values(), max_concurrent, ({ device, at }) => scheduleReview(db, device, at));
    },
  };
}

function collect(
  db: Database,
  { values, next }: Recorded,
  { _id: { n }, device, at, data }: ReceivedStream,
  { kept, now }: { kept: readonly KeptPath[]; now: number },
): void {
  const parsed = data.parse();
  for (const { _id, path } of kept) {
    const value = readPath(parsed, path);
    if (value === undefined) continue;
    if (at > now) {
      const first = next.get(keyOfId(device._id))?.at ?? Number.POSITIVE_INFINITY;
      next.set(keyOfId(device._id), { device, at: Math.min(first, at) });
      continue;
    }
    const key = keyOfValue({ parent: device._id, path: _id });
    const sent = buildValue(db, device, _id, { value, at, n: n as mongo.Long });
    if (!isLater(values.get(key), sent)) values.set(key, sent);
  }
}

type KeptPaths = ReadonlyMap<string, readonly KeptPath[]>;

/** Caches the paths of accounts as they were at most `cache_ms` ago. @returns a look-up of those of accounts that have any */
function createPathCache(db: Database): (accounts: ReadonlySet<string>) => Promise<KeptPaths> {
  const cache = new LRUCache<string, readonly KeptPath[]>({ max: max_cached_accounts, ttl: cache_ms });

  async function load(accounts: readonly string[]): Promise<void> {
    const start = performance.now();
    const stored = await findMany(measuredPathsOf(db), { account: { $in: accounts } });
    for (const account of accounts)
      cache.set(account, toKeptPaths(stored.filter((path) => path.account === account)), { start });
  }

  return async (accounts) => {
    const missing = [...accounts].filter((account) => !cache.has(account));
    if (missing.length > 0) await load(missing);
    const cached = [...accounts].map((account) => [account, cache.get(account, { allowStale: true }) ?? []] as const);
    return new Map(cached.filter(([, paths]) => paths.length > 0));
  };
}
