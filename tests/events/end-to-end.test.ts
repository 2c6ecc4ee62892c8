import { expect, it } from '@jest/globals';
import { Webhook } from 'standardwebhooks';
import { useTestService } from '../support/expect-status.js';
import { waitUntil } from '../support/process.js';
import { startReceiver } from '../support/receiver.js';
import { pathOf } from '../support/service.js';
import { createKey, follow } from '../support/sse.js';

const ctx = useTestService({ eventLog: true, deliver: true, webhook_allow_nets: ['127.0.0.0/8'] });

/** Creates, updates and deletes a device, which also sends a stream. @returns its identifier */
async function useDevice(id_group: string): Promise<string> {
  const device = await ctx.fixtures.device({ id_group });
  const path = pathOf('devices', device);
  expect((await ctx.api.post(`${path}streams/`, { data: { n: 1 } })).body.code).toBe(2001);
  expect((await ctx.api.put(path, { description: 'a' })).body.code).toBe(2005);
  // the status changes once the watch has seen the stream
  await waitUntil(async () => {
    const { body } = await ctx.api.get(`/events/?type=device.status_changed&id_group=${encodeURIComponent(id_group)}`);
    return body.total_documents === 1;
  });
  expect((await ctx.api.delete(path)).body.code).toBe(2004);
  return device;
}

const expectedTypes = ['device.created', 'device.updated', 'device.status_changed', 'device.deleted'];

it('brings changes over HTTP to live feeds, as they are listed', async () => {
  const id_group = await ctx.fixtures.group();
  const of_group = `id_group=${encodeURIComponent(id_group)}`;
  const { headers } = await createKey(ctx.service, { scope: 'read' });
  const all = await follow(`${ctx.service.url}/events/live/?${of_group}`, headers);
  const deletions = await follow(`${ctx.service.url}/events/live/?type=device.deleted&${of_group}`, headers);
  const device = await useDevice(id_group);
  const messages = await all.received(4);
  expect(messages.map(({ event }) => event).toSorted()).toEqual(expectedTypes.toSorted());
  expect(messages.every(({ id, data }) => data.id === id && data.id_developer === device)).toBe(true);
  const { body } = await ctx.api.get(`/events/?${of_group}&order=1`);
  expect(messages.map(({ data }) => data)).toEqual(body.result);
  expect((await deletions.received(1)).map(({ data }) => data)).toEqual(body.result.slice(-1));
  const status = messages.find(({ event }) => event === 'device.status_changed')?.data;
  expect(status.data).toEqual({ from: 'disconnected', to: 'no_status', since: ctx.service.now() });
  await all.close();
  await deletions.close();
});

it('brings changes over HTTP to webhooks, signed and as they are listed', async () => {
  const id_group = await ctx.fixtures.group();
  const receiver = await startReceiver();
  const hook = { name: 'end to end', url: receiver.url, types: ['device.'], id_group };
  const created = await ctx.api.post('/webhooks/', hook);
  expect(created.body.code).toBe(2001);
  const device = await useDevice(id_group);
  await waitUntil(() => receiver.received.length >= 4);
  const { body } = await ctx.api.get(`/events/?id_group=${encodeURIComponent(id_group)}&type=device.&order=1`);
  expect(body.result.map(({ type }: { type: string }) => type).toSorted()).toEqual(expectedTypes.toSorted());
  expect(receiver.events()).toEqual(body.result);
  expect(receiver.events().every(({ id_developer }) => id_developer === device)).toBe(true);
  const webhook = new Webhook(created.body.details.secret);
  for (const { body: text, headers } of receiver.received)
    expect(webhook.verify(text, headers as Record<string, string>)).toEqual(JSON.parse(text));
  await receiver.close();
});
