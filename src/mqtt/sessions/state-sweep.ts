import { buildKeyQuery, keyOf } from '../../db/batching/loader.js';
import { type Database, type Log, read_limit_ms } from '../../db/database.js';
import { type LeasedJob, startPeriodicJob, type Turn } from '../../db/leased-job.js';
import { findAll } from '../../db/raw-find.js';
import { readInBatches } from '../../lib/batches.js';
import type { AccountBrokers } from '../account-brokers.js';
import { findGoneOwners } from '../login/login.js';
import { findDeviceOf } from '../protocol/topics.js';
import { deleteQueue } from '../store/queue.js';
import { findRetainedOfDevices, type RetainedTopic, writeRetained } from '../store/retained.js';
import { deleteSession, findOfflineSessions, type OfflineSession } from '../store/sessions.js';

const sweep_period_ms = 3_600_000;
const batch_size = 100;

interface Deps {
  db: Database;
  brokers: AccountBrokers;
  /** Epoch milliseconds. */
  clock: () => number;
  log: Log;
}

/**
 * Deletes what the recheck misses, one instance once an hour: sessions of deleted credentials and keys in accounts of which
 * no client logs in any more, and retained streams of deleted devices.
 */
export function startStateSweep(deps: Deps): LeasedJob {
  const { db, log } = deps;
  const work = (turn: Turn) => sweep(deps, turn);
  return startPeriodicJob({ db, log, name: 'mqtt-sweep', period_ms: sweep_period_ms, work });
}

async function sweep({ db, brokers, clock }: Deps, { isLeaseHeld }: Turn): Promise<void> {
  for await (const sessions of readInBatches(findOfflineSessions(db), batch_size)) {
    if (!isLeaseHeld()) return;
    await removeUnowned(db, sessions, clock() / 1000);
  }
  for await (const topics of readInBatches(findRetainedOfDevices(db), batch_size)) {
    if (!isLeaseHeld()) return;
    for (const orphan of await findOrphans(db, topics)) await removeRetained({ db, brokers }, orphan);
  }
}

/** @param now epoch seconds */
async function removeUnowned(db: Database, sessions: readonly OfflineSession[], now: number): Promise<void> {
  const owners = [...new Set(sessions.map(({ owner }) => owner))];
  const gone = await findGoneOwners(db, owners, now);
  for (const stored of sessions)
    if (gone.has(stored.owner) && (await deleteSession(db, stored))) await deleteQueue(db, stored.session);
}

/** Finds the topics whose device does not exist; another one may have its identifier. */
async function findOrphans(db: Database, topics: readonly RetainedTopic[]): Promise<RetainedTopic[]> {
  const named = topics.flatMap((retained) => {
    const device = findDeviceOf(retained.topic);
    return device === undefined ? [] : [{ retained, key: { account: retained.account, id: device } }];
  });
  const found = await findAll(db.collection('devices'), {
    filter: buildKeyQuery(named.map(({ key }) => key)),
    projection: { account: 1, id_developer: 1 },
    maxTimeMS: read_limit_ms,
  });
  const existing = new Map(
    found.map(({ _id, account, id_developer }) => [keyOf({ account: `${account}`, id: `${id_developer}` }), `${_id}`]),
  );
  return named.flatMap(({ retained, key }) => {
    const parent = existing.get(keyOf(key));
    return parent === undefined || parent !== (retained.parent ?? parent) ? [retained] : [];
  });
}

async function removeRetained({ db, brokers }: Pick<Deps, 'db' | 'brokers'>, orphan: RetainedTopic): Promise<void> {
  const broker = await brokers.find(orphan.account);
  if (broker !== undefined) return broker.removeRetained(orphan.topic);
  await writeRetained(db, [{ ...orphan, payload: Buffer.alloc(0), qos: 0 }]);
}
