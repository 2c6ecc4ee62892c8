import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Caller, createShares } from '../lib/shares.js';

/**
 * Waits for the turn of the event loop in which the caller may do its next piece of work.
 * @throws the reason of the signal if the caller has left
 */
export type YieldTurn = (yielding: { account: string; caller?: Caller | undefined }) => Promise<void>;

/**
 * Creates a queue that runs one waiting piece of work per turn of the event loop, so that others run in between. Accounts
 * take turns: large answers of one do not delay those of others.
 */
export function createYieldQueue(): YieldTurn {
  const turns = createShares({ capacity: 1, max_waiting: Number.POSITIVE_INFINITY });
  return async ({ account, caller }) => {
    const free = turns.tryTake(account, 1);
    const release = free ?? (await turns.acquire(account, { caller, signal: caller?.left }));
    // what is given back was kept for a turn; what was free belongs to the one in progress
    if (free !== undefined) await nextTurn();
    setImmediate(release);
  };
}
