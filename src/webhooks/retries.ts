import { findEvent } from '../events/store.js';
import { findNextRetries, type Retry, removeRetry } from './deliveries.js';
import { sendAttempt } from './send-attempt.js';
import { refreshTarget, type WorkerState } from './worker-state.js';

const max_parallel_retries = 4;

/** Sends what is due again, until the worker is stopped (reference/webhooks.md#retries). */
export async function sendRetries(state: WorkerState): Promise<void> {
  const { deps, target, retries, stopped } = state;
  const { db, clock, costly } = deps;
  const { account, run } = target;
  while (!stopped.signal.aborted) {
    // before the look-up: first attempts may set an earlier time in between
    state.next_retry_at = Number.POSITIVE_INFINITY;
    const next = await costly.run(account, () => findNextRetries(db, run, max_parallel_retries));
    const due = next.filter(({ next_at }) => next_at <= clock() / 1000);
    if (due.length > 0 && !(await refreshTarget(state))) return;
    // all end before the failure of one is reported, so that none is repeated while it runs
    for (const result of await Promise.allSettled(due.map((entry) => retry(state, entry))))
      if (result.status === 'rejected') throw result.reason;
    if (due.length > 0) continue;
    state.next_retry_at = Math.min(state.next_retry_at, next[0]?.next_at ?? Number.POSITIVE_INFINITY);
    await retries.wait();
  }
}

async function retry(state: WorkerState, { event: id, attempts, digest, addresses }: Retry): Promise<void> {
  const { db, metrics, slots } = state.deps;
  const { account, run } = state.target;
  const event = await findEvent(db, account, id);
  if (event !== undefined)
    return sendAttempt(state, { event, digest, addresses }, { number: attempts + 1, slots: slots.retry });
  // the log has forgotten it
  await removeRetry(db, run, id);
  metrics.attempted('dropped');
}
