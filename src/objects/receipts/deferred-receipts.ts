import { randomUUID } from 'node:crypto';
import type { Database, Log } from '../../db/database.js';
import { type Id, keyOfId } from '../../db/ids.js';
import { type LeasedJob, startLeasedJob, type Turn } from '../../db/leased-job.js';
import { removeLease } from '../../db/leases.js';
import { splitIntoBatches } from '../../lib/batches.js';
import { deadlineKinds } from '../../resources/device/status.js';
import { type DeadlineMove, extendDeadlines, type Receipts } from './device-deadlines.js';

/** The stored members of a deadline, in epoch seconds. */
export interface StoredDeadline {
  /** 0 before the first stream. */
  last_at: number;
  safe_until: number;
  period_s: number;
}

/** Receipts of a device. */
export type DeferredMove = Pick<DeadlineMove, '_id' | 'receipts'>;

/**
 * Receipts in the memory of a process that are stored within a minute; those of a process that crashes are read from the
 * streams (docs/decisions/0037-receipts-stored-later.md).
 */
export type DeferredReceipts = ReturnType<typeof createDeferredReceipts>;

/** A stored receipt is this much older than one that is stored later, at most. */
export const max_lag_s = 25;
/** `at` of a stream whose receipt is stored later differs from the receipt by at most this much. */
export const max_skew_s = 10;
/** Longer than a receipt is in memory, and a lease lasts, and clocks differ. */
export const max_age_s = 90;
/** Names of leases that processes hold while they have receipts in memory. */
export const lease_prefix = 'receipts-';
const max_devices = 200_000;
const batch_size = 500;
const tick_ms = 5000;
const rest_ms = 20_000;

/**
 * Reports whether a receipt may be stored later. A quarter of the period, which is a minute or more, keeps the stored deadline
 * from passing while the receipt is in memory or, after a crash, not yet read from the streams. The bounds of the deadline stay.
 */
export function isDeferrable({ last_at, safe_until, period_s }: StoredDeadline, received: number): boolean {
  return received - last_at <= Math.min(max_lag_s, period_s / 4) && safe_until - received >= period_s / 2;
}

interface Pending extends DeferredMove {
  key: string;
  since_ms: number;
}

/** Creates the memory of a process; nothing is deferred before `work` runs. */
export function createDeferredReceipts(db: Database) {
  const pending = new Map<string, Pending>();
  let mayDefer = () => false;

  function put(moves: readonly DeferredMove[]): void {
    for (const { _id, receipts } of moves) {
      if (_id === undefined) continue;
      const key = keyOfId(_id);
      const { receipts: former = {}, since_ms = performance.now() } = pending.get(key) ?? {};
      pending.set(key, { key, _id, receipts: latestOf(receipts, former), since_ms });
    }
  }

  /** Receipts stay in memory if they cannot be stored, or if the device has sent again. */
  async function storeAll(due: readonly Pending[]): Promise<void> {
    // each second in a batch is a command
    const bySecond = due.toSorted((move, other) => (move.receipts.stream ?? 0) - (other.receipts.stream ?? 0));
    for (const batch of splitIntoBatches(bySecond, batch_size)) {
      const moves = batch.map(({ _id, receipts }) => {
        return { _id, receipts, hasNewRevision: receipts.stream !== undefined, mark: undefined };
      });
      await extendDeadlines(db, moves, db.newId());
      for (const move of batch) if (pending.get(move.key) === move) pending.delete(move.key);
    }
  }

  const store = () => storeAll([...pending.values()]);

  return {
    /** @returns false if the caller has to store them: this process may be taken for dead, or has no room */
    add(moves: readonly DeferredMove[]): boolean {
      if (!mayDefer() || pending.size + moves.length > max_devices) return false;
      put(moves);
      return true;
    },
    store,
    /** Stores those of a device. @returns undefined if there are none */
    storeOf(_id: Id | undefined): Promise<true> | undefined {
      const own = _id && pending.get(keyOfId(_id));
      return own && storeAll([own]).then(() => true);
    },
    /** Keeps receipts while the turn lasts. */
    async work(turn: Turn): Promise<void> {
      mayDefer = turn.isLeaseHeld;
      while (turn.isLeaseHeld()) {
        await turn.pause(tick_ms);
        const until_ms = performance.now() - rest_ms;
        await storeAll([...pending.values()].filter(({ since_ms }) => since_ms <= until_ms));
      }
      await store();
    },
  };
}

function latestOf(receipts: Receipts, former: Receipts): Receipts {
  const latest: Receipts = {};
  for (const kind of deadlineKinds) {
    const at = Math.max(receipts[kind] ?? 0, former[kind] ?? 0);
    if (at > 0) latest[kind] = at;
  }
  return latest;
}

/** Lets a process keep receipts in memory under a lease, by which others see that it lives. */
export function startDeferral(db: Database, deferred: DeferredReceipts, log: Log): LeasedJob {
  const name = `${lease_prefix}${randomUUID()}`;
  const job = startLeasedJob({ db, log, name, work: (turn) => deferred.work(turn) });
  return {
    async stop() {
      await job.stop();
      const hasStored = await deferred.store().then(
        () => true,
        () => false,
      );
      // what is left is read from the streams
      if (hasStored) await removeLease(db, name).catch(() => undefined);
    },
  };
}
