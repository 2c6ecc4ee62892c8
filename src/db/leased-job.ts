import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { AppError } from '../errors.js';
import { awaitLater } from '../lib/promises.js';
import type { DatabaseAccess, Log } from './database.js';
import { releaseLease, takeLease } from './leases.js';

/** The turn of one instance at a job: it ends when the lease is lost or the job is stopped. */
export interface Turn {
  /** Tag of the lease, the same for all its holders. */
  readonly tag: string;
  /** Aborts at the end of the turn. */
  readonly signal: AbortSignal;
  /** Exact also where timers are late. */
  isLeaseHeld(): boolean;
  /** Waits, or returns at once if the turn is over. */
  pause(milliseconds: number): Promise<void>;
  /** Ends the pause, or the next one. */
  wake(): void;
}

/** A job that this instance competes for. */
export interface LeasedJob {
  /** Ends the turn, waits for `work`, and releases the lease. */
  stop(): Promise<void>;
}

interface Options {
  db: DatabaseAccess;
  log: Log;
  /** Name of the lease, and of the job in the log. */
  name: string;
  /** Duration of the lease, renewed after a fifth of it; a turn ends a fifth before it expires. */
  lease_ms?: number;
  /** Tag of the lease if it has none yet. */
  tag?: string;
  /** While it returns false, the job is left to other instances. */
  mayRun?(): boolean;
  /** Called when a turn ends, and whenever another instance is found to have the lease. */
  onElsewhere?(): void;
  /** Works until its turn is over. If it fails it is called again. */
  work(turn: Turn): Promise<void>;
}

const max_retry_ms = 1000;

/** Time until a multiple of a period, half of it to one and a half: jobs look, and renew leases, at the same time. */
export function alignPause(period_ms: number): number {
  const rest_ms = period_ms - (performance.now() % period_ms);
  return rest_ms < period_ms / 2 ? rest_ms + period_ms : rest_ms;
}

const pauseUntil = (signal: AbortSignal, milliseconds: number) =>
  sleep(milliseconds, undefined, { signal }).catch(() => undefined);

/**
 * Runs a job on one instance at a time. A stalled instance may still finish a step when another has taken over, so steps
 * must be safe to repeat.
 */
export function startLeasedJob(options: Options): LeasedJob {
  const { db, log, name, lease_ms = 5000, tag = '', mayRun = () => true, work } = options;
  const { takeLease: take = (request) => takeLease(db, request) } = db;
  const holder = randomUUID();
  const period_ms = lease_ms / 5;
  const stopped = new AbortController();
  let held_until = 0;
  let expiry: NodeJS.Timeout | undefined;
  let endTurn: () => void = () => undefined;
  let hasWarned = false;

  /** Errors of the connection are logged elsewhere. */
  function warn(error: unknown): void {
    if (hasWarned || stopped.signal.aborted || error instanceof AppError) return;
    log.warn({ err: error }, `${name} stalled; retrying`);
    hasWarned = true;
  }

  /** @param heldTag tag of the lease if it is renewed */
  async function renew(heldTag?: string): Promise<string | undefined> {
    const requested_at = performance.now();
    const request = { name, holder, lasts_ms: lease_ms, tag: heldTag ?? tag, isRenewal: heldTag !== undefined };
    const taken = mayRun() ? await take(request) : undefined;
    clearTimeout(expiry);
    if (taken === undefined) endTurn();
    else {
      held_until = requested_at + lease_ms - period_ms;
      expiry = setTimeout(() => endTurn(), held_until - performance.now());
    }
    return taken;
  }

  async function renewUntil(finished: AbortSignal, leaseTag: string): Promise<void> {
    for (let pause_ms = alignPause(period_ms); ; ) {
      await pauseUntil(finished, pause_ms);
      if (finished.aborted) return;
      pause_ms = await renew(leaseTag).then(
        () => alignPause(period_ms),
        (error: unknown) => {
          warn(error);
          return Math.min(period_ms, max_retry_ms);
        },
      );
    }
  }

  async function runTurn(leaseTag: string): Promise<void> {
    const [turn, finished] = [new AbortController(), new AbortController()];
    let pause = new AbortController();
    endTurn = () => {
      turn.abort();
      pause.abort();
    };
    if (stopped.signal.aborted) endTurn();
    const renewing = awaitLater(renewUntil(finished.signal, leaseTag));
    try {
      await work({
        tag: leaseTag,
        signal: turn.signal,
        isLeaseHeld: () => !turn.signal.aborted && performance.now() < held_until,
        async pause(milliseconds) {
          await pauseUntil(pause.signal, milliseconds);
          if (!turn.signal.aborted) pause = new AbortController();
        },
        wake: () => pause.abort(),
      });
    } finally {
      turn.abort();
      options.onElsewhere?.();
      finished.abort();
      await renewing;
      clearTimeout(expiry);
    }
  }

  async function run(): Promise<void> {
    while (!stopped.signal.aborted) {
      let pause_ms = alignPause(period_ms);
      try {
        const leaseTag = await renew();
        if (leaseTag === undefined) options.onElsewhere?.();
        else await runTurn(leaseTag);
        hasWarned = false;
      } catch (error) {
        warn(error);
        pause_ms = Math.min(period_ms, max_retry_ms);
      }
      await pauseUntil(stopped.signal, pause_ms);
    }
    clearTimeout(expiry);
    await releaseLease(db, name, holder).catch(() => undefined);
  }

  const running = awaitLater(run());
  return {
    async stop() {
      stopped.abort();
      endTurn();
      await running;
    },
  };
}

interface PeriodicOptions extends Omit<Options, 'work'> {
  /** Time between two calls, about; `db.wakeUps` ends it with the name of the job. */
  period_ms: number;
  /** @returns true if there may be more to do, which does not wait for the next period */
  work(turn: Turn): Promise<unknown>;
}

/** Runs a job again and again, on one instance at a time. */
export function startPeriodicJob({ period_ms, work, ...options }: PeriodicOptions): LeasedJob {
  return startLeasedJob({
    ...options,
    async work(turn) {
      const { wakeUps } = options.db;
      wakeUps?.on(options.name, turn.wake);
      try {
        while (turn.isLeaseHeld()) if ((await work(turn)) !== true) await turn.pause(alignPause(period_ms));
      } finally {
        wakeUps?.off(options.name, turn.wake);
      }
    },
  });
}
