import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { alignPause, type LeasedJob, startLeasedJob } from '../db/leased-job.js';
import { AppError } from '../errors.js';
import { findLastEventId } from '../events/store.js';
import { groupBy } from '../lib/group-by.js';
import { awaitLater } from '../lib/promises.js';
import { createRateLimitedLog } from '../lib/rate-limited-log.js';
import { createShares } from '../lib/shares.js';
import { findActiveAccounts, findOldestRetry, removeRetriesOf } from './deliveries.js';
import { findEnabledWebhooks, selectEnabled } from './store.js';
import { ignoreMissedEvents, recordSwitchedOff } from './switched-off.js';
import { startWorker, type WebhookWorker } from './worker.js';
import type { WorkerDeps } from './worker-state.js';

export type DelivererDeps = Omit<WorkerDeps, 'slots' | 'logInterruption'>;

const lease_ms = 10_000;
const poll_ms = 250;
const polls_per_refresh = 4;
const polls_per_report = 20;
const stop_grace_ms = 5000;
const max_first_attempts = 512;
const max_retries = 256;
/** Attempts of one account that wait for a slot: as many as it has webhooks, and a few retries of each. */
const max_waiting = 10_000;

/**
 * Sends events to the webhooks of all accounts while this instance holds the lease. The state is in the database, so the
 * next holder continues where this one stopped; events in progress are sent again (reference/webhooks.md#guarantees).
 * `stop` gives attempts in progress 5 s to end.
 */
export function startDeliverer(deps: DelivererDeps): LeasedJob {
  const { db, log, metrics } = deps;
  let grace_ms = 0;
  const job = startLeasedJob({
    db,
    log,
    name: 'webhook-delivery',
    lease_ms,
    async work({ signal }) {
      if (!deps.isOn) {
        await recordSwitchedOff(db);
        log.warn({}, 'WEBHOOKS is off: nothing is sent, and what happens now is not sent later');
        if (!signal.aborted) await once(signal, 'abort');
        return;
      }
      await ignoreMissedEvents(db);
      log.info({}, 'webhooks: this instance delivers');
      const session = startDeliverySession(deps);
      if (!signal.aborted) await once(signal, 'abort');
      await session.stop(grace_ms);
      metrics.oldest(0);
      metrics.failing(new Map());
    },
  });
  return {
    stop() {
      grace_ms = stop_grace_ms;
      return job.stop();
    },
  };
}

/** Starts the delivery by the holder of the lease. */
function startDeliverySession(deps: DelivererDeps) {
  const { db, clock, log, metrics } = deps;
  const stopped = new AbortController();
  const slots = {
    first: createShares({ capacity: max_first_attempts, max_waiting }),
    retry: createShares({ capacity: max_retries, max_waiting }),
  };
  const logInterruption = createRateLimitedLog(log, 'error');
  const workers = new Map<string, WebhookWorker>();
  const ending = new Set<Promise<unknown>>();

  /** Starts workers of webhooks that were enabled, and ends those of webhooks that are gone or disabled. */
  async function refresh(): Promise<void> {
    const enabled = await findEnabledWebhooks(db);
    const runs = new Set(enabled.map(({ run }) => run));
    if (stopped.signal.aborted) return;
    for (const webhook of enabled) {
      const running = workers.get(webhook.run);
      if (running !== undefined) running.update(webhook);
      else workers.set(webhook.run, startWorker({ ...deps, slots, logInterruption }, webhook));
    }
    for (const [run, worker] of workers) {
      if (runs.has(run)) continue;
      workers.delete(run);
      const failing = worker.failing();
      if (failing !== undefined) log.info(failing, 'a webhook that failed was disabled or deleted');
      const end: Promise<unknown> = awaitLater(
        worker
          .stop(0)
          .then(() => removeRetriesOf(db, run))
          .catch((error: unknown) => log.warn({ err: error }, 'webhooks: retries of an ended run are left'))
          .finally(() => ending.delete(end)),
      );
      ending.add(end);
    }
  }

  async function reportState(): Promise<void> {
    const failing = [...workers.values()].flatMap((worker) => worker.failing() ?? []);
    const byAccount = groupBy(failing, ({ account }) => account);
    metrics.failing(new Map([...byAccount].map(([account, { length }]) => [account, length])));
    const pending = [...workers.values()].map((worker) => worker.pendingEvent());
    const [oldest] = [...pending, await findOldestRetry(db)].filter((id) => id !== undefined).sort();
    metrics.oldest(oldest === undefined ? 0 : Math.max(0, clock() / 1000 - Number.parseInt(oldest.slice(0, 8), 16)));
  }

  /** @param tail the last event that was looked at @returns the next one */
  async function wakeWorkers(tail: string): Promise<string> {
    const { accounts, last } = await findActiveAccounts(db, tail);
    for (const worker of workers.values()) {
      if (accounts.has(worker.account)) worker.wake();
      worker.tick();
    }
    return last;
  }

  async function runPollLoop(): Promise<void> {
    let tail: string | undefined;
    let hasWarned = false;
    for (let poll = 0; !stopped.signal.aborted; poll++) {
      try {
        if (tail === undefined) {
          // workers that start later read the log themselves
          const end = await findLastEventId(db);
          await removeRetriesOf(db, { $nin: (await findEnabledWebhooks(db)).map(({ run }) => run) });
          tail = end;
        }
        if (workers.size > 0) {
          if (poll % polls_per_refresh === 0) await refresh();
        } else if (await db.findDue([selectEnabled(db)])) {
          tail = await findLastEventId(db);
          await refresh();
        }
        if (workers.size > 0) tail = await wakeWorkers(tail);
        if (poll % polls_per_report === 0) await reportState();
        hasWarned = false;
      } catch (error) {
        if (!hasWarned && !(error instanceof AppError)) log.warn({ err: error }, 'webhooks: polling failed');
        hasWarned = true;
      }
      const pause_ms = workers.size > 0 ? poll_ms : alignPause(poll_ms * polls_per_refresh);
      await sleep(pause_ms, undefined, { signal: stopped.signal }).catch(() => undefined);
    }
  }

  const polling = awaitLater(runPollLoop());
  return {
    async stop(grace_ms: number): Promise<void> {
      stopped.abort();
      await Promise.all([polling, ...[...workers.values()].map((worker) => worker.stop(grace_ms)), ...ending]);
    },
  };
}
