import { expect, it } from '@jest/globals';
import { runEventLogRaces } from '../../../scripts/checks/event-log.js';

// npm run races runs for longer
it('is complete and exact after kill -9 of instances and database (reference/events.md#guarantees)', async () => {
  const seed = Date.now() % 1_000_000;
  const run = { seconds: 20, seed, kill_period_ms: 2500, print: console.info };
  const { acknowledged, events, kills, faults } = await runEventLogRaces(run);
  expect(faults).toEqual([]);
  expect(acknowledged).toBeGreaterThan(100);
  expect(events).toBeGreaterThan(100);
  expect(kills).toBeGreaterThan(0);
});
