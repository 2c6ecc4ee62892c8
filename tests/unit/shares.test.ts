import { getEventListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from '@jest/globals';
import { AppError } from '../../src/errors.js';
import { readInSlots } from '../../src/lib/read-in-slots.js';
import { createShares, type Release, type Shares } from '../../src/lib/shares.js';
import { TimeLimitError } from '../../src/lib/time-limit.js';
import { createRandom } from '../support/random.js';

const overloaded = expect.objectContaining({ failure: 'overloaded' });
const nextTurn = () => new Promise(setImmediate);

/** Waits for slots, and records who gets one, in order. */
function createLine(shares: Shares) {
  const granted: string[] = [];
  const releases: Release[] = [];
  return {
    granted,
    releases,
    wait(account: string, amount = 1, signal?: AbortSignal) {
      return shares.acquire(account, { amount, signal }).then((release) => {
        granted.push(account);
        releases.push(release);
      });
    },
  };
}

describe('a pool of shares', () => {
  it('gives one account at most half at once, and rejects what does not fit', () => {
    const shares = createShares({ capacity: 4 });
    shares.take('a');
    const release = shares.take('a');
    expect(() => shares.take('a')).toThrow(overloaded);
    shares.take('b', 2);
    expect(() => shares.take('c')).toThrow(overloaded);
    release();
    release();
    expect([shares.held, shares.heldBy('a'), shares.heldBy('b'), shares.heldBy('c')]).toEqual([3, 1, 2, 0]);
  });

  it('gives what becomes free to the account that holds least, and to its calls in their order', async () => {
    const shares = createShares({ capacity: 3, max_per_account: 3, max_waiting: 10 });
    const held = [shares.take('a'), shares.take('a'), shares.take('a')];
    const { granted, wait } = createLine(shares);
    for (const account of ['a', 'a', 'b', 'c', 'b']) void wait(account);
    for (const release of held) {
      release();
      await nextTurn();
    }
    expect(granted).toEqual(['b', 'c', 'a']);
  });

  it('lets an account hold all while nobody else asks, if that is its limit', async () => {
    const shares = createShares({ capacity: 2, max_per_account: 2, max_waiting: 1 });
    const { granted, wait } = createLine(shares);
    await Promise.all([wait('a'), wait('a')]);
    expect(granted).toEqual(['a', 'a']);
  });

  it('bounds the line of each account by itself', async () => {
    const shares = createShares({ capacity: 1, max_waiting: 2 });
    const release = shares.take('a');
    const { granted, wait } = createLine(shares);
    void wait('a');
    void wait('a');
    await expect(wait('a')).rejects.toEqual(overloaded);
    const { granted: others, wait: waitOther } = createLine(shares);
    void waitOther('b');
    release();
    await nextTurn();
    expect([granted, others]).toEqual([['a'], []]);
  });

  it('serves accounts that hold the same in turn, however long their lines are', async () => {
    const shares = createShares({ capacity: 1, max_waiting: 5 });
    const first = shares.take('a');
    const { granted, releases, wait } = createLine(shares);
    for (const account of ['a', 'a', 'a', 'b', 'c', 'b']) void wait(account);
    first();
    for (let served = 0; served < 6; served++) {
      await nextTurn();
      releases[served]?.();
    }
    expect(granted).toEqual(['a', 'b', 'c', 'a', 'b', 'a']);
  });

  it('lets the keys of an account take turns, and one with a short line into a full one', async () => {
    const shares = createShares({ capacity: 2, max_waiting: 4 });
    const first = shares.take('a');
    const granted: string[] = [];
    const releases: Release[] = [];
    const wait = (key: string) =>
      shares.acquire('a', { caller: { key, waiting: 0, waited_ms: 0 } }).then((release) => {
        granted.push(key);
        releases.push(release);
      });
    const waits = ['x', 'x', 'x', 'x'].map(wait);
    const refused = expect(waits[3]).rejects.toEqual(overloaded);
    waits.push(wait('y'));
    await refused;
    await expect(wait('x')).rejects.toEqual(overloaded);
    first();
    for (let served = 0; served < 4; served++) {
      await nextTurn();
      releases[served]?.();
    }
    expect(granted).toEqual(['x', 'y', 'x', 'x']);
    expect([shares.held, shares.waiting]).toEqual([0, 0]);
  });

  it('takes a slot from a client that moves too little while another is refused', () => {
    let now = 0;
    const shares = createShares({ capacity: 2, clock: () => now });
    const dropped: string[] = [];
    const openClient = (name: string, limit_ms: number) => {
      const client = {
        bytes: 0,
        moved: () => client.bytes,
        limit_ms: () => limit_ms,
        drop: () => void dropped.push(name),
      };
      return client;
    };
    const take = (account: string, client: ReturnType<typeof openClient>) =>
      shares.take(account, 1, { waiting: 0, waited_ms: 0, client });
    const modem = openClient('modem', 10_000);
    take('a', modem);
    const trickling = openClient('trickling', 10_000);
    const release = take('b', trickling);
    now = 9000;
    expect(() => shares.take('c')).toThrow(overloaded);
    now = 11_000;
    Object.assign(modem, { bytes: 4096 });
    Object.assign(trickling, { bytes: 4095 });
    shares.take('c');
    expect([dropped, shares.held, shares.heldBy('b')]).toEqual([['trickling'], 2, 0]);
    release();
    expect(shares.held).toBe(2);
    now = 30_000;
    Object.assign(modem, { limit_ms: () => Number.POSITIVE_INFINITY });
    expect(() => shares.take('d')).toThrow(overloaded);
  });

  it('rejects an amount that never fits instead of letting it wait', async () => {
    const shares = createShares({ capacity: 10, max_waiting: 1 });
    await expect(shares.acquire('a', { amount: 6 })).rejects.toEqual(overloaded);
  });

  it('keeps free for a large amount what it is next for', async () => {
    const shares = createShares({ capacity: 4, max_per_account: 4, max_waiting: 2 });
    const releases = [shares.take('a', 2), shares.take('b', 2)];
    const { granted, wait } = createLine(shares);
    const large = wait('c', 4);
    void wait('d');
    releases[0]?.();
    await nextTurn();
    expect(granted).toEqual([]);
    releases[1]?.();
    await large;
    expect(granted).toEqual(['c']);
  });

  it('leaves the line when the signal aborts, which lets the next one through', async () => {
    const shares = createShares({ capacity: 4, max_per_account: 4, max_waiting: 2 });
    shares.take('a', 2);
    const { granted, wait } = createLine(shares);
    const left = new AbortController();
    const large = wait('b', 3, left.signal);
    const small = wait('b', 1);
    left.abort(new Error('left'));
    await expect(large).rejects.toThrow('left');
    await small;
    expect(granted).toEqual(['b']);
    await expect(shares.acquire('b', { signal: left.signal })).rejects.toThrow('left');
  });

  it('gives the slot of work back when it ends, fails, or does neither in time', async () => {
    const shares = createShares({ capacity: 1 });
    expect(await shares.run('a', async () => shares.held)).toBe(1);
    await expect(shares.run('a', () => Promise.reject(new Error('failed')))).rejects.toThrow('failed');
    let signal: AbortSignal | undefined;
    const hanging = shares.run(
      'a',
      (aborted) => {
        signal = aborted;
        return new Promise(() => undefined);
      },
      { limit_ms: 5 },
    );
    await expect(hanging).rejects.toBeInstanceOf(TimeLimitError);
    expect([signal?.aborted, shares.held]).toEqual([true, 0]);
  });

  it('ends limited work when its own signal aborts', async () => {
    const shares = createShares({ capacity: 1 });
    const left = new AbortController();
    const work = shares.run('a', () => sleep(60_000), { limit_ms: 60_000, signal: left.signal });
    await nextTurn();
    left.abort(new Error('left'));
    await expect(work).rejects.toThrow('left');
    expect(shares.held).toBe(0);
  });

  it('does not listen to a signal any more once the work is done', async () => {
    const shares = createShares({ capacity: 1 });
    const { signal } = new AbortController();
    let limited: AbortSignal | undefined;
    const work = async (given: AbortSignal | undefined) => {
      limited = given;
      expect(getEventListeners(given as AbortSignal, 'abort')).toHaveLength(1);
    };
    await shares.run('a', work, { limit_ms: 60_000, signal });
    expect(getEventListeners(limited as AbortSignal, 'abort')).toEqual([]);
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });
});

interface Call {
  account: string;
  amount: number;
  state: 'waiting' | 'holding' | 'over';
  release?: Release;
  leave: AbortController;
}

/** Takes, waits, leaves and gives back at random. @returns broken promises */
async function runSequence(below: (limit: number) => number): Promise<string[]> {
  const faults: string[] = [];
  const assert = (holds: boolean, promise: string) => {
    if (!holds) faults.push(promise);
  };
  const capacity = 1 + below(6);
  const max_per_account = Math.max(1, below(capacity + 1));
  const max_waiting = below(4);
  const shares = createShares({ capacity, max_per_account, max_waiting });
  const calls: Call[] = [];
  const of = (account: string, state: Call['state']) =>
    calls.filter((call) => call.account === account && call.state === state);
  const heldBy = (account: string) => of(account, 'holding').reduce((sum, { amount }) => sum + amount, 0);
  const accounts = ['a', 'b', 'c'];

  const begin = (account: string, amount: number) => {
    const call: Call = { account, amount, state: 'waiting', leave: new AbortController() };
    const isLineFull = of(account, 'waiting').length >= max_waiting;
    calls.push(call);
    shares.acquire(account, { amount, signal: call.leave.signal }).then(
      (release) => {
        assert(of(account, 'waiting')[0] === call, 'first in, first out');
        Object.assign(call, { state: 'holding', release });
      },
      (error: unknown) => {
        const isRefusable = isLineFull || amount > max_per_account;
        assert(!(error instanceof AppError) || isRefusable, 'waits while the line has room');
        call.state = 'over';
      },
    );
  };
  const giveBack = (call: Call) => {
    call.state = 'over';
    call.release?.();
    // a second time is without effect
    call.release?.();
  };
  const check = async () => {
    for (let turn = 0; turn < 4; turn++) await Promise.resolve();
    assert(shares.held <= capacity, 'never more than the capacity');
    for (const account of accounts) {
      assert(shares.heldBy(account) === heldBy(account), 'counts exactly');
      assert(heldBy(account) <= max_per_account, 'never more than the limit of an account');
      assert(of(account, 'waiting').length <= max_waiting, 'a bounded line');
    }
    const next = accounts
      .flatMap((account) => of(account, 'waiting').slice(0, 1))
      .filter(({ account, amount }) => heldBy(account) + amount <= max_per_account);
    const lowest = Math.min(...next.map(({ account }) => heldBy(account)));
    const first = next.filter(({ account }) => heldBy(account) === lowest);
    const isFull = first.some(({ amount }) => shares.held + amount > capacity);
    assert(first.length === 0 || isFull, 'who holds least waits only for what is not free');
  };

  for (let step = 0; step < 12; step++) {
    const account = accounts[below(3)] ?? 'a';
    const action = below(4);
    const [holding] = of(account, 'holding');
    if (action < 2) begin(account, 1 + below(3));
    else if (action === 2 && holding !== undefined) giveBack(holding);
    else of(account, 'waiting').at(-1)?.leave.abort();
    await check();
  }
  for (let left = calls.length; left > 0; left--) {
    for (const call of calls.filter(({ state }) => state === 'holding')) giveBack(call);
    await check();
  }
  assert(shares.held === 0 && calls.every(({ state }) => state === 'over'), 'everybody is served in the end');
  return faults;
}

it('holds a slot for each step of an iteration, and none between them', async () => {
  const shares = createShares({ capacity: 4, max_waiting: 1 });
  const held: number[] = [];
  async function* steps() {
    try {
      for (let step = 1; ; step++) {
        held.push(shares.heldBy('a'));
        yield step;
      }
    } finally {
      held.push(-1);
    }
  }
  for await (const step of readInSlots(shares, 'a', steps())) {
    held.push(shares.heldBy('a'));
    if (step === 2) break;
  }
  expect(held).toEqual([1, 0, 1, 0, -1]);
});

it('closes an iteration that has not begun, and one that gets no slot', async () => {
  const shares = createShares({ capacity: 2 });
  let closed = 0;
  const values: AsyncIterable<number> = {
    [Symbol.asyncIterator]: () => ({
      next: async () => ({ done: false, value: 1 }),
      return: async () => ({ done: true, value: ++closed }),
    }),
  };
  await readInSlots(shares, 'a', values).return?.();
  expect(closed).toBe(1);
  shares.take('a');
  await expect(readInSlots(shares, 'a', values).next()).rejects.toEqual(overloaded);
  expect(closed).toBe(2);
});

it('counts the lines in which a caller stands', async () => {
  const shares = createShares({ capacity: 2, max_waiting: 3 });
  const caller = { waiting: 0, waited_ms: 0 };
  const release = await shares.acquire('a', { caller });
  expect(caller.waiting).toBe(0);
  const left = new AbortController();
  const [next, leaving] = [shares.acquire('a', { caller }), shares.acquire('a', { caller, signal: left.signal })];
  expect(caller.waiting).toBe(2);
  left.abort();
  await expect(leaving).rejects.toThrow();
  expect(caller.waiting).toBe(1);
  release();
  await next;
  expect(caller.waiting).toBe(0);
  expect(caller.waited_ms).toBeGreaterThan(0);
});

it('keeps its promises in 10,000 random sequences of taking, waiting, leaving and giving back', async () => {
  const seed = Number(process.env.SHARES_SEED ?? Math.floor(Math.random() * 1e6));
  const random = createRandom(seed);
  const faults: string[] = [];
  for (let sequence = 0; sequence < 10_000; sequence++)
    faults.push(...(await runSequence((limit) => Math.floor(random() * limit))));
  expect({ seed, faults: [...new Set(faults)] }).toEqual({ seed, faults: [] });
});
