import type { Shares } from '../lib/shares.js';
import { sendParcel } from './attempt.js';
import {
  type Attempt,
  type LogStep,
  type Parcel,
  recordAttempt,
  removeRetry,
  type SentParcel,
  scheduleRetry,
} from './deliveries.js';
import { disableWebhook } from './store.js';
import { getWebhookNames, type WorkerState } from './worker-state.js';

const attempt_timeout_ms = 10_000;
/** No attempt keeps its slot longer, should its own time-out not end it. */
const slot_limit_ms = attempt_timeout_ms + 2000;
const disabled_after_s = 3 * 86_400;
const gone = 410;
/** Pauses before the second and every later attempt, in seconds (reference/webhooks.md#retries). */
const pauses_s = [5, 30, 5 * 60, 30 * 60, 2 * 3600, 8 * 3600, 24 * 3600];
/** Share by which a pause is longer or shorter, so that retries of many events spread. */
const spread = 0.1;

interface AttemptOptions {
  /** 1 is the first. */
  number: number;
  slots: Shares;
  /** The last event that a first attempt is about. */
  cursor?: string;
}

/** Sends a parcel, stores what came of it, and schedules the next attempt (reference/webhooks.md#retries). */
export async function sendAttempt(state: WorkerState, parcel: Parcel, options: AttemptOptions): Promise<void> {
  const { deps, target, stopped, aborted } = state;
  const { number, slots, cursor } = options;
  const send = async (signal: AbortSignal = aborted.signal) => {
    stopped.signal.throwIfAborted();
    return sendParcel(deps, state.target, parcel, { attempt: number, timeout_ms: attempt_timeout_ms, signal });
  };
  const sent = await slots.run(target.account, send, { limit_ms: slot_limit_ms, signal: aborted.signal });
  const step = cursor === undefined ? undefined : { cursor, told_at: deps.clock() / 1000 };
  await deps.costly.run(target.account, () => record(state, parcel, sent, step));
}

async function record(state: WorkerState, parcel: Parcel, sent: SentParcel, step: LogStep | undefined): Promise<void> {
  const { target, deps } = state;
  const { db, clock, metrics } = deps;
  const now = clock() / 1000;
  const { status, error, event, attempt: number } = sent.attempt;
  const { addresses, isDelivered = error === undefined } = sent;
  const isFinal = error === undefined || status === gone || addresses?.length === 0;
  const next_at = isFinal ? undefined : scheduleAfter(number, now, Math.random());
  const result = { ...sent.attempt, ...(next_at !== undefined && { next_at }) };
  if (next_at !== undefined) {
    await scheduleRetry(db, target, { ...result, next_at }, { ...parcel, addresses });
    state.next_retry_at = Math.min(state.next_retry_at, next_at);
  } else if (number > 1) await removeRetry(db, target.run, event);
  const failing_since = await recordAttempt(db, target, { ...sent, attempt: result }, parcel, {
    run: target.run,
    step,
  });
  reportHealth(state, sent.attempt, isDelivered, failing_since);
  if (isDelivered) metrics.attempted('delivered');
  else if (status === gone) metrics.attempted('gone');
  else metrics.attempted(next_at === undefined ? 'dropped' : 'failed');
  if (status === gone || (failing_since !== undefined && failing_since <= now - disabled_after_s))
    await disable(state, Math.floor(now));
}

/** Logs when the webhook begins and ends to fail; `failing_since` is stored, so that a restart does not repeat it. */
function reportHealth(state: WorkerState, sent: Attempt, isDelivered: boolean, failing_since?: number): void {
  const { log } = state.deps;
  const { error, event, attempt } = sent;
  if (isDelivered && state.isFailing) log.info(getWebhookNames(state), 'webhook succeeds again');
  else if (failing_since !== undefined && !state.isFailing)
    log.warn({ ...getWebhookNames(state), error, event, attempt }, 'webhook fails; its events are sent again');
  state.isFailing = !isDelivered && (state.isFailing || failing_since !== undefined);
}

async function disable(state: WorkerState, now: number): Promise<void> {
  const { db, log } = state.deps;
  const isChanged = await disableWebhook(db, state.target, now);
  // not before: a worker that has stopped would not repeat a failed write
  state.stopped.abort();
  if (isChanged) log.warn(getWebhookNames(state), 'webhook disabled: its receiver takes no events any more');
}

/**
 * Finds when an event is sent again after its attempt number `attempt` has failed at `now` (epoch seconds).
 * @param random from 0 to 1 @returns undefined after the last attempt
 */
function scheduleAfter(attempt: number, now: number, random: number): number | undefined {
  const pause_s = pauses_s[attempt - 1];
  if (pause_s === undefined) return undefined;
  const factor = 1 - spread + 2 * spread * random;
  return Math.round((now + pause_s * factor) * 1000) / 1000;
}
