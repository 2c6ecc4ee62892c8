import { afterAll, expect, it } from '@jest/globals';
import { createAlarmTools } from '../../support/alarms.js';
import { useTestService } from '../../support/expect-status.js';
import { waitForEvents } from '../../support/logged-events.js';
import { waitUntil } from '../../support/process.js';
import { startReceiver } from '../../support/receiver.js';
import { pathOf } from '../../support/service.js';
import { createKey, follow } from '../../support/sse.js';

const ctx = await useTestService({ eventLog: true, deliver: true, webhook_allow_nets: ['127.0.0.0/8'] });
const tools = createAlarmTools(ctx);
const receiver = await startReceiver();
afterAll(() => receiver.close());

it('a webhook and a live feed get each transition once, also of a stream that is sent twice', async () => {
  const device = await ctx.fixtures.device();
  await tools.rule({ conditions: [{ path: 'bar', op: '>', value: 8 }], id_device: device });
  const hook = { name: 'alarms', url: receiver.url, types: ['alarm.'] };
  expect((await ctx.api.post('/webhooks/', hook)).body.code).toBe(2001);
  const { headers } = await createKey(ctx.service, { scope: 'read' });
  const follower = await follow(`${ctx.service.url}/events/live/?resource=alarm`, headers);
  const at = ctx.service.now() - 10;
  for (const bar of [9, 9]) await tools.send(device, { data: { bar }, at });
  const [alarm] = await tools.alarmsOf(device);
  await ctx.api.put(pathOf('alarms', String(alarm?.id)), { state: 'acknowledged' });
  for (const bar of [1, 1]) await tools.send(device, { data: { bar }, at: at + 1 });
  const events = await waitForEvents(ctx.api, `resource=alarm&id_developer=${encodeURIComponent(device)}`, 3);
  expect(events.map(({ type, user }) => [type, user])).toEqual([
    ['alarm.raised', undefined],
    ['alarm.acknowledged', 'alice'],
    ['alarm.closed', undefined],
  ]);
  await waitUntil(() => receiver.received.length >= 3 && follower.messages.length >= 3);
  expect(receiver.events()).toEqual(events);
  expect(follower.messages.map(({ data }) => data)).toEqual(events);
  await follower.close();
});
