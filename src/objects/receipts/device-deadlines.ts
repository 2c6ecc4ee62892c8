import { type Database, read_limit_ms, type StoredDocument } from '../../db/database.js';
import { retryOnce } from '../../db/driver-errors.js';
import type { Id } from '../../db/ids.js';
import { deriveFilterIndex } from '../../db/indexes.js';
import { byStatus, byStreamKind, type DeadlineKind, deadlineKinds } from '../../resources/device/status.js';
import { device } from '../../resources/index.js';
import type { ConditionMark } from './received-streams.js';

/** Times at which streams of each kind were last received (epoch seconds). */
export type Receipts = { [kind in DeadlineKind]?: number };

/** The streams that a device has sent. */
export interface DeadlineMove {
  _id: StoredDocument['_id'] | undefined;
  receipts: Receipts;
  /** It has sent data streams, or a last will. */
  hasNewRevision: boolean;
  mark: ConditionMark | undefined;
}

/**
 * Moves deadlines after streams were received (reference/devices.md#deadlines). Devices with streams of the same second
 * share one idempotent command. @param stream_revision a new one
 * @returns false if a device does not exist any more, or does not have the expected mark
 */
export async function extendDeadlines(
  db: Database,
  moves: readonly DeadlineMove[],
  stream_revision: Id,
): Promise<boolean> {
  const byChange = new Map<string, DeadlineMove & { ids: StoredDocument['_id'][] }>();
  for (const move of moves) {
    const { receipts, hasNewRevision, mark = {} } = move;
    const key = [receipts.stream, receipts.status, hasNewRevision, ...Object.entries(mark).flat()].join();
    const group = byChange.get(key) ?? { ...move, ids: [] };
    byChange.set(key, group);
    if (move._id !== undefined) group.ids.push(move._id);
  }
  const devices = db.collection('devices');
  const matched = await Promise.all(
    [...byChange.values()].map(async ({ receipts, hasNewRevision, mark = {}, ids }) => {
      const filter = { _id: { $in: ids }, ...('isUnmarked' in mark && { condition_met_at: null }) };
      const set = {
        ...deadlinesAfter(receipts),
        ...('met_at' in mark && { condition_met_at: mark.met_at }),
        ...(hasNewRevision && { stream_revision }),
      };
      const { matchedCount } = await retryOnce(() => devices.updateMany(filter, [{ $set: set }]));
      return matchedCount;
    }),
  );
  return matched.reduce((sum, count) => sum + count, 0) === moves.length;
}

/**
 * The indexed bounds are rewritten only when less than half a period is left
 * (docs/decisions/0009-status-from-deadlines.md).
 */
function deadlinesAfter(receipts: Receipts): object {
  const set: { [path: string]: object } = {};
  for (const [kind, now] of Object.entries(receipts)) {
    const last = { $max: [`$last_${kind}_at`, now] };
    const after = (seconds: number) => ({ $add: [last, { $multiply: [`$frequency_${kind}`, seconds] }] });
    const [safe_until, late_from] = [`${kind}_safe_until`, `${kind}_late_from`];
    const isNear = { $lt: [`$${safe_until}`, after(30)] };
    set[`last_${kind}_at`] = last;
    set[`${kind}_due_at`] = after(60);
    set[safe_until] = { $cond: [isNear, after(60), `$${safe_until}`] };
    set[late_from] = { $cond: [isNear, after(90), `$${late_from}`] };
  }
  return set;
}

/** Update of both bounds, computed from the exact deadline. */
export function boundsOf(kind: DeadlineKind): object {
  return {
    [`${kind}_safe_until`]: `$${kind}_due_at`,
    [`${kind}_late_from`]: { $add: [`$${kind}_due_at`, { $multiply: [`$frequency_${kind}`, 30] }] },
  };
}

/**
 * The index by which the status watch finds devices whose state is not reported yet. Devices that never sent a stream of
 * the kind are not in it.
 */
export function reportIndexOf(kind: DeadlineKind) {
  return { [`${kind}_late`]: 1, [`${kind}_safe_until`]: 1 } as const;
}

/** Indexes of `refreshBounds`; those of lists by status contain `…_late_from` for it. */
const hints = {
  stream: deriveFilterIndex(device, byStatus).key,
  status: deriveFilterIndex(device, byStreamKind).key,
};

/**
 * Makes `…_safe_until` of an account exact at `now` (epoch seconds) before a list by status is read. Updates the few
 * devices with `now` between `…_safe_until` and `…_late_from` that are not late.
 */
export async function refreshBounds(db: Database, account: string, now: number): Promise<void> {
  await Promise.all(
    deadlineKinds.map((kind) => {
      const filter = {
        account,
        [`${kind}_safe_until`]: { $gt: 0, $lte: now },
        [`${kind}_late_from`]: { $gt: now },
        [`${kind}_due_at`]: { $gt: now },
      };
      const options = { hint: hints[kind], writeConcern: { w: 1 }, maxTimeMS: read_limit_ms };
      return retryOnce(() => db.collection(device.plural).updateMany(filter, [{ $set: boundsOf(kind) }], options));
    }),
  );
}
