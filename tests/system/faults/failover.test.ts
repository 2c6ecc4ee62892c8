import { expect, it } from '@jest/globals';
import { runFailover } from '../../../scripts/checks/failover.js';

// npm run failover runs for longer
it('keeps what was acknowledged when the primary is killed, steps down or hangs (operations.md#failover)', async () => {
  const outcome = await runFailover({
    faults: ['kill', 'step down', 'partition'],
    seed: Date.now() % 1_000_000,
    election: { electionTimeoutMillis: 1000, heartbeatIntervalMillis: 200 },
    // most of the time is spent waiting for elections
    pause_ms: 20,
    print: console.info,
  });
  const { acknowledged, events, faults, repeatedLines, holders } = outcome;
  expect(faults).toEqual([]);
  expect(repeatedLines).toEqual([]);
  for (const count of Object.values(acknowledged)) expect(count).toBeGreaterThan(100);
  expect(events).toBeGreaterThan(100);
  expect(new Set(holders).size).toBe(2);
});
