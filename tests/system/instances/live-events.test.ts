import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { expect, it } from '@jest/globals';
import type { StoredEvent } from '../../../src/resources/event.js';
import { useTestService } from '../../support/expect-status.js';
import { createAppender } from '../../support/logged-events.js';
import { createKey, follow } from '../../support/sse.js';

const ctx = await useTestService();
const append = createAppender(ctx);
const urlOf = (query = '') => `${ctx.service.url}/events/live/${query}`;

it('sends events as the list shows them, and a comment with an id every 15 s', async () => {
  const { headers } = await createKey(ctx.service, { scope: 'read' });
  await append({});
  const feed = await follow(urlOf(), { ...headers, Accept: 'application/xml' });
  const silent = await follow(urlOf('?type=log.gap'), headers);
  expect([feed.status, feed.headers.get('content-type')]).toEqual([200, 'text/event-stream']);
  expect(feed.headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/);
  expect(feed.headers.get('content-encoding')).toBeNull();
  const [first, second] = await append({ type: 'device.created', id_group: 'G@acme' }, { type: 'topic.deleted' });
  const shown = ({ _id: id, account: _account, ...event }: StoredEvent) => ({ ...event, id });
  const messages = await feed.received(2);
  expect(messages).toEqual(
    [first, second].map((event) => ({ id: event?._id, event: event?.type, data: event && shown(event) })),
  );
  const { body } = await ctx.api.get('/events/?max=2&order=-1');
  expect(messages.map(({ data }) => data).reverse()).toEqual(body.result);
  // the comment of a feed without events has the id up to which all was sent
  await silent.contains(`:\nid: ${second?._id}\n\n`);
  expect(silent.messages).toEqual([]);
  await feed.close();
  await silent.close();
});

it.each([
  ['type=device.', ['device.created', 'device.status_changed']],
  ['type=device.created', ['device.created']],
  ['resource=streams', ['streams.deleted']],
  ['user=bob', ['topic.created']],
  ['id_group=G%40acme', ['device.created', 'device.status_changed']],
  ['id_group=G%40acme&id_asset=A%40acme', ['device.status_changed']],
  ['id_developer=Other%40acme', ['asset.deleted']],
  ['at_from=50&at_to=60', ['streams.deleted']],
  ['at=60', ['streams.deleted']],
])('filters by %s, in the log and live', async (query, types) => {
  const { headers } = await createKey(ctx.service);
  const [start] = await append({ type: 'project.created' });
  const events = [
    { type: 'device.created', id_group: 'G@acme' },
    { type: 'device.status_changed', id_group: 'G@acme', id_asset: 'A@acme' },
    { type: 'streams.deleted', at: 60 },
    { type: 'topic.created', user: 'bob' },
    { type: 'asset.deleted', id_developer: 'Other@acme' },
  ];
  const live = await follow(urlOf(`?${query}`), headers);
  await append(...events);
  expect((await live.received(types.length)).map(({ event }) => event)).toEqual(types);
  const stored = await follow(urlOf(`?${query}&after=${start?._id}`), headers);
  expect((await stored.received(types.length)).map(({ event }) => event)).toEqual(types);
  expect(stored.messages).toEqual(live.messages);
  // what else was wanted would have come before this
  const [last] = await append({ ...events.find(({ type }) => type === types[0]), data: { is: 'last' } });
  for (const feed of [live, stored]) {
    expect((await feed.received(types.length + 1)).slice(types.length).map(({ id }) => id)).toEqual([last?._id]);
    await feed.close();
  }
});

it('begins behind all events of the last acknowledged change, however many they are', async () => {
  const { headers } = await createKey(ctx.service);
  const feed = await follow(urlOf(), headers);
  await feed.contains('\n\n');
  // the log is written later than the change
  await append({ _id: `${feed.lastId().slice(0, 16)}rr`, type: 'device.deleted' });
  const [next] = await append({});
  expect((await feed.received(1)).map(({ id }) => id)).toEqual([next?._id]);
  await feed.close();
});

it('refuses what is malformed, in the format that is asked for', async () => {
  const { api, service } = ctx;
  const problem = async (path: string, headers = {}) => {
    const { status, body } = await api.get(path, headers);
    return [status, body.code, body.details];
  };
  const after = 'must be the id of an event, or 0';
  expect(await problem('/events/live/?max=1')).toEqual([400, 4004, { max: 'unknown parameter' }]);
  expect(await problem('/events/live/?after=12')).toEqual([400, 4004, { after }]);
  expect(await problem('/events/live/', { 'Last-Event-ID': 'zz' })).toEqual([400, 4004, { 'Last-Event-ID': after }]);
  expect(await problem('/events/live/?at_from=2&at_to=1')).toEqual([400, 4004, { at_from: 'must not be after at_to' }]);
  expect(await problem('/devices/noat/streams/live/')).toEqual([
    400,
    4004,
    { device_id_developer: 'must be an identifier such as name@account' },
  ]);
  expect(await problem('/devices/none%40acme/streams/live/')).toEqual([404, 4041, {}]);
  const xml = await api.get('/devices/none%40acme/streams/live/', { Accept: 'application/xml' });
  expect([xml.status, xml.headers['content-type']]).toEqual([404, 'application/xml; charset=utf-8']);
  const device = await service.client({ scope: 'stream' });
  expect((await device.get('/events/live/')).body.code).toBe(4031);
  expect((await service.clientWith(undefined).get('/streams/live/')).body.code).toBe(4011);
  expect((await api.post('/events/live/')).body.code).toBe(4051);
  const head = await api.send('HEAD', '/events/live/');
  expect([head.status, head.headers['content-type'], head.text]).toEqual([200, 'text/event-stream', undefined]);
});

it('allows an account 100 live connections, and others theirs', async () => {
  const { service } = ctx;
  const { headers } = await createKey(service, { account: 'crowd' });
  const feeds = await Promise.all(
    Array.from({ length: 100 }, (_, at) => follow(at % 2 ? urlOf() : `${service.url}/streams/live/`, headers)),
  );
  expect(feeds.map(({ status }) => status)).toEqual(Array(100).fill(200));
  const open = async () => [
    await readMetric('live_connections{kind="events"}'),
    await readMetric('live_connections{kind="streams"}'),
  ];
  while ((await open())[0] !== 50);
  expect(await open()).toEqual([50, 50]);
  const crowd = await service.client({ account: 'crowd' });
  const refused = await crowd.get('/events/live/');
  expect([refused.status, refused.body.code, refused.headers['retry-after']]).toEqual([503, 5033, '1']);
  const other = await follow(urlOf(), (await createKey(service)).headers);
  expect(other.status).toBe(200);
  // live feeds take no slot of the requests in work
  expect((await crowd.get('/projects/')).status).toBe(200);
  await Promise.all([...feeds, other].map((feed) => feed.close()));
  while ((await open()).some((number) => number > 0));
  const again = await follow(urlOf(), headers);
  expect(again.status).toBe(200);
  await again.close();
});

async function readMetric(name: string): Promise<number> {
  const { text } = await ctx.service.clientWith(undefined).get('/metrics');
  const line = text.split('\n').find((candidate) => candidate.startsWith(`${name} `));
  return Number(line?.split(' ').at(-1));
}

it('ends the feeds of a key that is revoked, also by another process, or that expires', async () => {
  const { service } = ctx;
  const revoked = await createKey(service);
  const removed = await createKey(service);
  const expiring = await createKey(service, { expires_at: service.now() + 100 });
  const kept = await follow(urlOf(), (await createKey(service)).headers);
  const feeds = await Promise.all([revoked, removed, expiring].map(({ headers }) => follow(urlOf(), headers)));
  expect((await ctx.api.delete(`/apikeys/${revoked.id}/`)).body.code).toBe(2004);
  await service.db.collection('apikeys').deleteOne({ id: removed.id });
  service.advance(100);
  await Promise.all(feeds.map(({ ended }) => ended));
  const [event] = await append({});
  expect((await kept.received(1)).map(({ id }) => id)).toEqual([event?._id]);
  await kept.close();
});

it('ends the feed of a reader that is too far behind, which resumes by id', async () => {
  const { service } = ctx;
  const { headers } = await createKey(service);
  const { hostname, port } = new URL(service.url);
  const socket = connect(Number(port), hostname);
  const fields = Object.entries({ Host: 'x', ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.write(`GET /events/live/ HTTP/1.1\r\n${fields.join('')}\r\n`);
  // from its first comment on it is sent what comes; before, it would be sent what is stored, however slow it is
  await once(socket, 'readable');
  const overflows = await readMetric('live_overflows_total{kind="events"}');
  const text = 'x'.repeat(500_000);
  const appended: StoredEvent[] = [];
  const other = await follow(urlOf('?type=topic.'), headers);
  // more than the buffers of both sockets hold, which may grow to 40 MiB
  for (let n = 0; n < 12; n++)
    appended.push(...(await append(...Array.from({ length: 10 }, () => ({ data: { text } })))));
  appended.push(...(await append({ type: 'topic.created' })));
  // everything was handed over to the feeds before this one is read
  await other.received(1);
  await other.close();
  let received = '';
  socket.on('data', (chunk) => {
    received += chunk.toString('latin1');
  });
  while (!received.slice(-200).includes('event: overflow\ndata: {}\n\n')) await once(socket, 'data');
  await expect(readMetric('live_overflows_total{kind="events"}')).resolves.toBe(overflows + 1);
  socket.destroy();
  const ids = [...received.matchAll(/^id: (\w+)\nevent: device/gm)].map(([, id = '']) => id);
  expect(ids.length).toBeLessThan(appended.length);
  expect(ids).toEqual(appended.slice(0, ids.length).map(({ _id }) => _id));
  const feed = await follow(urlOf(), { ...headers, 'Last-Event-ID': ids.at(-1) ?? '' });
  const rest = await feed.received(appended.length - ids.length);
  expect([...ids, ...rest.map(({ id }) => id)]).toEqual(appended.map(({ _id }) => _id));
  await feed.close();
});

it('is read by curl', async () => {
  const { key } = await createKey(ctx.service);
  const curl = spawn('curl', ['-sN', '-H', `service.apikey: ${key}`, urlOf('?type=topic.')]);
  let printed = '';
  curl.stdout.on('data', (chunk) => {
    printed += chunk;
  });
  while (!printed.includes('\n\n')) await once(curl.stdout, 'data');
  const [event] = await append({ type: 'topic.created' });
  while (!/\ndata: .*\n\n/.test(printed)) await once(curl.stdout, 'data');
  expect(printed).toContain(`id: ${event?._id}\nevent: topic.created\ndata: {"type":"topic.created",`);
  curl.kill();
  await once(curl, 'close');
});
