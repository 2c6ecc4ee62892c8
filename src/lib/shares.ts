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
  /** Milliseconds of a clock; default: of the process. */
  clock?: () => number;
}

/** A growing part of a pool that an account holds. */
export interface Reservation {
  /** @throws AppError overloaded (5033) if it does not fit */
  add(amount: number): void;
  /** Gives all of it back. */
  release(): void;
}

/** The client of a caller, which can hold up the work that it has a slot for. */
export interface SlotClient {
  /** Bytes that it has sent and taken. */
  moved(): number;
  /** Time in which it has to move 4 KiB; infinite while the service does not wait for it. */
  limit_ms(): number;
  /** Ends its connection. */
  drop(): void;
}

/** Caller that waits. */
export interface Caller {
  /** The keys of an account take turns. */
  key?: string | undefined;
  /** Loses its slot when it holds up its work while others wait. */
  client?: SlotClient;
  /** Number of lines in which it waits. */
  waiting: number;
  /** Total wait in lines that it has left. */
  waited_ms: number;
  /** Aborts when it does not want the result any more. */
  left?: AbortSignal;
}

export interface AcquireOptions {
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
  take(account: string, amount?: number, caller?: Caller): Release;
  /** Takes at once. @returns undefined if it does not fit */
  tryTake(account: string, amount: number): Release | undefined;
  /** Begins to hold a growing amount, without waiting. */
  reserve(account: string, caller?: Caller): Reservation;
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
  refuse(): void;
}

/** A slot that a client can hold up. */
interface Hold {
  client: SlotClient;
  release: Release;
  /** Until then it had moved so much. */
  moved: number;
  since_ms: number;
}

const min_moved_bytes = 4096;
const look_period_ms = 1000;

/** The part of one account and its line; kept while either is not empty. */
interface Share {
  held: number;
  /** Lines of the keys, none of them empty; the first one is next. Each is first in, first out. */
  lines: Map<string, Set<Waiter>>;
  waiting: number;
  /** Number of the last grant from the line; of accounts that hold the same, the one served fullest ago is next. */
  last_grant: number;
}

/**
 * Creates a pool. Whatever becomes free goes to the waiting account that holds least, and of equal ones to the one served
 * fullest ago, so that an account gets more than its equal part only while no other account asks.
 */
export function createShares({
  capacity,
  max_per_account = Math.ceil(capacity / 2),
  max_waiting = 0,
  clock = () => performance.now(),
}: SharesOptions): Shares {
  const shares = new Map<string, Share>();
  let held = 0;
  let waiting = 0;
  let grants = 0;
  const holds = new Set<Hold>();
  let looking: NodeJS.Timeout | undefined;

  const fits = (share: Share, amount: number) => held + amount <= capacity && share.held + amount <= max_per_account;

  function shareOf(account: string): Share {
    const share = shares.get(account) ?? { held: 0, lines: new Map(), waiting: 0, last_grant: 0 };
    shares.set(account, share);
    return share;
  }

  function forgetIdle(account: string, share: Share): void {
    if (share.held === 0 && share.waiting === 0) shares.delete(account);
  }

  /** Follows a slot that a client can hold up, until it is given back. */
  function follow(release: Release, { client }: Caller): Release {
    if (client === undefined) return release;
    const hold: Hold = { client, release, moved: client.moved(), since_ms: clock() };
    holds.add(hold);
    looking ??= setInterval(() => dropStalled(waiting > 0), look_period_ms).unref();
    return () => {
      holds.delete(hold);
      if (holds.size === 0) {
        clearInterval(looking);
        looking = undefined;
      }
      release();
    };
  }

  /** Looks at what clients have moved. @param isWanted those that have moved too little lose their slots */
  function dropStalled(isWanted: boolean): void {
    const now = clock();
    for (const hold of holds) {
      const { client } = hold;
      const moved = client.moved();
      const limit_ms = client.limit_ms();
      if (moved - hold.moved >= min_moved_bytes || limit_ms === Number.POSITIVE_INFINITY)
        Object.assign(hold, { moved, since_ms: now });
      else if (isWanted && now - hold.since_ms >= limit_ms) {
        holds.delete(hold);
        client.drop();
        hold.release();
      }
    }
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
      const [line = []] = share.lines.values();
      const [waiter] = line;
      if (waiter === undefined || share.held + waiter.amount > max_per_account) continue;
      if (next === undefined || isBefore(share, next.share)) next = { share, waiter };
    }
    return next;
  }

  function grantWaiting(): void {
    for (let next = findNext(); next !== undefined && fits(next.share, next.waiter.amount); next = findNext()) {
      const [[key, line] = ['', new Set<Waiter>()]] = next.share.lines;
      leaveLine(next.share, key, next.waiter);
      // to the end: other keys are next
      if (line.size > 0) {
        next.share.lines.delete(key);
        next.share.lines.set(key, line);
      }
      next.share.last_grant = ++grants;
      next.waiter.grant();
    }
  }

  function enterLine(share: Share, key: string, waiter: Waiter): void {
    const line = share.lines.get(key) ?? new Set();
    share.lines.set(key, line);
    line.add(waiter);
    share.waiting++;
    waiting++;
  }

  function leaveLine(share: Share, key: string, waiter: Waiter): void {
    const line = share.lines.get(key);
    line?.delete(waiter);
    if (line?.size === 0) share.lines.delete(key);
    share.waiting--;
    waiting--;
  }

  /** Makes room in the lines of an account, at the end of the fullest one, for a key that has fewer. */
  function makeRoom(share: Share, key: string): boolean {
    if (share.waiting < max_waiting) return true;
    const lines = [...share.lines.values()];
    const fullest = lines.reduce((found, line) => (line.size > found.size ? line : found), new Set<Waiter>());
    if (fullest.size <= (share.lines.get(key)?.size ?? 0) + 1) return false;
    [...fullest].at(-1)?.refuse();
    return true;
  }

  function canTake(share: Share, amount: number): boolean {
    if (!fits(share, amount) || share.waiting > 0) return false;
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

  function take(account: string, amount = 1, caller?: Caller): Release {
    let release = tryTake(account, amount);
    if (release === undefined && holds.size > 0) {
      dropStalled(true);
      release = tryTake(account, amount);
    }
    if (release === undefined) throw new AppError('overloaded');
    return caller === undefined ? release : follow(release, caller);
  }

  async function acquire(account: string, options: AcquireOptions = {}): Promise<Release> {
    const { amount = 1, signal, caller = { waiting: 0, waited_ms: 0 } } = options;
    const { key = '' } = caller;
    signal?.throwIfAborted();
    const release = tryTake(account, amount);
    if (release !== undefined) return follow(release, caller);
    const share = shareOf(account);
    if (amount > Math.min(capacity, max_per_account) || !makeRoom(share, key)) {
      forgetIdle(account, share);
      throw new AppError('overloaded');
    }
    return new Promise((resolve, reject) => {
      const since_ms = performance.now();
      const stopWaiting = () => {
        caller.waiting--;
        caller.waited_ms += performance.now() - since_ms;
      };
      const leave = (reason: unknown) => {
        signal?.removeEventListener('abort', onAbort);
        stopWaiting();
        leaveLine(share, key, waiter);
        grantWaiting();
        forgetIdle(account, share);
        reject(reason);
      };
      const onAbort = () => leave(signal?.reason);
      const waiter: Waiter = {
        amount,
        grant() {
          signal?.removeEventListener('abort', onAbort);
          stopWaiting();
          resolve(follow(hold(account, share, amount), caller));
        },
        refuse: () => leave(new AppError('overloaded')),
      };
      enterLine(share, key, waiter);
      caller.waiting++;
      signal?.addEventListener('abort', onAbort, { once: true });
    });
  }

  return {
    take,
    tryTake,
    reserve(account, caller) {
      const releases: Release[] = [];
      return {
        add: (amount) => void releases.push(take(account, amount, releases.length === 0 ? caller : undefined)),
        release() {
          for (const release of releases.splice(0)) release();
        },
      };
    },
    acquire,
    async run(account, work, { limit_ms, ...options } = {}) {
      const { amount = 1, signal, caller } = options;
      signal?.throwIfAborted();
      // no turn is spent on a slot that is free
      const free = tryTake(account, amount);
      const release = free === undefined ? await acquire(account, options) : caller ? follow(free, caller) : free;
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
