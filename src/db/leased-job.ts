import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database, Log } from './database.js';
import { releaseLease, takeLease } from './leases.js';

/** The turn of one instance at a job. */
export interface Turn {
  /** Renews the lease when it is time. @returns false once the turn is over: the job has stopped or the lease is lost */
  goesOn(): Promise<boolean>;
  /** Waits, or returns at once if the job is stopped. */
  pause(milliseconds: number): Promise<void>;
}

interface Options {
  db: Database;
  log: Log;
  /** Name of the lease, and of the job in the log. */
  name: string;
  /** Works until its turn is over. If it fails it is called again. */
  work(turn: Turn): Promise<void>;
}

const lease_ms = 5000;
const renewal_ms = 1000;

/**
 * Runs a job on one instance at a time. A stalled instance may still finish a step when another has taken over, so steps
 * must be safe to repeat.
 */
export function startLeasedJob({ db, log, name, work }: Options): { stop(): Promise<void> } {
  const stopped = new AbortController();
  const holder = randomUUID();
  const acquire = async () => (await takeLease(db, name, holder, lease_ms, '')) !== undefined;
  const pause = async (milliseconds: number) => {
    await sleep(milliseconds, undefined, { signal: stopped.signal }).catch(() => undefined);
  };

  function beginTurn(): Turn {
    let renewed_at = performance.now();
    return {
      pause,
      async goesOn() {
        if (stopped.signal.aborted) return false;
        if (performance.now() - renewed_at < renewal_ms) return true;
        renewed_at = performance.now();
        return acquire();
      },
    };
  }

  async function run(): Promise<void> {
    let hasWarned = false;
    while (!stopped.signal.aborted) {
      try {
        if (await acquire()) await work(beginTurn());
        hasWarned = false;
      } catch (error) {
        if (!hasWarned && !stopped.signal.aborted) log.warn({ err: error }, `${name} stalled; retrying`);
        hasWarned = true;
      }
      await pause(renewal_ms);
    }
    await releaseLease(db, name, holder).catch(() => undefined);
  }

  const running = run();
  return {
    async stop() {
      stopped.abort();
      await running;
    },
  };
}
