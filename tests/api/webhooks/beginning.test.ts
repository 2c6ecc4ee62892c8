import { expect, it } from '@jest/globals';
import { openRun } from '../../../src/webhooks/deliveries.js';
import { findEnabledWebhooks } from '../../../src/webhooks/store.js';
import { useTestService } from '../../support/expect-status.js';
import { waitUntil } from '../../support/process.js';

const ctx = await useTestService({ eventLog: true });

it('begins behind changes that are acknowledged before it, though their events are not written yet', async () => {
  const hook = { name: 'hook', url: 'https://hooks.example/', types: ['*'] };
  const device = await ctx.fixtures.device();
  expect((await ctx.api.post('/webhooks/', hook)).body.code).toBe(2001);
  await expectBeginning('device.created', 'webhook.created');

  await ctx.api.put('/webhooks/hook@acme/', { enabled: false });
  await ctx.api.put(`/devices/${device}/`, { description: 'changed meanwhile' });
  await ctx.api.put('/webhooks/hook@acme/', { enabled: true });
  await expectBeginning('device.updated', 'webhook.updated', 2);
});

/** Expects that the webhook begins between the first event of a type and the `nth` of another. */
async function expectBeginning(before: string, behind: string, nth = 1): Promise<void> {
  const { db } = ctx.service.store;
  const [target] = await findEnabledWebhooks(db);
  if (target === undefined) throw new Error('no webhook is enabled');
  const { cursor } = await openRun(db, target);
  const ids = [await findEvent(before, 1), cursor, await findEvent(behind, nth)];
  expect(ids).toEqual([...ids].sort());
}

/** Waits for the `nth` event of a type. @returns its id */
async function findEvent(type: string, nth: number): Promise<string> {
  const read = async () => (await ctx.api.get(`/events/?type=${type}&order=1`)).body.result;
  await waitUntil(async () => (await read()).length >= nth);
  return (await read())[nth - 1].id;
}
