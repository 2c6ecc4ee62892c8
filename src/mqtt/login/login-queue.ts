import ipaddr from 'ipaddr.js';
import { groupBy } from '../../lib/group-by.js';
import { createShares, type Release } from '../../lib/shares.js';

interface Limits {
  max_running: number;
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

interface QueuedLogin {
  share: string;
  username: string;
  leave(reason: string): void;
}

const defaultLimits: Limits = { max_running: 32, max_queued: 10_000, max_queued_per_user: 100, max_wait_ms: 20_000 };

/** The logins that wait, by share and by username. */
function createLoginList() {
  /** None is empty. */
  const shares = new Map<string, Set<QueuedLogin>>();
  const users = new Map<string, number>();
  let size = 0;
  return {
    shares,
    size: () => size,
    sizeOfUser: (username: string) => users.get(username) ?? 0,
    add(login: QueuedLogin): void {
      const { share, username } = login;
      shares.set(share, (shares.get(share) ?? new Set()).add(login));
      users.set(username, (users.get(username) ?? 0) + 1);
      size++;
    },
    remove(login: QueuedLogin): void {
      const { share, username } = login;
      const logins = shares.get(share);
      if (logins?.delete(login) !== true) return;
      if (logins.size === 0) shares.delete(share);
      const left = (users.get(username) ?? 0) - 1;
      if (left > 0) users.set(username, left);
      else users.delete(username);
      size--;
    },
  };
}

/** Limits concurrent logins, with fair shares of addresses and usernames. */
export type LoginQueue = ReturnType<typeof createLoginQueue>;

/**
 * Creates a fair queue: addresses take turns, and within an address usernames do. If it is full, the address with the most
 * queued logins loses one. A login whose client is gone leaves the queue at once.
 */
export function createLoginQueue(limits: Partial<Limits> = {}) {
  const { max_running, max_queued, max_queued_per_user, max_wait_ms } = { ...defaultLimits, ...limits };
  const slots = createShares({
    capacity: max_running,
    max_per_account: max_running,
    max_waiting: Number.POSITIVE_INFINITY,
  });
  const queued = createLoginList();

  /** Evicts the newest login of the largest user of the largest share, unless that is hardly larger than `share`. */
  function makeRoom(share: string): void {
    if (queued.size() < max_queued) return;
    const largest = [...queued.shares.values()].reduce((found, logins) => (logins.size >= found.size ? logins : found));
    if (largest.size <= (queued.shares.get(share)?.size ?? 0) + 1) throw new QueueFullError('login queue is full');
    const users = [...groupBy([...largest], ({ username }) => username).values()];
    users
      .reduce((found, logins) => (logins.length >= found.length ? logins : found))
      .at(-1)
      ?.leave('login queue is full');
  }

  async function waitForTurn({ username, signal }: LoginOrigin, share: string): Promise<Release> {
    if (queued.sizeOfUser(username) >= max_queued_per_user) throw new QueueFullError('too many logins of a username');
    makeRoom(share);
    const left = new AbortController();
    const leave = (reason: string) => {
      queued.remove(login);
      left.abort(new QueueFullError(reason));
    };
    const login: QueuedLogin = { share, username, leave };
    queued.add(login);
    const timer = setTimeout(leave, max_wait_ms, 'login waited too long').unref();
    try {
      const caller = { key: username, waiting: 0, waited_ms: 0 };
      return await slots.acquire(share, { caller, signal: AbortSignal.any([signal, left.signal]) });
    } finally {
      clearTimeout(timer);
      queued.remove(login);
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
