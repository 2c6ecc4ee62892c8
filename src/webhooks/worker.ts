import { setTimeout as sleep } from 'node:timers/promises';
import type { Database, Log } from '../db/database.js';
import { AppError } from '../errors.js';
import { findEvent } from '../events/store.js';
import { awaitLater } from '../lib/promises.js';
import type { LogLine } from '../lib/rate-limited-log.js';
import type { Shares } from '../lib/shares.js';
import { isEventSelected } from '../resources/webhook.js';
import { type SenderDeps, sendEvent } from './attempt.js';

import {
  type Attempt,
  findDueRetries,
  findNextRetryTime,
  type OutgoingEvent,
  openRun,
  type Retry,
  readEventsAfter,
  recordAttempt,
  removeRetry,
  saveCursor,
  scheduleRetry,
  toOutgoingEvent,
} from './deliveries.js';
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
  let next_retry_at = Number.POSITIVE_INFINITY;

  /** @param cursor the event itself, for a first attempt */
  async function attempt(event: OutgoingEvent, number: number, slots: Shares, cursor?: string): Promise<void> {
    const send = async (signal: AbortSignal = aborted.signal) => {
      stopped.signal.throwIfAborted();
      return sendEvent(deps, target, event, { attempt: number, timeout_ms: attempt_timeout_ms, signal });
    };
    const sent = await slots.run(account, send, { limit_ms: slot_limit_ms, signal: aborted.signal });
    await costly.run(account, () => record(event, number, sent, cursor));
  }

  async function record(event: OutgoingEvent, number: number, sent: Attempt, cursor?: string): Promise<void> {
    const now = clock() / 1000;
    const isFinal = sent.error === undefined || sent.status === gone;
    const next_at = isFinal ? undefined : scheduleAfter(number, now, Math.random());
    const result = { ...sent, ...(next_at !== undefined && { next_at }) };
    if (next_at !== undefined) {
      await scheduleRetry(db, target, { ...result, next_at });
      next_retry_at = Math.min(next_retry_at, next_at);
    } else if (number > 1) await removeRetry(db, run, event.stored._id);
    const failing_since = await recordAttempt(db, target, result, { run, ...(cursor !== undefined && { cursor }) });
    reportHealth(sent, failing_since);
    if (sent.error === undefined) metrics.attempted('delivered');
    else if (sent.status === gone) metrics.attempted('gone');
    else metrics.attempted(next_at === undefined ? 'dropped' : 'failed');
    if (sent.status === gone || (failing_since !== undefined && failing_since <= now - disabled_after_s))
      await disable(Math.floor(now));
  }

  const nameWebhook = () => ({ account, webhook: target.id_developer, receiver: new URL(target.url).host });

  /** Logs when the webhook begins and ends to fail; `failing_since` is stored, so that a restart does not repeat it. */
  function reportHealth({ error, event, attempt }: Attempt, failing_since: number | undefined): void {
    if (error === undefined && isFailing) log.info(nameWebhook(), 'webhook succeeds again');
    else if (failing_since !== undefined && !isFailing)
      log.warn({ ...nameWebhook(), error, event, attempt }, 'webhook fails; its events are sent again');
    isFailing = error !== undefined && (isFailing || failing_since !== undefined);
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

  async function sendNewEvents(): Promise<void> {
    let isRunning = true;
    let { cursor, failing_since } = await openRun(db, target);
    isFailing ||= failing_since !== undefined;
    while (!stopped.signal.aborted) {
      const events = await costly.run(account, async () => {
        const unread = await readEventsAfter(db, account, cursor, batch_size);
        // after the events: none of those that follow a change of the settings is sent by the former ones
        if (unread.length > 0) isRunning = await refresh();
        return unread;
      });
      if (!isRunning) return;
      const selected = await selectEvents(events);
      for (const event of selected) {
        pending = event.stored._id;
        await attempt(event, 1, deps.slots.first, pending);
        if (stopped.signal.aborted) return;
      }
      pending = undefined;
      const last = events.at(-1);
      if (last !== undefined && last !== selected.at(-1)) await saveCursor(db, target, last.stored._id);
      cursor = last?.stored._id ?? cursor;
      if (events.length < batch_size) await news.wait();
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

  async function retry({ event: id, attempts }: Retry): Promise<void> {
    const stored = await findEvent(db, account, id);
    if (stored !== undefined) return attempt(toOutgoingEvent(stored), attempts + 1, deps.slots.retry);
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
