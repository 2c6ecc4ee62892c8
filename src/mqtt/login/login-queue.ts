import ipaddr from 'ipaddr.js';
import { AppError } from '../../errors.js';
import { createShares, type Release } from '../../lib/shares.js';
import { runWithTimeLimit, TimeLimitError } from '../../lib/time-limit.js';

interface Limits {
  max_running: number;
  /** Queued logins of one address; the connections limit those of all. */
  max_queued: number;
  /** Queued logins of one username, whatever addresses they come from. */
  max_queued_per_user: number;
  max_wait_ms: number;
}

/** The origin of a login. */
export interface LoginOrigin {
  address: string;
  username: string;
  /** Aborts when the client is gone. */
  signal: AbortSignal;
}

/** Too many logins wait, or one has waited too long. */
export class QueueFullError extends Error {
  override name = 'QueueFullError';
}

const defaultLimits: Limits = { max_running: 32, max_queued: 10_000, max_queued_per_user: 100, max_wait_ms: 20_000 };

/** Limits concurrent logins, with fair shares of addresses and usernames. */
export type LoginQueue = ReturnType<typeof createLoginQueue>;

/**
 * Creates a fair queue: addresses take turns, and within an address usernames do. If the line of an address is full, the
 * username with the most queued logins loses one. A login whose client is gone leaves the queue at once.
 */
export function createLoginQueue(limits: Partial<Limits> = {}) {
  const { max_running, max_queued, max_queued_per_user, max_wait_ms } = { ...defaultLimits, ...limits };
  const slots = createShares({ capacity: max_running, max_per_account: max_running, max_waiting: max_queued });
  /** Queued logins by username; none is 0. */
  const queued = new Map<string, number>();

  function count(username: string, change: 1 | -1): void {
    const logins = (queued.get(username) ?? 0) + change;
    if (logins > 0) queued.set(username, logins);
    else queued.delete(username);
  }

  async function waitForTurn({ username, signal }: LoginOrigin, share: string): Promise<Release> {
    if ((queued.get(username) ?? 0) >= max_queued_per_user) throw new QueueFullError('too many logins of a username');
    const caller = { key: username, waiting: 0, waited_ms: 0 };
    count(username, 1);
    try {
      return await runWithTimeLimit(max_wait_ms, signal, (ended) => slots.acquire(share, { caller, signal: ended }));
    } catch (error) {
      if (error instanceof TimeLimitError) throw new QueueFullError('login waited too long');
      throw error instanceof AppError ? new QueueFullError('login queue is full') : error;
    } finally {
      count(username, -1);
    }
  }

  return {
    /** Runs a login in its turn. @throws QueueFullError if there is no room, the signal's reason if it aborts first */
    async run<Result>(origin: LoginOrigin, login: () => Promise<Result>): Promise<Result> {
      origin.signal.throwIfAborted();
      const share = shareOf(origin.address);
      const release = slots.tryTake(share, 1) ?? (await waitForTurn(origin, share));
      try {
        origin.signal.throwIfAborted();
        return await login();
      } finally {
        release();
      }
    },
  };
}

/** Maps an address to its share: IPv4 addresses one by one, IPv6 by network, as a client has 2^64 of those addresses. */
function shareOf(address: string): string {
  if (!ipaddr.isValid(address)) return address;
  const parsed = ipaddr.process(address);
  return parsed instanceof ipaddr.IPv6 ? parsed.parts.slice(0, 4).join(':') : parsed.toString();
}
