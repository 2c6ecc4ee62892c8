import { expect, it } from '@jest/globals';
import { runAlarmRaces } from '../../scripts/checks/alarms.js';

// npm run alarms runs for longer
it('has each transition of an alarm once, in order, after kill -9 of instances and database (reference/alarms.md#evaluation)', async () => {
  const seed = Date.now() % 1_000_000;
  const run = { seconds: 6, seed, kill_period_ms: 2000, devices: 8, print: console.info };
  const { transitions, kills, faults } = await runAlarmRaces(run);
  expect(faults).toEqual([]);
  expect(transitions).toBeGreaterThan(50);
  expect(kills).toBeGreaterThan(0);
});
