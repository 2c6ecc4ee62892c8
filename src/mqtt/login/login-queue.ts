import ipaddr from 'ipaddr.js';
import { awaitLater } from '../../lib/promises.js';

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

/** Limits concurrent logins, with fair shares of addresses and usernames. */
export interface LoginQueue {
  /** Runs a login in its turn. @throws QueueFullError if there is no room, the signal's reason if it aborts first */
  run<Result>(origin: LoginOrigin, login: () => Promise<Result>): Promise<Result>;
}

/** Too many logins wait, or one has waited too long. */
export class QueueFullError extends Error {
  override name = 'QueueFullError';
}

interface Job {
  share: string;
  username: string;
  start(): void;
  /** Leaves the queue with an error. */
  leave(error: unknown): void;
}

const defaultLimits: Limits = { max_running: 32, max_queued: 1000, max_queued_per_user: 100, max_wait_ms: 20_000 };

/**
 * Creates a fair queue: addresses take turns, and within an address usernames do. If it is full, the address with the most
 * queued logins loses one. A login whose client is gone leaves the queue at once.
 */
export function createLoginQueue(limits: Partial<Limits> = {}): LoginQueue {
  const { max_running, max_queued, max_queued_per_user, max_wait_ms } = { ...defaultLimits, ...limits };
  const queue = createFairQueue();
  let running = 0;

  function startNext(): void {
    while (running < max_running) {
      const job = queue.takeNext();
      if (job === undefined) return;
      running++;
      job.start();
    }
  }

  function makeRoom(share: string): void {
    if (queue.size() < max_queued) return;
    const evicted = queue.findInLargestShare(share);
    if (evicted === undefined) throw new QueueFullError('login queue is full');
    evicted.leave(new QueueFullError('login queue is full'));
  }

  function waitForTurn({ address, username, signal }: LoginOrigin): Promise<void> {
    const share = shareOf(address);
    if (queue.sizeOfUser(username) >= max_queued_per_user) throw new QueueFullError('too many logins of a username');
    makeRoom(share);
    return new Promise<void>((resolve, reject) => {
      const onAbort = () => leave(signal.reason);
      const timer = setTimeout(() => leave(new QueueFullError('login waited too long')), max_wait_ms).unref();
      const stopWaiting = () => {
        clearTimeout(timer);
        signal.removeEventListener('abort', onAbort);
      };
      const leave = (error: unknown) => {
        queue.remove(job);
        stopWaiting();
        reject(error);
      };
      const start = () => {
        stopWaiting();
        resolve();
      };
      const job: Job = { share, username, start, leave };
      signal.addEventListener('abort', onAbort, { once: true });
      queue.add(job);
    });
  }

  return {
    async run(origin, login) {
      origin.signal.throwIfAborted();
      const turn = awaitLater(waitForTurn(origin));
      startNext();
      await turn;
      try {
        origin.signal.throwIfAborted();
        return await login();
      } finally {
        running--;
        startNext();
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

/** The queued jobs by share and username. Maps and sets keep their order of insertion, which is the order of the turns. */
function createFairQueue() {
  const shares = new Map<string, { users: Map<string, Set<Job>>; size: number }>();
  const sizeByUser = new Map<string, number>();
  let size = 0;

  function add(job: Job): void {
    const share = shares.get(job.share) ?? { users: new Map<string, Set<Job>>(), size: 0 };
    const jobs = share.users.get(job.username) ?? new Set();
    shares.set(job.share, share);
    share.users.set(job.username, jobs.add(job));
    share.size++;
    sizeByUser.set(job.username, (sizeByUser.get(job.username) ?? 0) + 1);
    size++;
  }

  function remove(job: Job): void {
    const share = shares.get(job.share);
    const jobs = share?.users.get(job.username);
    if (share === undefined || jobs === undefined || !jobs.delete(job)) return;
    share.size--;
    size--;
    if (jobs.size === 0) share.users.delete(job.username);
    if (share.size === 0) shares.delete(job.share);
    const sizeOfUser = (sizeByUser.get(job.username) ?? 0) - 1;
    if (sizeOfUser > 0) sizeByUser.set(job.username, sizeOfUser);
    else sizeByUser.delete(job.username);
  }

  return {
    add,
    remove,
    size: () => size,
    sizeOfUser: (username: string) => sizeByUser.get(username) ?? 0,
    takeNext(): Job | undefined {
      const [share] = shares.values();
      const [jobs] = share?.users.values() ?? [];
      const [job] = jobs ?? [];
      if (share === undefined || jobs === undefined || job === undefined) return undefined;
      remove(job);
      moveToEnd(share.users, job.username);
      moveToEnd(shares, job.share);
      return job;
    },
    /** Finds the newest job of the largest user of the largest share. @returns undefined if no share exceeds `rival` */
    findInLargestShare(rival: string): Job | undefined {
      const largest = findLargest(shares.values(), (share) => share.size);
      if (largest === undefined || largest.size <= (shares.get(rival)?.size ?? 0) + 1) return undefined;
      const jobs = findLargest(largest.users.values(), (user) => user.size);
      return [...(jobs ?? [])].at(-1);
    },
  };
}

function moveToEnd<Value>(map: Map<string, Value>, key: string): void {
  const value = map.get(key);
  if (value === undefined) return;
  map.delete(key);
  map.set(key, value);
}

/** @returns the last one of equally large items */
function findLargest<Item>(items: Iterable<Item>, sizeOf: (item: Item) => number): Item | undefined {
  let largest: Item | undefined;
  for (const item of items) if (largest === undefined || sizeOf(item) >= sizeOf(largest)) largest = item;
  return largest;
}
