import { type Collection, type Database, type Log, read_limit_ms, type StoredObject } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { type LeasedJob, startLeasedJob, type Turn } from '../db/leased-job.js';
import { keyOfId } from '../objects/ancestors.js';
import { alarmscan, device } from '../resources/index.js';
import { deviceProjection, toWatched } from './devices.js';
import { scheduleNextDue } from './due-devices.js';
import { batch_size, checkRecords, type ReviewDeps, settleDevices } from './review.js';
import { cache_ms, type Rule } from './rule-sets.js';

/**
 * Devices that are to be looked at without a stream: those of a rule that was made or changed, or those below an object of the
 * hierarchy that was moved or enabled.
 */
interface Scan {
  _id: string;
  account: string;
  /** The rule, or the object. */
  target: Id;
  kind: 'rule' | 'below';
  /** Not before: other processes may still have the former rules. Epoch milliseconds of the database's clients. */
  due_at: number;
  /** The last device that was looked at. */
  after?: string;
  /** Changes with each request, so that one during the scan is not lost. */
  requested: string;
}

const look_period_ms = 500;
const wait_ms = 2 * cache_ms;
const retry_ms = 5000;

function scansOf(db: Database): Collection<Scan> {
  return db.collection<Scan>(alarmscan.plural);
}

/** Asks for a scan, which begins when all processes know the present rules. */
export async function scheduleScan(
  db: Database,
  { account, kind, target }: Pick<Scan, 'account' | 'kind' | 'target'>,
): Promise<void> {
  const set = { account, kind, target, due_at: Date.now() + wait_ms, requested: String(db.newId()) };
  await scansOf(db).updateOne(
    { _id: `${kind} ${String(target)}` },
    { $set: set, $unset: { after: '' } },
    { upsert: true },
  );
}

/** Carries out the requested scans on one instance, each within a minute of its request (reference/alarms.md#evaluation). */
export function startAlarmScans(deps: ReviewDeps & { log: Log }): LeasedJob {
  const { store, log } = deps;
  return startLeasedJob({
    db: store.db,
    log,
    name: 'alarm-scans',
    async work(turn) {
      for (; turn.isLeaseHeld(); await turn.pause(look_period_ms)) {
        const options = { sort: { due_at: 1 }, limit: 100, maxTimeMS: read_limit_ms } as const;
        const due = await scansOf(store.db)
          .find({ due_at: { $lte: Date.now() } }, options)
          .toArray();
        for (const scan of due)
          await runScan(deps, scan, turn).catch(async (error: unknown) => {
            log.warn({ err: error, account: scan.account }, 'a change of alarm rules is not evaluated yet; retrying');
            // not before scans of others
            await scansOf(store.db).updateOne({ _id: scan._id }, { $set: { due_at: Date.now() + retry_ms } });
          });
      }
    },
  });
}

async function runScan(deps: ReviewDeps, scan: Scan, turn: Turn): Promise<void> {
  const { db } = deps.store;
  const { _id, account, kind, target, requested } = scan;
  const rules = await deps.loadRules(account);
  const rule = kind === 'rule' ? rules.byKey.get(keyOfId(target)) : undefined;
  if (kind === 'rule') await checkRecords(deps, { rule_id: target });
  const selected = kind === 'rule' ? (rule === undefined ? [] : [rule]) : rules.rules.filter(isWatchingAbsence);
  const isCovering = kind === 'rule' ? rule !== undefined : rules.rules.length > 0;
  const filter = rule?.filter ?? { ancestors: target };
  for (let { after } = scan; isCovering; ) {
    if (!turn.isLeaseHeld()) return;
    const query = { account, ...filter, ...(after !== undefined && { id_developer: { $gt: after } }) };
    const options = {
      projection: deviceProjection,
      sort: { id_developer: 1 },
      limit: batch_size,
      maxTimeMS: read_limit_ms,
    } as const;
    const stored = await db.collection<StoredObject>(device.plural).find(query, options).toArray();
    const now = deps.clock() / 1000;
    const devices = await toWatched(db, stored);
    await Promise.all([
      settleDevices(deps, devices, {
        rulesOf: () => selected,
        // a rule looks at what is stored; a device that comes under one by a move or by being enabled starts without a state
        causeOf: ({ created_at }) =>
          kind === 'rule' ? { floor: created_at } : { floor: now, kept: ['value', 'status'] },
      }),
      scheduleNextDue(db, devices, now),
    ]);
    after = stored.at(-1)?.id_developer;
    if (after === undefined || stored.length < batch_size) break;
    await scansOf(db).updateOne({ _id, requested }, { $set: { after } });
  }
  await scansOf(db).deleteOne({ _id, requested });
}

/** Reports whether a rule watches devices that send nothing. */
export function isWatchingAbsence({ conditions }: Rule): boolean {
  return conditions.some(({ kind }) => kind === 'absent');
}
