import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, it } from '@jest/globals';
import { createYieldQueue } from '../../src/http/yield-queue.js';

/** Asks for a turn of each account. @returns whose pieces have run, in order, after some turns */
async function runTurns(accounts: readonly string[], turns: number): Promise<string[]> {
  const yieldTurn = createYieldQueue();
  const ran: string[] = [];
  for (const account of accounts) void yieldTurn({ account }).then(() => ran.push(account));
  for (let turn = 0; turn < turns; turn++) await nextTurn();
  return ran;
}

it('runs one piece in each turn, the first not before the next one', async () => {
  expect(await runTurns(['a'], 0)).toEqual([]);
  expect(await runTurns(['a'], 1)).toEqual(['a']);
  expect(await runTurns(['a', 'a', 'a', 'a'], 3)).toEqual(['a', 'a', 'a']);
});

it('lets accounts take turns, whatever one of them has waiting', async () => {
  const ran = await runTurns([...Array.from({ length: 200 }, () => 'a'), 'b', 'c'], 4);
  expect(ran.toSorted()).toEqual(['a', 'a', 'b', 'c']);
});

it('leaves out who has left, and counts who waits', async () => {
  const yieldTurn = createYieldQueue();
  const left = new AbortController();
  const caller = { waiting: 0, waited_ms: 0, left: left.signal };
  const first = yieldTurn({ account: 'a' });
  const leaving = yieldTurn({ account: 'a', caller });
  const last = yieldTurn({ account: 'a' });
  expect(caller.waiting).toBe(1);
  left.abort(new Error('left'));
  await expect(leaving).rejects.toThrow('left');
  expect(caller.waiting).toBe(0);
  await Promise.all([first, last]);
});
