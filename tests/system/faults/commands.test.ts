import { expect, it } from '@jest/globals';
import { runCommandRaces } from '../../../scripts/checks/commands.js';

// npm run commands runs for longer
it('takes commands through their states once after kill -9 of instances and database (reference/commands.md#life-cycle)', async () => {
  let [seed, commands, receipts, kills] = [Date.now() % 1_000_000, 0, 0, 0];
  // again on a machine that is too busy for so many in one run
  while (commands <= 50 || receipts <= 50 || kills === 0) {
    const run = await runCommandRaces({ seconds: 8, seed, kill_period_ms: 2000, devices: 8, print: console.info });
    expect(run.faults).toEqual([]);
    commands += run.commands;
    receipts += run.receipts;
    kills += run.kills;
    seed++;
  }
});
