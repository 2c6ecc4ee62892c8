import { expect, it } from '@jest/globals';
import { createShares } from '../../../src/lib/shares.js';
import { openRun } from '../../../src/webhooks/deliveries.js';
import { sendNewEvents } from '../../../src/webhooks/new-events.js';
import { findEnabledWebhooks } from '../../../src/webhooks/store.js';
import { createWorkerState, type WorkerDeps } from '../../../src/webhooks/worker-state.js';
import { useTestService } from '../../support/expect-status.js';
import { waitUntil } from '../../support/process.js';

const ctx = await useTestService({ eventLog: true });

it('keeps events for later that it had not compared with the filter when it was stopped', async () => {
  await ctx.api.post('/filters/', { name: 'pumps', query: 'type=pump' });
  const hook = { name: 'hook', url: 'https://hooks.example/', types: ['device.'], filter: 'pumps@acme' };
  expect((await ctx.api.post('/webhooks/', hook)).body.code).toBe(2001);
  await ctx.fixtures.device({ type: 'crane' });
  await ctx.fixtures.device({ type: 'pump' });
  await waitUntil(async () => (await ctx.api.get('/events/?type=device.created')).body.result.length === 2);

  const { db } = ctx.service.store;
  const [target] = await findEnabledWebhooks(db);
  if (target === undefined) throw new Error('no webhook is enabled');
  const before = await openRun(db, target);
  const deps = {
    ...{ db, costly: createShares({ capacity: 1 }), clock: Date.now, consoleUrl: () => undefined },
    async isSelectedByFilter() {
      state.stopped.abort();
      return false;
    },
  };
  const state = createWorkerState(deps as unknown as WorkerDeps, target);
  await sendNewEvents(state);
  expect(await openRun(db, target)).toEqual(before);
});
