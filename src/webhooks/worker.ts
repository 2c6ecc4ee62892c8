import { setTimeout as sleep } from 'node:timers/promises';
import type { Database, Log } from '../db/database.js';
import { AppError } from '../errors.js';
import { findEvent } from '../events/store.js';
import { awaitLater } from '../lib/promises.js';
import type { LogLine } from '../lib/rate-limited-log.js';
import type { Shares } from '../lib/shares.js';
import { isEventSelected } from '../resources/webhook.js';
import { type SenderDeps, sendParcel } from './attempt.js';

import {
  type Attempt,
  findDueRetries,
  findNextRetryTime,
  type LogStep,
  type OutgoingEvent,
  openRun,
  type Parcel,
  type Retry,
  readEventsAfter,
  recordAttempt,
  removeRetry,
  type SentParcel,
  saveCursor,
  scheduleRetry,
  toOutgoingEvent,
} from './deliveries.js';
import { createDigest } from './digest.js';
import { scheduleAfter } from './schedule.js';
import { disableWebhook, findRunningWebhook, type StoredWebhook } from './store.js';
import { createWakeUp } from './wake-up.js';

/** The end of an attempt; `dropped`: no further one follows; `gone`: the receiver answered 410. */
export type Outcome = 'delivered' | 'failed' | 'dropped' | 'gone';

export interface WebhookMetrics {
  attempted(outcome: Outcome): void;
  /** Age of the oldest event that a webhook waits for. */
  oldest(seconds: number): void;
  /** Number of webhooks that fail, by account. */
  failing(counts: ReadonlyMap<string, number>): void;
}

export interface WorkerDeps extends SenderDeps {
  db: Database;
  log: Log;
  /** Reports failures of the database, which interrupt all webhooks at once. */
  logInterruption: LogLine;
  metrics: WebhookMetrics;
  /** Shares of the database: an account may have a hundred webhooks. */
  costly: Shares;
  /** Bounds on the attempts of all webhooks: a retry never takes the place of a first attempt. */
  slots: { first: Shares; retry: Shares };
}

/** A webhook in the log. The path of its address may hold a secret. */
interface WebhookNames {
  account: string;
  webhook: string;
  receiver: string;
}

/** The delivery to one webhook, from one enabling to the next. */
export interface WebhookWorker {
  /** Takes changed settings. */
  update(changed: StoredWebhook): void;
  /** Looks for new events of the account. */
  wake(): void;
  /** Begins the retries that are due. */
  tick(): void;
  /** The event that is being sent for the first time. */
  pendingEvent(): string | undefined;
  /** The names of the webhook if its last attempt has failed. */
  failing(): WebhookNames | undefined;
  /** Begins no further attempt; those in progress have `grace_ms` to end. */
  stop(grace_ms: number): Promise<void>;
}

const batch_size = 100;
const max_parallel_retries = 4;
const attempt_timeout_ms = 10_000;
/** No attempt keeps its slot longer, should its own time-out not end it. */
const slot_limit_ms = attempt_timeout_ms + 2000;
const disabled_after_s = 3 * 86_400;
/** Events of one digest; later ones are in the next. */
const max_digest_events = 100_000;
const pause_after_error_ms = 5000;
const gone = 410;

/**
 * Starts to send events: first attempts one after the other in the order of the log, retries beside them
 * (reference/webhooks.md#order).
 */
export function startWorker(deps: WorkerDeps, webhook: StoredWebhook): WebhookWorker {
  const { db, clock, log, logInterruption, metrics, costly } = deps;
  const { run, account } = webhook;
  const stopped = new AbortController();
  const aborted = new AbortController();
  const [news, retries] = [createWakeUp(stopped.signal), createWakeUp(stopped.signal)];
  let target = webhook;
  let pending: string | undefined;
  let isFailing = false;
  /** Time of the last message. */
  let told_at: number | undefined;
  /** New events are joined into one message. */
  let isCollecting = false;
  let next_retry_at = Number.POSITIVE_INFINITY;

  /** @param cursor the last event that a first attempt is about */
  async function attempt(parcel: Parcel, number: number, slots: Shares, cursor?: string): Promise<void> {
    const send = async (signal: AbortSignal = aborted.signal) => {
      stopped.signal.throwIfAborted();
      return sendParcel(deps, target, parcel, { attempt: number, timeout_ms: attempt_timeout_ms, signal });
    };
    const sent = await slots.run(account, send, { limit_ms: slot_limit_ms, signal: aborted.signal });
    const step = cursor === undefined ? undefined : { cursor, told_at: clock() / 1000 };
    await costly.run(account, () => record(parcel, number, sent, step));
  }

  async function record(parcel: Parcel, number: number, sent: SentParcel, step?: LogStep): Promise<void> {
    const now = clock() / 1000;
    const { status, error, event } = sent.attempt;
    const { addresses, isDelivered = error === undefined } = sent;
    const isFinal = error === undefined || status === gone || addresses?.length === 0;
    const next_at = isFinal ? undefined : scheduleAfter(number, now, Math.random());
    const result = { ...sent.attempt, ...(next_at !== undefined && { next_at }) };
    if (next_at !== undefined) {
      await scheduleRetry(db, target, { ...result, next_at }, { ...parcel, addresses });
      next_retry_at = Math.min(next_retry_at, next_at);
    } else if (number > 1) await removeRetry(db, run, event);
    const failing_since = await recordAttempt(db, target, { ...sent, attempt: result }, parcel, { run, step });
    reportHealth(sent.attempt, isDelivered, failing_since);
    if (isDelivered) metrics.attempted('delivered');
    else if (status === gone) metrics.attempted('gone');
    else metrics.attempted(next_at === undefined ? 'dropped' : 'failed');
    if (status === gone || (failing_since !== undefined && failing_since <= now - disabled_after_s))
      await disable(Math.floor(now));
  }

  const nameWebhook = () => ({ account, webhook: target.id_developer, receiver: new URL(target.url).host || 'mail' });

  /** Logs when the webhook begins and ends to fail; `failing_since` is stored, so that a restart does not repeat it. */
  function reportHealth(sent: Attempt, isDelivered: boolean, failing_since: number | undefined): void {
    const { error, event, attempt } = sent;
    if (isDelivered && isFailing) log.info(nameWebhook(), 'webhook succeeds again');
    else if (failing_since !== undefined && !isFailing)
      log.warn({ ...nameWebhook(), error, event, attempt }, 'webhook fails; its events are sent again');
    isFailing = !isDelivered && (isFailing || failing_since !== undefined);
  }

  async function disable(now: number): Promise<void> {
    const isChanged = await disableWebhook(db, target, now);
    // not before: a worker that has stopped would not repeat a failed write
    stopped.abort();
    if (isChanged) log.warn(nameWebhook(), 'webhook disabled: its receiver takes no events any more');
  }

  /** Reads the present settings. @returns false if the webhook was disabled or deleted */
  async function refresh(): Promise<boolean> {
    const current = await findRunningWebhook(db, target);
    if (current === undefined) stopped.abort();
    else target = current;
    return current !== undefined;
  }

  async function selectEvents(events: readonly OutgoingEvent[]): Promise<readonly OutgoingEvent[]> {
    const selected = events.filter(({ stored }) => isEventSelected(target, stored));
    const { filter } = target;
    if (filter === undefined) return selected;
    const matching: OutgoingEvent[] = [];
    for (const event of selected) {
      const isMatching = await costly.run(account, () => deps.isSelectedByFilter(filter, event.stored));
      if (isMatching) matching.push(event);
      if (stopped.signal.aborted) break;
    }
    return matching;
  }

  const isPaused = () => told_at !== undefined && told_at + target.digest_s > clock() / 1000;

  /** Reads the next events in the log. @returns undefined if the webhook was disabled or deleted */
  async function readNext(after: string) {
    let isRunning = true;
    const events = await costly.run(account, async () => {
      const unread = await readEventsAfter(db, account, after, batch_size);
      // after the events: none of those that follow a change of the settings is sent by the former ones
      if (unread.length > 0) isRunning = await refresh();
      return unread;
    });
    return isRunning ? { events, selected: await selectEvents(events) } : undefined;
  }

  async function sendFirst(parcel: Parcel, cursor: string): Promise<void> {
    pending = parcel.event.stored._id;
    await attempt(parcel, 1, deps.slots.first, cursor);
    pending = undefined;
    told_at = clock() / 1000;
    isCollecting = true;
  }

  async function sendNewEvents(): Promise<void> {
    let digest = createDigest(deps, account);
    const state = await openRun(db, target);
    let { cursor } = state;
    ({ told_at } = state);
    isCollecting = told_at !== undefined;
    isFailing ||= state.failing_since !== undefined;
    while (!stopped.signal.aborted) {
      if (isPaused()) {
        await news.wait();
        continue;
      }
      const isJoined = digest.count > 0 || (isCollecting && target.digest_s > 0);
      const next = await readNext(cursor);
      if (next === undefined) return;
      const { events, selected } = next;
      const isEnd = events.length < batch_size;
      for (const event of selected) {
        if (isJoined) await digest.add(event);
        else await sendFirst({ event }, event.stored._id);
        if (stopped.signal.aborted) return;
        cursor = event.stored._id;
        if (isPaused()) break;
      }
      if (isPaused()) continue;
      const last = events.at(-1)?.stored._id ?? cursor;
      if (isJoined && digest.count > 0 && (isEnd || digest.count >= max_digest_events)) {
        await sendFirst(digest.take(), last);
        digest = createDigest(deps, account);
      } else if (digest.count === 0 && last !== cursor) await saveCursor(db, target, last);
      cursor = last;
      if (isEnd && digest.count === 0 && !isPaused()) {
        isCollecting = false;
        await news.wait();
      }
    }
  }

  async function sendRetries(): Promise<void> {
    while (!stopped.signal.aborted) {
      // before the look-up: first attempts may set an earlier time in between
      next_retry_at = Number.POSITIVE_INFINITY;
      const due = await costly.run(account, () => findDueRetries(db, run, clock() / 1000, max_parallel_retries));
      if (due.length > 0 && !(await refresh())) return;
      // all end before the failure of one is reported, so that none is repeated while it runs
      for (const result of await Promise.allSettled(due.map(retry)))
        if (result.status === 'rejected') throw result.reason;
      if (due.length > 0) continue;
      next_retry_at = Math.min(next_retry_at, (await findNextRetryTime(db, run)) ?? Number.POSITIVE_INFINITY);
      await retries.wait();
    }
  }

  async function retry({ event: id, attempts, digest, addresses }: Retry): Promise<void> {
    const stored = await findEvent(db, account, id);
    if (stored !== undefined)
      return attempt({ event: toOutgoingEvent(stored), digest, addresses }, attempts + 1, deps.slots.retry);
    // the log has forgotten it
    await removeRetry(db, run, id);
    metrics.attempted('dropped');
  }

  /** Repeats work that failed, from what is stored. */
  async function persist(work: () => Promise<void>): Promise<void> {
    while (!stopped.signal.aborted) {
      try {
        await work();
      } catch (error) {
        if (stopped.signal.aborted) return;
        // what is wrong with the database is wrong for all
        const name = error instanceof AppError && error.failure === 'exception' ? run : '';
        logInterruption('delivery to a webhook interrupted', { err: error, ...nameWebhook() }, name);
        await sleep(pause_after_error_ms, undefined, { signal: stopped.signal }).catch(() => undefined);
      }
    }
  }

  const ended = awaitLater(Promise.all([persist(sendNewEvents), persist(sendRetries)]));
  return {
    update(changed) {
      if (changed.version >= target.version) target = changed;
    },
    wake: news.wake,
    tick() {
      if (isCollecting && !isPaused()) news.wake();
      if (next_retry_at <= clock() / 1000) retries.wake();
    },
    pendingEvent: () => pending,
    failing: () => (isFailing ? nameWebhook() : undefined),
    async stop(grace_ms) {
      stopped.abort();
      const timer = setTimeout(() => aborted.abort(), grace_ms);
      await ended;
      clearTimeout(timer);
    },
  };
}
