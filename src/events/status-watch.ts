import type { mongo } from 'mongoose';
import { type Database, type Log, read_limit_ms, type StoredDocument } from '../db/database.js';
import { boundsOf, reportIndexOf } from '../repositories/device-deadlines.js';
import { formatLastChange } from '../repositories/last-change.js';
import { type DeadlineKind, deadlineKinds, deriveStatus } from '../resources/device/status.js';
import { device } from '../resources/index.js';
import { startLeasedJob } from './leased-job.js';

interface Deps {
  db: Database;
  log: Log;
  /** Epoch milliseconds. */
  clock: () => number;
}

/** A device whose reported state may differ from its deadlines. */
type Candidate = StoredDocument & {
  [key in `${DeadlineKind}_${'due_at' | 'missed_at' | 'safe_until'}` | `last_${DeadlineKind}_at`]?: number;
} & { [key in `${DeadlineKind}_late`]?: boolean };

/** A kind of stream that is late now, or no longer. */
interface Step {
  kind: DeadlineKind;
  late: boolean;
  /** Epoch seconds. */
  at: number;
}

const look_period_ms = 1000;
const batch_size = 1000;

const projection = Object.fromEntries(
  deadlineKinds.flatMap((kind) =>
    [`${kind}_due_at`, `${kind}_missed_at`, `${kind}_safe_until`, `${kind}_late`, `last_${kind}_at`].map((key) => [
      key,
      1,
    ]),
  ),
);

function devicesOf(db: Database): mongo.Collection<Candidate> {
  return db.collection(device.plural) as unknown as mongo.Collection<Candidate>;
}

/**
 * Reports changes of the status to the event log (reference/events.md#status-changes): it stores the new state on condition
 * that the device still has the old one and the same deadlines, so a change is reported once. One
 * instance does so every second.
 */
export function startStatusWatch({ db, log, clock }: Deps): { stop(): Promise<void> } {
  return startLeasedJob({
    db,
    log,
    name: 'status-watch',
    async work(turn) {
      while (await turn.goesOn()) {
        const isBusy = await reportChanges(db, clock() / 1000);
        if (!isBusy) await turn.pause(look_period_ms);
      }
    },
  });
}

/** Reports one step of each device found. @returns whether there may be more. @param now epoch seconds */
async function reportChanges(db: Database, now: number): Promise<boolean> {
  let isBusy = false;
  for (const kind of deadlineKinds) {
    for (const late of [false, true]) {
      const filter = { [`${kind}_late`]: late, [`${kind}_safe_until`]: late ? { $gt: now } : { $gt: 0, $lte: now } };
      const options = { projection, hint: reportIndexOf(kind), limit: batch_size, maxTimeMS: read_limit_ms };
      const found = await devicesOf(db).find(filter, options).toArray();
      if (found.length > 0 && (await reportSteps(db, found, now)) > 0) isBusy = true;
    }
  }
  return isBusy;
}

/** @returns the number of devices that were changed */
async function reportSteps(db: Database, candidates: readonly Candidate[], now: number): Promise<number> {
  const writes = candidates.flatMap((candidate) => {
    const step = findStep(candidate, now);
    return step === undefined ? [] : [{ updateOne: buildUpdate(candidate, step) }];
  });
  const overdue = candidates.filter((candidate) => findStep(candidate, now) === undefined).map(({ _id }) => _id);
  const changed = writes.length > 0 ? (await devicesOf(db).bulkWrite(writes, { ordered: false })).modifiedCount : 0;
  return changed + (await refreshBounds(db, overdue, now));
}

/** Makes the bounds exact of devices whose deadline is later than the bound says. */
async function refreshBounds(db: Database, ids: readonly Candidate['_id'][], now: number): Promise<number> {
  let changed = 0;
  if (ids.length === 0) return changed;
  for (const kind of deadlineKinds) {
    const filter = { _id: { $in: [...ids] }, [`${kind}_safe_until`]: { $lte: now }, [`${kind}_due_at`]: { $gt: now } };
    changed += (await devicesOf(db).updateMany(filter, [{ $set: boundsOf(kind) }])).modifiedCount;
  }
  return changed;
}

/** Finds the earliest change that is not reported yet. */
function findStep(candidate: Candidate, now: number): Step | undefined {
  const steps = deadlineKinds.flatMap((kind): Step[] => {
    const due_at = candidate[`${kind}_due_at`] ?? 0;
    if (due_at === 0) return [];
    const isLate = due_at <= now;
    if (isLate === candidate[`${kind}_late`]) return [];
    if (isLate) return [{ kind, late: true, at: due_at }];
    // a clock that was set back brings no device back: that takes another deadline
    if (due_at === candidate[`${kind}_missed_at`]) return [];
    const last_at = candidate[`last_${kind}_at`] ?? 0;
    // a longer period also brings a device back
    return [{ kind, late: false, at: last_at >= (candidate[`${kind}_missed_at`] ?? 0) ? last_at : now }];
  });
  return steps.toSorted((one, other) => one.at - other.at)[0];
}

function buildUpdate(candidate: Candidate, { kind, late, at }: Step) {
  const { _id, stream_late = true, status_late = true } = candidate;
  const state = { stream: stream_late, status: status_late };
  const after = { ...state, [kind]: late };
  const from = deriveStatus(state.stream, state.status);
  const to = deriveStatus(after.stream, after.status);
  const condition = {
    _id,
    ...Object.fromEntries(
      deadlineKinds.flatMap((one) => [`${one}_due_at`, `${one}_late`].map((key) => [key, candidate[key]])),
    ),
  };
  const set = {
    [`${kind}_late`]: late,
    ...(late && { [`${kind}_missed_at`]: at }),
    last_change: formatLastChange({ status: { from, to, since: at } }),
  };
  return { filter: condition, update: { $set: set } };
}
