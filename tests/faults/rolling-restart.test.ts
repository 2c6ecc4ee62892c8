import { expect, it } from '@jest/globals';
import { runRollingRestart } from '../system/rolling-restart.js';

// npm run rolling restarts more often
it('fails no request while two instances behind a balancer are restarted (operations.md#rolling-restarts)', async () => {
  const seed = Date.now() % 1_000_000;
  const { failed, faults, methods, published, restarts } = await runRollingRestart({
    rounds: 1,
    seed,
    print: console.info,
  });
  expect(failed).toEqual([]);
  expect(faults).toEqual([]);
  expect([...methods.keys()].sort()).toEqual(['DELETE', 'GET', 'HEAD', 'PATCH', 'POST', 'PUT']);
  expect(published).toBeGreaterThan(100);
  expect(restarts).toBe(2);
}, 180_000);
