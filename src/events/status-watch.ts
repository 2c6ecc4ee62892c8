import type { Collection, Database, JobDeps, StoredDocument } from '../db/database.js';
import { type LeasedJob, startPeriodicJob } from '../db/leased-job.js';
import { findMany } from '../db/raw-find.js';
import { boundsOf, reportIndexOf } from '../objects/receipts/device-deadlines.js';
import { buildStatusChange } from '../objects/write/last-change.js';
import { type DeadlineKind, deadlineKinds, deriveStatus } from '../resources/device/status.js';
import { device } from '../resources/index.js';

/** A device whose reported state may differ from its deadlines. */
type Candidate = StoredDocument & {
  [key in `${DeadlineKind}_${'due_at' | 'missed_at'}` | `last_${DeadlineKind}_at`]?: number;
} & { [key in `${DeadlineKind}_late`]?: boolean };

/** A kind of stream that is late now, or no longer. */
interface Step {
  kind: DeadlineKind;
  /** Epoch seconds. */
  at: number;
}

/** The other state of one kind of stream, for devices of which this state is reported. */
interface Change {
  kind: DeadlineKind;
  /** The kinds that are late. */
  state: { [key in DeadlineKind]: boolean };
}

const look_period_ms = 2000;
const batch_size = 1000;

const projection = Object.fromEntries(
  deadlineKinds.flatMap((kind) =>
    [`${kind}_due_at`, `${kind}_missed_at`, `${kind}_late`, `last_${kind}_at`].map((key) => [key, 1]),
  ),
);

function devicesOf(db: Database): Collection<Candidate> {
  return db.collection(device.plural);
}

/**
 * Reports changes of the status to the event log (reference/events.md#status-changes): it stores the new state on condition
 * that the device still has the old one and its deadline calls for the new one, so a change is reported once. One instance
 * does so.
 */
export function startStatusWatch({ db, log, clock }: JobDeps): LeasedJob {
  const work = () => reportChanges(db, clock() / 1000);
  return startPeriodicJob({ db, log, name: 'status-watch', period_ms: look_period_ms, mayRun: db.isClockRight, work });
}

/** Reports one step of each device found. @returns whether there may be more. @param now epoch seconds */
async function reportChanges(db: Database, now: number): Promise<boolean> {
  const collection = devicesOf(db);
  const looks = deadlineKinds.flatMap((kind) =>
    [false, true].map((late) => {
      const safe_until = late ? { $gt: now } : { $gt: 0, $lte: now };
      const filter = { [`${kind}_late`]: late, [`${kind}_safe_until`]: safe_until };
      return { collection, filter, hint: reportIndexOf(kind) };
    }),
  );
  if (!(await db.findDue(looks))) return false;
  let isBusy = false;
  for (const { filter, hint } of looks) {
    const devices = await findMany(collection, filter, { projection, hint, limit: batch_size });
    if (devices.length > 0 && (await reportSteps(db, devices, now)) > 0) isBusy = true;
  }
  return isBusy;
}

/** @returns the number of devices that were changed */
async function reportSteps(db: Database, candidates: readonly Candidate[], now: number): Promise<number> {
  const groups = new Map<string, { change: Change; ids: Candidate['_id'][] }>();
  const overdue: Candidate['_id'][] = [];
  for (const candidate of candidates) {
    const { _id, stream_late = true, status_late = true } = candidate;
    const step = findStep(candidate, now);
    if (step === undefined) {
      overdue.push(_id);
      continue;
    }
    const change = { kind: step.kind, state: { stream: stream_late, status: status_late } };
    const key = JSON.stringify(change);
    const group = groups.get(key) ?? { change, ids: [] };
    groups.set(key, group);
    group.ids.push(_id);
  }
  let changed = await refreshBounds(db, overdue, now);
  for (const { change, ids } of groups.values()) {
    const { filter, set } = buildUpdate(change, now);
    // otherwise MongoDB reads all devices that are late
    const options = { hint: { _id: 1 } } as const;
    changed += (await devicesOf(db).updateMany({ _id: { $in: ids }, ...filter }, [{ $set: set }], options))
      .modifiedCount;
  }
  return changed;
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
    if (isLate) return [{ kind, at: due_at }];
    return due_at === candidate[`${kind}_missed_at`] ? [] : [{ kind, at: candidate[`last_${kind}_at`] ?? now }];
  });
  return steps.toSorted((step, other) => step.at - other.at)[0];
}

/** Update of devices that are still in the reported state, and whose deadline calls for the other one. */
function buildUpdate({ kind, state }: Change, now: number) {
  const late = !state[kind];
  const after = { ...state, [kind]: late };
  const [due, missed, last] = [`$${kind}_due_at`, `$${kind}_missed_at`, `$last_${kind}_at`];
  // a longer period also brings a device back
  const back_at = { $cond: [{ $gte: [last, { $ifNull: [missed, 0] }] }, last, now] };
  const from = deriveStatus(state.stream, state.status);
  const to = deriveStatus(after.stream, after.status);
  return {
    filter: {
      stream_late: state.stream,
      status_late: state.status,
      [`${kind}_due_at`]: late ? { $gt: 0, $lte: now } : { $gt: now },
      // a clock that was set back brings no device back: that takes another deadline
      ...(!late && { $expr: { $ne: [due, missed] } }),
    },
    set: {
      [`${kind}_late`]: late,
      ...(late && { [`${kind}_missed_at`]: due }),
      last_change: buildStatusChange(from, to, late ? due : back_at),
    },
  };
}
