import { expect, it } from '@jest/globals';
import { useTestService } from '../support/expect-status.js';
import { openMongoProxy } from '../support/mongo-proxy.js';
import { pathOf, startTestService } from '../support/service.js';
import { createKey, follow } from '../support/sse.js';

const ctx = await useTestService();
const send = (device: string, streams: object | object[]) =>
  ctx.api.post(pathOf('devices', device, 'streams'), streams);

it('sends the streams that are acknowledged after the headers, as the list shows them', async () => {
  const { service, api, fixtures } = ctx;
  const device = await fixtures.device();
  const { headers } = await createKey(service);
  await send(device, { at: 1, data: { before: true } });
  const feed = await follow(`${service.url}${pathOf('devices', device, 'streams')}live/`, headers);
  expect(feed.status).toBe(200);
  expect(feed.headers.get('content-type')).toBe('text/event-stream');
  await send(device, [
    { at: 2, data: { text: 'a\nb\r\u2028' } },
    { at: 3, _t: 'sta', data: { x: 1.5 } },
  ]);
  const [first, second] = await feed.received(2);
  const list = await api.get(`${pathOf('devices', device, 'streams')}?at_from=2`);
  expect([first?.data, second?.data]).toEqual(list.body.result);
  expect(first?.data.data).toEqual({ text: 'a\nb\r\u2028' });
  expect([first?.event, second?.event]).toEqual(['stream', 'stream']);
  expect(first?.id).toMatch(/^[0-9a-f]{16}[0-9a-z]{2}$/);
  expect((second?.id ?? '') > (first?.id ?? '')).toBe(true);
  await feed.close();
});

it('filters by device, kind and what is above the device, where it is moved to', async () => {
  const { service, api, fixtures } = ctx;
  const { headers } = await createKey(service);
  const project = await fixtures.project();
  const id_service = await fixtures.service({ id_project: project });
  const [group, otherGroup] = [await fixtures.group({ id_service }), await fixtures.group()];
  const asset = await fixtures.asset({ id_group: group });
  const [below, beside] = [await fixtures.device({ id_asset: asset }), await fixtures.device({ id_group: otherGroup })];
  const of = (query: Record<string, string>, more = {}) =>
    follow(`${service.url}/streams/live/?${new URLSearchParams(query)}`, { ...headers, ...more });
  const kinds: [Record<string, string>, string[]][] = [
    [{}, ['below str', 'below sta', 'beside str']],
    [{ device: below }, ['below str', 'below sta']],
    [{ _t: 'str' }, ['below str', 'beside str']],
    [{ id_asset: asset, _t: 'sta' }, ['below sta']],
    [{ id_group: group }, ['below str', 'below sta']],
    [{ id_service, id_project: project }, ['below str', 'below sta']],
    [{ id_project: project, id_group: otherGroup }, []],
    [{ id_group: 'none@acme' }, []],
  ];
  const anchor = await follow(`${service.url}/streams/live/`, headers);
  await send(beside, { data: { name: 'anchor' } });
  const [start] = await anchor.received(1);
  const feeds = await Promise.all(kinds.map(([query]) => of(query)));
  await send(below, { data: { name: 'below str' } });
  await send(below, { _t: 'sta', data: { name: 'below sta' } });
  await send(beside, { data: { name: 'beside str' } });
  // a feed that has sent the last one has sent all before it
  await feeds[0]?.received(3);
  const resumed = await Promise.all(kinds.map(([query]) => of(query, { 'Last-Event-ID': start?.id ?? '' })));
  for (const [at, [, names]] of kinds.entries()) {
    for (const feed of [feeds[at], resumed[at]]) {
      await feed?.received(names.length);
      expect(feed?.messages.map(({ data }) => data.data.name)).toEqual(names);
    }
  }
  const inOther = await of({ id_group: otherGroup });
  expect((await api.put(pathOf('devices', below), { id_group: otherGroup })).body.code).toBe(2005);
  await send(below, { data: { name: 'moved' } });
  await feeds[0]?.received(4);
  expect((await inOther.received(1))[0]?.data.data.name).toBe('moved');
  for (const feed of [...feeds.slice(4, 8), ...resumed.slice(4, 8)])
    expect(feed?.messages.map(({ data }) => data.data.name)).not.toContain('moved');
  await Promise.all([anchor, inOther, ...feeds, ...resumed].map((feed) => feed.close()));
});

it('hands a burst to a reader that keeps up', async () => {
  const { service, fixtures } = ctx;
  const device = await fixtures.device();
  const { headers } = await createKey(service);
  const feed = await follow(`${service.url}/streams/live/?device=${encodeURIComponent(device)}`, headers);
  const text = 'x'.repeat(500);
  const batches = Array.from({ length: 6 }, (_, batch) =>
    Array.from({ length: 1000 }, (_entry, at) => ({ data: { n: batch * 1000 + at, text } })),
  );
  const replies = await Promise.all(batches.map((batch) => send(device, batch)));
  expect(replies.map(({ body }) => body.code)).toEqual(Array(6).fill(2001));
  const numbers = (await feed.received(6000)).map(({ data }) => data.data.n);
  expect(numbers.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 6000 }, (_, n) => n));
  await feed.close();
});

it('stays open and silent when its device is deleted', async () => {
  const { service, api, fixtures } = ctx;
  const [device, other] = [await fixtures.device(), await fixtures.device()];
  const { headers } = await createKey(service);
  const feed = await follow(`${service.url}${pathOf('devices', device, 'streams')}live/`, headers);
  const all = await follow(`${service.url}/streams/live/`, headers);
  await send(device, { data: { n: 1 } });
  await feed.received(1);
  expect((await api.delete(pathOf('devices', device))).body.code).toBe(2004);
  expect((await api.get(`${pathOf('devices', device, 'streams')}live/`)).body.code).toBe(4041);
  await send(other, { data: { n: 2 } });
  await all.received(2);
  expect(feed.messages).toHaveLength(1);
  await feed.close();
  await all.close();
});

it('ends when the service stops, so that stopping does not wait for readers', async () => {
  const service = await startTestService();
  const { headers } = await createKey(service);
  const feeds = await Promise.all(
    ['/streams/live/', '/events/live/'].map((path) => follow(service.url + path, headers)),
  );
  expect(feeds.map(({ status }) => status)).toEqual([200, 200]);
  await service.stop();
  await Promise.all(feeds.map(({ ended }) => ended));
});

it('answers at once and sends what follows an id, however long the database looks for it', async () => {
  const device = await ctx.fixtures.device();
  const { headers } = await createKey(ctx.service);
  const proxy = await openMongoProxy();
  const uri = proxy.uriOf(ctx.service.db.collection('devices').db.databaseName);
  const service = await startTestService({ uri });
  await service.db.attempted;
  const open = (more = {}) =>
    follow(`${service.url}${pathOf('devices', device, 'streams')}live/`, { ...headers, ...more });
  const anchor = await open();
  await send(device, { data: { n: 1 } });
  const [start] = await anchor.received(1);
  await send(device, { data: { n: 2 } });
  await anchor.received(2);
  const held = proxy.hold('$changeStream');
  const resumed = await open({ 'Last-Event-ID': start?.id ?? '' });
  expect([resumed.status, resumed.messages, held.countHeld()]).toEqual([200, [], 1]);
  held.release();
  expect((await resumed.received(1))[0]?.data.data).toEqual({ n: 2 });
  // closing does not wait for a search whose reader has left
  proxy.hold('$changeStream');
  const leaving = await open({ 'Last-Event-ID': start?.id ?? '' });
  expect(leaving.status).toBe(200);
  await Promise.all([anchor, resumed, leaving].map((feed) => feed.close()));
  await service.stop();
  await proxy.close();
});
