import { AppError } from '../errors.js';
import { runUntilTimeLimit } from './time-limit.js';

/** Gives a slot back; further calls have no effect. */
export type Release = () => void;

/** A pool, as `createShares` divides it. Amounts are slots or bytes. */
export interface SharesOptions {
  capacity: number;
  /** Limit of one account; default: half of the capacity. */
  max_per_account?: number;
  /** Calls of one account that may wait; default: none does, and what does not fit is rejected. */
  max_waiting?: number;
}

/** A growing part of a pool that an account holds. */
export interface Reservation {
  /** @throws AppError overloaded (5033) if it does not fit */
  add(amount: number): void;
  /** Gives all of it back. */
  release(): void;
}

/** Caller that waits. */
export interface Caller {
  /** Number of lines in which it waits. */
  waiting: number;
  /** Total wait in lines that it has left. */
  waited_ms: number;
  /** Aborts when it does not want the result any more. */
  left?: AbortSignal;
}

interface AcquireOptions {
  /** Default: 1. */
  amount?: number;
  caller?: Caller | undefined;
  /** Leaves the line when it aborts. */
  signal?: AbortSignal | undefined;
}

interface RunOptions extends AcquireOptions {
  /** The slot is given back after this time even if the work has not ended: no slot depends on the other side. */
  limit_ms?: number;
}

/** A pool that accounts share (reference/limits.md#shares). */
export interface Shares {
  /** Takes at once. @throws AppError overloaded (5033) if it does not fit */
  take(account: string, amount?: number): Release;
  /** Takes at once. @returns undefined if it does not fit */
  tryTake(account: string, amount: number): Release | undefined;
  /** Begins to hold a growing amount, without waiting. */
  reserve(account: string): Reservation;
  /** Waits in the line of the account. @throws AppError overloaded (5033) if the line is full, or the reason of `signal` */
  acquire(account: string, options?: AcquireOptions): Promise<Release>;
  /**
   * Runs work with a slot, which is given back whatever happens to the work.
   * @throws what `acquire` and `work` throw, and TimeLimitError after `limit_ms`
   */
  run<Result>(
    account: string,
    work: (signal: AbortSignal | undefined) => Promise<Result>,
    options?: RunOptions,
  ): Promise<Result>;
  /** The sum over all accounts. */
  readonly held: number;
  /** Calls of all accounts that wait. */
  readonly waiting: number;
  heldBy(account: string): number;
}

interface Waiter {
  amount: number;
  grant(): void;
}

/** The part of one account and its line; kept while either is not empty. */
interface Share {
  held: number;
  /** First in, first out. */
  line: Set<Waiter>;
  /** Number of the last grant from the line; of accounts that hold the same, the one served longest ago is next. */
  last_grant: number;
}

/**
 * Creates a pool. Whatever becomes free goes to the waiting account that holds least, and of equal ones to the one served
 * longest ago, so that an account gets more than its equal part only while no other account asks.
 */
export function createShares({
  capacity,
  max_per_account = Math.ceil(capacity / 2),
  max_waiting = 0,
}: SharesOptions): Shares {
  const shares = new Map<string, Share>();
  let held = 0;
  let waiting = 0;
  let grants = 0;

  const fits = (share: Share, amount: number) => held + amount <= capacity && share.held + amount <= max_per_account;

  function shareOf(account: string): Share {
    const share = shares.get(account) ?? { held: 0, line: new Set(), last_grant: 0 };
    shares.set(account, share);
    return share;
  }

  function forgetIdle(account: string, share: Share): void {
    if (share.held === 0 && share.line.size === 0) shares.delete(account);
  }

  function hold(account: string, share: Share, amount: number): Release {
    held += amount;
    share.held += amount;
    let isReleased = false;
    return () => {
      if (isReleased) return;
      isReleased = true;
      held -= amount;
      share.held -= amount;
      grantWaiting();
      forgetIdle(account, share);
    };
  }

  const isBefore = (share: Share, other: Share) =>
    share.held < other.held || (share.held === other.held && share.last_grant < other.last_grant);

  /** Finds the share that is next: of those that may hold more, the one that holds least. */
  function findNext(): { share: Share; waiter: Waiter } | undefined {
    let next: { share: Share; waiter: Waiter } | undefined;
    if (waiting === 0) return undefined;
    for (const share of shares.values()) {
      const [waiter] = share.line;
      if (waiter === undefined || share.held + waiter.amount > max_per_account) continue;
      if (next === undefined || isBefore(share, next.share)) next = { share, waiter };
    }
    return next;
  }

  function grantWaiting(): void {
    for (let next = findNext(); next !== undefined && fits(next.share, next.waiter.amount); next = findNext()) {
      leaveLine(next.share, next.waiter);
      next.share.last_grant = ++grants;
      next.waiter.grant();
    }
  }

  function leaveLine(share: Share, waiter: Waiter): void {
    share.line.delete(waiter);
    waiting--;
  }

  function canTake(share: Share, amount: number): boolean {
    if (!fits(share, amount) || share.line.size > 0) return false;
    const next = findNext();
    // what is free is about to go to an account that holds less
    return next === undefined || share.held < next.share.held;
  }

  function tryTake(account: string, amount: number): Release | undefined {
    const share = shareOf(account);
    if (canTake(share, amount)) return hold(account, share, amount);
    forgetIdle(account, share);
    return undefined;
  }

  function take(account: string, amount = 1): Release {
    const release = tryTake(account, amount);
    if (release === undefined) throw new AppError('overloaded');
    return release;
  }

  async function acquire(account: string, options: AcquireOptions = {}): Promise<Release> {
    const { amount = 1, signal, caller = { waiting: 0, waited_ms: 0 } } = options;
    signal?.throwIfAborted();
    const release = tryTake(account, amount);
    if (release !== undefined) return release;
    const share = shareOf(account);
    if (share.line.size >= max_waiting || amount > Math.min(capacity, max_per_account)) {
      forgetIdle(account, share);
      throw new AppError('overloaded');
    }
    return new Promise((resolve, reject) => {
      const since_ms = performance.now();
      const stopWaiting = () => {
        caller.waiting--;
        caller.waited_ms += performance.now() - since_ms;
      };
      const leave = () => {
        stopWaiting();
        leaveLine(share, waiter);
        grantWaiting();
        forgetIdle(account, share);
        reject(signal?.reason);
      };
      const waiter: Waiter = {
        amount,
        grant() {
          signal?.removeEventListener('abort', leave);
          stopWaiting();
          resolve(hold(account, share, amount));
        },
      };
      share.line.add(waiter);
      waiting++;
      caller.waiting++;
      signal?.addEventListener('abort', leave, { once: true });
    });
  }

  return {
    take,
    tryTake,
    reserve(account) {
      const releases: Release[] = [];
      return {
        add: (amount) => void releases.push(take(account, amount)),
        release() {
          for (const release of releases.splice(0)) release();
        },
      };
    },
    acquire,
    async run(account, work, { limit_ms, ...options } = {}) {
      const { amount = 1, signal } = options;
      signal?.throwIfAborted();
      // no turn is spent on a slot that is free
      const release = tryTake(account, amount) ?? (await acquire(account, options));
      try {
        return limit_ms === undefined ? await work(signal) : await runUntilTimeLimit(limit_ms, signal, work);
      } finally {
        release();
      }
    },
    get held() {
      return held;
    },
    get waiting() {
      return waiting;
    },
    heldBy: (account) => shares.get(account)?.held ?? 0,
  };
}

/**
 * Iterates with a slot during each step, which is given back while the consumer is busy with what it got. No generator, as one
 * that has not begun does not close what it reads.
 */
export function readInSlots<T>(
  shares: Shares,
  account: string,
  values: AsyncIterable<T>,
  options?: Pick<AcquireOptions, 'caller' | 'signal'>,
): AsyncIterableIterator<T> {
  const iterator = values[Symbol.asyncIterator]();
  const close = async (): Promise<IteratorReturnResult<undefined>> => {
    await iterator.return?.();
    return { done: true, value: undefined };
  };
  return {
    [Symbol.asyncIterator]() {
      return this;
    },
    async next() {
      try {
        return await shares.run(account, () => iterator.next(), options);
      } catch (error) {
        await close();
        throw error;
      }
    },
    return: close,
  };
}
