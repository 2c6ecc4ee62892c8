import { expect, it } from '@jest/globals';
import { runCommandRaces } from '../../scripts/checks/commands.js';

// npm run commands runs for longer
it('takes commands through their states once after kill -9 of instances and database (reference/commands.md#life-cycle)', async () => {
  const seed = Date.now() % 1_000_000;
  const run = { seconds: 8, seed, kill_period_ms: 2000, devices: 8, print: console.info };
  const { commands, receipts, kills, faults } = await runCommandRaces(run);
  expect(faults).toEqual([]);
  expect(commands).toBeGreaterThan(50);
  expect(receipts).toBeGreaterThan(50);
  expect(kills).toBeGreaterThan(0);
});
