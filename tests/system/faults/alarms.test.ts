import { expect, it } from '@jest/globals';
import { runAlarmRaces } from '../../../scripts/checks/alarms.js';

// npm run alarms runs for longer
it('has each transition of an alarm once, in order, after kill -9 of instances and database (reference/alarms.md#evaluation)', async () => {
  let [seed, transitions, kills] = [Date.now() % 1_000_000, 0, 0];
  // again on a machine that is too busy for so many in one run
  while (transitions <= 50 || kills === 0) {
    const run = await runAlarmRaces({ seconds: 6, seed, kill_period_ms: 2000, devices: 8, print: console.info });
    expect(run.faults).toEqual([]);
    transitions += run.transitions;
    kills += run.kills;
    seed++;
  }
});
