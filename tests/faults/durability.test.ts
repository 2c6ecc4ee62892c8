import { expect, it } from '@jest/globals';
import { killDuringIngest } from '../system/durability.js';

// ten rounds each, and the control that does lose: npm run durability
it.each(['service', 'mongod'] as const)(
  'loses no acknowledged stream to kill -9 of the %s during ingest (contract 8)',
  async (victim) => {
    const { acknowledged, lost } = await killDuringIngest(victim, { rounds: 2, say: () => undefined });
    expect(lost).toBe(0);
    expect(acknowledged).toBeGreaterThan(100);
  },
  120_000,
);
