import { expect, it } from '@jest/globals';
import { runWithTimeLimit } from '../../src/lib/time-limit.js';
import { collectGarbage } from '../support/garbage.js';

/** Work that ends when its signal aborts. */
const untilAborted = (signal: AbortSignal) =>
  new Promise<string>((resolve) => signal.addEventListener('abort', () => resolve('aborted')));

/** Collects garbage when the signals of the caller's work are all that holds them. */
async function collectSoon(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
  collectGarbage();
}

it('aborts after the time, whatever is collected meanwhile', async () => {
  const running = runWithTimeLimit(50, new AbortController().signal, untilAborted);
  await collectSoon();
  expect(await running).toBe('aborted');
});

it('aborts with the outer signal', async () => {
  const outer = new AbortController();
  const running = runWithTimeLimit(300_000, outer.signal, untilAborted);
  await collectSoon();
  outer.abort();
  expect(await running).toBe('aborted');
});

it('returns and throws what the work does', async () => {
  const { signal } = new AbortController();
  expect(await runWithTimeLimit(300_000, signal, async () => 7)).toBe(7);
  await expect(runWithTimeLimit(300_000, signal, () => Promise.reject(new Error('failed')))).rejects.toThrow('failed');
});
