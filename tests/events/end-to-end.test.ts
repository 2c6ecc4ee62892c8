import { expect, it } from '@jest/globals';
import { Webhook } from 'standardwebhooks';
import { useTestService } from '../support/expect-status.js';
import { waitUntil } from '../support/process.js';
import { startReceiver } from '../support/receiver.js';
import { pathOf, readCounters } from '../support/service.js';
import { createKey, follow } from '../support/sse.js';

const ctx = await useTestService({ eventLog: true, deliver: true, webhook_allow_nets: ['127.0.0.0/8'] });

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

it('brings each transition of commands and configuration files to log, feeds, webhooks and metrics, once', async () => {
  const id_group = await ctx.fixtures.group();
  const device = await ctx.fixtures.device({ id_group });
  const path = (...rest: string[]) => pathOf('devices', device, ...rest);
  await ctx.api.post(path('deviceconfigs'), { name: 'boot.cfg', version: '1', file: 'YQ==' });
  const issued = await ctx.api.post('/apikeys/', { username: 'pump', scope: 'device', id_device: device });
  const own = ctx.service.clientWith(issued.body.details.key);
  const of_group = `id_group=${encodeURIComponent(id_group)}`;
  const types = ['command.', 'config.', 'state.'];
  const receiver = await startReceiver();
  await ctx.api.post('/webhooks/', { name: 'way back', url: receiver.url, types, id_group });
  const { headers } = await createKey(ctx.service, { scope: 'read' });
  const feed = await follow(`${ctx.service.url}/events/live/?${of_group}`, headers);
  const isFollowed = ({ type }: { type: string }) => types.some((prefix) => type.startsWith(prefix));
  const readLog = async () => (await ctx.api.get(`/events/?${of_group}&order=1`)).body.result.filter(isFollowed);
  const readFeed = () => feed.messages.map((message) => message.data).filter(isFollowed);
  const readMetrics = async () => ({
    ...(await readCounters(ctx.service, 'commands_total', 'status')),
    ...(await readCounters(ctx.service, 'device_state_changes_total', 'type')),
  });
  let count = 0;

  /** Takes one step, whose counters and event, if it has one, are all that is new. */
  async function step(
    counters: readonly string[],
    take: () => Promise<unknown>,
    event?: { type: string; data: object },
  ) {
    const before = await readMetrics();
    await take();
    if (event !== undefined) count++;
    const after: Record<string, number> = { ...before };
    for (const counter of counters) after[counter] = (before[counter] ?? 0) + 1;
    await waitUntil(async () => {
      const counts = [(await readLog()).length, readFeed().length, receiver.received.length];
      const metrics = await readMetrics();
      return counts.every((each) => each >= count) && counters.every((each) => metrics[each] === after[each]);
    });
    const events = await readLog();
    expect(events).toHaveLength(count);
    if (event !== undefined) expect(events.at(-1)).toMatchObject({ ...event, id_developer: device, id_group });
    expect([readFeed(), receiver.events(), await readMetrics()]).toEqual([events, events, after]);
  }

  const ofCommand = async (expires_in: number, steps: readonly [string, (id: string) => Promise<unknown>][]) => {
    const data = { id: expect.any(String), name: 'blink' };
    let id = '';
    const create = async () => {
      id = (await ctx.api.post(path('commands'), { name: 'blink', expires_in })).body.details.id;
    };
    await step(['queued'], create, { type: 'command.created', data });
    for (const [status, take] of steps)
      await step([status], () => take(id), { type: `command.${status}`, data: { id, name: 'blink' } });
  };
  const fetchQueued = () => own.get(`${path('commands')}?status=queued`);
  const answer = (status: string) => (id: string) => own.post(path('commands', id, 'result'), { status });
  await ofCommand(3600, [
    ['sent', fetchQueued],
    ['done', answer('done')],
  ]);
  await ofCommand(3600, [['failed', answer('failed')]]);
  await ofCommand(3600, [
    ['sent', fetchQueued],
    ['cancelled', (id) => ctx.api.delete(path('commands', id))],
  ]);
  await ofCommand(60, [['expired', async () => ctx.service.advance(61)]]);

  const ofConfig = (kind: string, version: string | null, take: () => Promise<unknown>, more: string[] = []) =>
    step([`config.${kind}`, ...more], take, { type: `config.${kind}`, data: { name: 'boot.cfg', version } });
  const desire = (version: string | null) => ctx.api.put(path('deviceconfigs', 'boot.cfg', 'desired'), { version });
  const report = (entry: object) => own.patch(path('state', 'reported'), { configs: { 'boot.cfg': entry } });
  await ofConfig('desired', '1', () => desire('1'));
  await step(['state.reported'], () => report({ version: '0' }));
  await ofConfig('refused', '1', () => report({ version: '1', error: 'no room' }), ['state.reported']);
  await ofConfig('applied', '1', () => report({ error: null }), ['state.reported']);
  await step(['state.reported'], () => report({ version: '1' }));
  const patched = { type: 'state.desired', data: { version: 2, changed: ['led'] } };
  await step(['state.desired'], () => ctx.api.patch(path('state'), { led: 1 }), patched);
  await ofConfig('desired', null, () => desire(null));
  await feed.close();
  await receiver.close();
});
