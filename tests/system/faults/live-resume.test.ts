import { expect, it } from '@jest/globals';
import { runLiveResume } from '../../../scripts/checks/live-resume.js';

// npm run resume kills more often
it('has no gap and no repetition after kill -9 of the service (reference/events.md#resuming)', async () => {
  const run = { tries: 5, seed: Date.now() % 1_000_000, print: console.info };
  const { events, streams, resumed, faults } = await runLiveResume(run);
  expect(faults).toEqual([]);
  expect(resumed).toBeGreaterThanOrEqual(10);
  expect(events).toBeGreaterThan(20);
  expect(streams).toBeGreaterThan(100);
});
