import { expect, it } from '@jest/globals';
import { runRollingRestart } from '../../../scripts/checks/rolling-restart.js';
import { findProgram } from '../../../scripts/support/service-process.js';

// npm run rolling restarts more often
const restart = (options: Partial<Parameters<typeof runRollingRestart>[0]>) =>
  runRollingRestart({ rounds: 1, seed: Date.now() % 1_000_000, print: console.info, ...options });
const itWithHaproxy = findProgram('haproxy') === undefined ? it.skip : it;

async function expectNoFailure(haproxy: boolean): Promise<void> {
  // few clients: on a busy machine the deletions of many take longer than the time limit of a request
  const { failed, faults, methods, published, restarts } = await restart({ haproxy, clients: 4, pause_ms: 40 });
  expect(failed).toEqual([]);
  expect(faults).toEqual([]);
  expect([...methods.keys()].sort()).toEqual(['DELETE', 'GET', 'HEAD', 'PATCH', 'POST', 'PUT']);
  expect(published).toBeGreaterThan(100);
  expect(restarts).toBe(2);
}

it('fails no request while two instances behind a balancer are restarted (operations.md#rolling-restarts)', () =>
  expectNoFailure(false));

itWithHaproxy('fails no request while two instances behind HAProxy (package haproxy of Debian) are restarted', () =>
  expectNoFailure(true),
);

it('fails requests without SHUTDOWN_DELAY_S, but loses no acknowledged stream', async () => {
  // a restart right after a check of the balancer may fail none
  const { failed, faults } = await restart({ shutdown_delay_s: 0, rounds: 10, until_failure: true });
  expect(failed).not.toEqual([]);
  expect(faults).toEqual([]);
});
