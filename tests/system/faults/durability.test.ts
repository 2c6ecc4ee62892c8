import { expect, it } from '@jest/globals';
import { killDuringIngest } from '../../../scripts/checks/durability.js';

// npm run durability runs more rounds, and a control that does lose writes
it.each(['service', 'mongod'] as const)(
  'loses no acknowledged stream to kill -9 of the %s during ingest (reference/streams.md#durability)',
  async (victim) => {
    const { acknowledged, lost, late } = await killDuringIngest(victim, { rounds: 2, print: () => undefined });
    expect([lost, late]).toEqual([0, 0]);
    expect(acknowledged).toBeGreaterThan(100);
  },
);
