import { expect, it } from '@jest/globals';
import { createForwardRate } from '../../src/mqtt/sessions/forward-rate.js';

const KiB = 1024;

it('forwards 16 MiB at once, then refuses or delays', async () => {
  const stopped = new AbortController();
  const rate = createForwardRate(stopped.signal);
  let count = 0;
  while (rate.tryTake(256 * KiB)) count++;
  expect(count).toBe(63);
  const begun = performance.now();
  await rate.take(256 * KiB);
  await rate.take(128 * KiB);
  expect(performance.now() - begun).toBeGreaterThan(200);
  const waiting = rate.take(10_000 * KiB);
  stopped.abort();
  await waiting;
});
