import type { Database, Log } from '../db/database.js';
import { AppError } from '../errors.js';
import type { LogLine } from '../lib/rate-limited-log.js';
import type { Shares } from '../lib/shares.js';
import { createWakeUp, type WakeUp } from '../lib/wake-up.js';
import type { SenderDeps } from './attempt.js';
import { findRunningWebhook, type StoredWebhook } from './store.js';

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

/** State that the two loops of a worker share: first attempts, and retries. */
export interface WorkerState {
  readonly deps: WorkerDeps;
  /** The present settings. */
  target: StoredWebhook;
  /** Ends both loops; attempts in progress go on. */
  readonly stopped: AbortController;
  /** Ends attempts in progress. */
  readonly aborted: AbortController;
  readonly news: WakeUp;
  readonly retries: WakeUp;
  /** The event that is being sent for the first time. */
  pending: string | undefined;
  /** Its last attempt has failed. */
  isFailing: boolean;
  /** Epoch seconds of the last message. */
  told_at: number | undefined;
  /** New events are joined into one message. */
  isCollecting: boolean;
  /** Epoch seconds. */
  next_retry_at: number;
}

/** Creates the state of a webhook whose log has not been opened yet. */
export function createWorkerState(deps: WorkerDeps, target: StoredWebhook): WorkerState {
  const stopped = new AbortController();
  return {
    deps,
    target,
    stopped,
    aborted: new AbortController(),
    news: createWakeUp(stopped.signal),
    retries: createWakeUp(stopped.signal),
    pending: undefined,
    isFailing: false,
    told_at: undefined,
    isCollecting: false,
    next_retry_at: Number.POSITIVE_INFINITY,
  };
}

/** @returns what every line of the log says of a webhook: the path of its address may hold a secret */
export function getWebhookNames({ target: { account, id_developer, url } }: WorkerState) {
  return { account, webhook: id_developer, receiver: new URL(url).host || 'mail' };
}

/** Logs that work was interrupted, and is done again; a failure of the database once for all webhooks. */
export function reportInterruption(state: WorkerState, error: unknown): void {
  const { logInterruption } = state.deps;
  const name = error instanceof AppError && error.failure === 'exception' ? state.target.run : '';
  logInterruption('delivery to a webhook interrupted', { err: error, ...getWebhookNames(state) }, name);
}

/** Reads the present settings. @returns false, with the loops ended, if the webhook was disabled or deleted */
export async function refreshTarget(state: WorkerState): Promise<boolean> {
  const current = await findRunningWebhook(state.deps.db, state.target);
  if (current === undefined) state.stopped.abort();
  else state.target = current;
  return current !== undefined;
}
