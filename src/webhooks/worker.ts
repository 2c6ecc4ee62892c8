import { setTimeout as sleep } from 'node:timers/promises';
import { awaitLater } from '../lib/promises.js';
import { endPause, sendNewEvents } from './new-events.js';
import { sendRetries } from './retries.js';
import type { StoredWebhook } from './store.js';
import {
  createWorkerState,
  getWebhookNames,
  reportInterruption,
  type WorkerDeps,
  type WorkerState,
} from './worker-state.js';

/** The delivery to one webhook, from one enabling to the next. */
export type WebhookWorker = ReturnType<typeof startWorker>;

const pause_after_error_ms = 5000;

/**
 * Starts to send events: first attempts one after the other in the order of the log, retries beside them
 * (reference/webhooks.md#order).
 */
export function startWorker(deps: WorkerDeps, webhook: StoredWebhook) {
  const state = createWorkerState(deps, webhook);
  const ended = awaitLater(Promise.all([persist(state, sendNewEvents), persist(state, sendRetries)]));
  return {
    account: webhook.account,
    /** Takes changed settings. */
    update(changed: StoredWebhook): void {
      if (changed.version >= state.target.version) state.target = changed;
    },
    /** Looks for new events of the account. */
    wake: state.news.wake,
    /** Begins the retries that are due. */
    tick(): void {
      endPause(state);
      if (state.next_retry_at <= deps.clock() / 1000) state.retries.wake();
    },
    /** The event that is being sent for the first time. */
    pendingEvent: () => state.pending,
    /** The names of the webhook if its last attempt has failed. */
    failing: () => (state.isFailing ? getWebhookNames(state) : undefined),
    /** Begins no further attempt; those in progress have `grace_ms` to end. */
    async stop(grace_ms: number): Promise<void> {
      state.stopped.abort();
      const timer = setTimeout(() => state.aborted.abort(), grace_ms);
      await ended;
      clearTimeout(timer);
    },
  };
}

/** Repeats work that failed, from what is stored. */
async function persist(state: WorkerState, work: (state: WorkerState) => Promise<void>): Promise<void> {
  const { stopped } = state;
  while (!stopped.signal.aborted) {
    try {
      await work(state);
    } catch (error) {
      if (stopped.signal.aborted) return;
      reportInterruption(state, error);
      await sleep(pause_after_error_ms, undefined, { signal: stopped.signal }).catch(() => undefined);
    }
  }
}
