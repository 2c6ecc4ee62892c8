import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, it } from '@jest/globals';
import { createLoginQueue, QueueFullError } from '../../src/mqtt/login/login-queue.js';

interface Login {
  name: string;
  address?: string;
  username?: string;
  signal?: AbortSignal;
}

/** A queue whose logins run until they are finished by hand; `started` and `ended` record the order of events. */
function openQueue(limits: Parameters<typeof createLoginQueue>[0]) {
  const queue = createLoginQueue(limits);
  const started: string[] = [];
  const ended: string[] = [];
  const running: (() => void)[] = [];
  const enqueue = ({ name, address = '192.0.2.1', username = name, signal = new AbortController().signal }: Login) => {
    const login = () =>
      new Promise<string>((resolve) => {
        started.push(name);
        running.push(() => resolve('done'));
      });
    queue.run({ address, username, signal }, login).then(
      (result) => ended.push(`${name} ${result}`),
      (error: Error) => ended.push(`${name} ${error.name}`),
    );
  };
  return {
    started,
    ended,
    enqueue,
    finishNext() {
      running.shift()?.();
      return nextTurn();
    },
    async finishAll() {
      await nextTurn();
      while (running.length > 0) await this.finishNext();
    },
  };
}

it('runs as many logins at a time as it may', async () => {
  const queue = openQueue({ max_running: 2 });
  for (const name of ['a', 'b', 'c', 'd']) queue.enqueue({ name });
  await nextTurn();
  expect(queue.started).toEqual(['a', 'b']);
  await queue.finishNext();
  expect(queue.started).toEqual(['a', 'b', 'c']);
  await queue.finishAll();
  expect(queue.ended).toEqual(['a done', 'b done', 'c done', 'd done']);
});

it('gives addresses turns, and usernames within an address', async () => {
  const queue = openQueue({ max_running: 1 });
  queue.enqueue({ name: 'first' });
  for (const name of ['a1', 'a2', 'a3']) queue.enqueue({ name, address: '192.0.2.1', username: 'a' });
  for (const name of ['b1', 'b2']) queue.enqueue({ name, address: '192.0.2.1', username: 'b' });
  for (const name of ['c1', 'c2']) queue.enqueue({ name, address: '192.0.2.2', username: 'c' });
  queue.enqueue({ name: 'd1', address: '192.0.2.3', username: 'd' });
  await queue.finishAll();
  expect(queue.started).toEqual(['first', 'a1', 'c1', 'd1', 'b1', 'c2', 'a2', 'b2', 'a3']);
});

it('drops a login whose client is gone, without running it', async () => {
  const queue = openQueue({ max_running: 1 });
  const gone = new AbortController();
  const early = AbortSignal.abort();
  queue.enqueue({ name: 'first' });
  queue.enqueue({ name: 'gone', signal: gone.signal });
  queue.enqueue({ name: 'early', signal: early });
  queue.enqueue({ name: 'last' });
  gone.abort();
  await nextTurn();
  expect(queue.ended).toEqual(['early AbortError', 'gone AbortError']);
  await queue.finishAll();
  expect(queue.started).toEqual(['first', 'last']);
});

it('refuses logins of an address when its line is full, first those of the username that has the most', async () => {
  const queue = openQueue({ max_running: 1, max_queued: 4 });
  queue.enqueue({ name: 'first' });
  for (const name of ['a1', 'a2', 'a3', 'a4', 'a5']) queue.enqueue({ name, username: 'a' });
  queue.enqueue({ name: 'b1', username: 'b' });
  queue.enqueue({ name: 'c1', username: 'c' });
  queue.enqueue({ name: 'a6', username: 'a' });
  queue.enqueue({ name: 'd1', username: 'd' });
  for (const name of ['other-1', 'other-2']) queue.enqueue({ name, username: 'a', address: '192.0.2.2' });
  await nextTurn();
  expect(queue.ended.sort()).toEqual(['a2', 'a3', 'a4', 'a5', 'a6'].map((name) => `${name} ${QueueFullError.name}`));
  await queue.finishAll();
  expect(queue.started).toEqual(['first', 'a1', 'other-1', 'b1', 'other-2', 'c1', 'd1']);
});

it('counts the addresses of an IPv6 network as one, and mapped IPv4 addresses one by one', async () => {
  const queue = openQueue({ max_running: 1 });
  queue.enqueue({ name: 'first', address: '198.51.100.1' });
  for (const [name, address] of [
    ['v6-1', '2001:db8:0:1::1'],
    ['v6-2', '2001:db8:0:1:ffff::2'],
    ['v6-3', '2001:db8:0:1::3'],
    ['other-v6', '2001:db8:0:2::1'],
    ['v4-1', '::ffff:192.0.2.1'],
    ['v4-2', '::ffff:192.0.2.2'],
  ] as const)
    queue.enqueue({ name, address });
  await queue.finishAll();
  expect(queue.started).toEqual(['first', 'v6-1', 'other-v6', 'v4-1', 'v4-2', 'v6-2', 'v6-3']);
});

it('limits the logins of a username, whatever addresses they come from', async () => {
  const queue = openQueue({ max_running: 1, max_queued_per_user: 2 });
  queue.enqueue({ name: 'first' });
  for (const n of [1, 2, 3]) queue.enqueue({ name: `same-${n}`, address: `192.0.2.${n}`, username: 'same' });
  queue.enqueue({ name: 'other' });
  await nextTurn();
  expect(queue.ended).toEqual([`same-3 ${QueueFullError.name}`]);
  await queue.finishAll();
  queue.enqueue({ name: 'later', username: 'same' });
  await queue.finishAll();
  expect(queue.ended.at(-1)).toBe('later done');
});

it('lets no login wait longer than it may', async () => {
  const queue = openQueue({ max_running: 1, max_wait_ms: 20 });
  queue.enqueue({ name: 'slow' });
  queue.enqueue({ name: 'waits' });
  const deadline = setTimeout(() => undefined, 10_000);
  while (queue.ended.length === 0) await nextTurn();
  clearTimeout(deadline);
  expect(queue.ended).toEqual([`waits ${QueueFullError.name}`]);
  await queue.finishAll();
  expect(queue.started).toEqual(['slow']);
});
