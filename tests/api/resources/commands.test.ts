import { beforeEach, describe, expect, it } from '@jest/globals';
import { removeOldCommands } from '../../../src/commands/expiry.js';
import { repeat, summarize, useTestService } from '../../support/expect-status.js';
import { waitForEvents } from '../../support/logged-events.js';
import { waitUntil } from '../../support/process.js';
import { type Api, pathOf, type Reply, readCounters } from '../../support/service.js';
import { createKey, follow } from '../../support/sse.js';

const ctx = await useTestService({ eventLog: true });
let group: string | undefined;
let device: string;
beforeEach(async () => {
  group ??= await ctx.fixtures.group();
  device = await ctx.fixtures.device({ id_group: group });
});

const path = (...rest: string[]) => pathOf('devices', device, 'commands', ...rest);
async function send(fields: object = {}): Promise<string> {
  const reply = await ctx.api.post(path(), { name: 'restart', ...fields });
  if (reply.body.code !== 2001) throw new Error(reply.text);
  return reply.body.details.id;
}
const show = async (id: string) => (await ctx.api.get(path(id))).body;
const answer = (id: string, body: unknown) => ctx.api.post(path(id, 'result'), body);
const statusOf = async (id: string) => (await show(id)).status;
const namesOf = ({ body }: Reply) => body.result.map(({ name }: { name: string }) => name);

/** The kinds of the events of the device, oldest first. */
async function eventsOf(count: number): Promise<string[]> {
  const events = await waitForEvents(ctx.api, `id_developer=${encodeURIComponent(device)}&resource=command`, count);
  return events.map(({ type, data }) => `${type} ${data?.name}`);
}

it('queues a command', async () => {
  const now = ctx.service.now();
  const reply = await ctx.api.post(path(), { name: 'set', data: { level: 3, $where: { a: [null] } }, expires_in: 60 });
  const { id } = reply.body.details;
  expect([reply.status, reply.body]).toEqual([200, { code: 2001, message: 'command created', details: { id } }]);
  expect(reply.headers.location).toBe(path(id));
  const stored = {
    id,
    name: 'set',
    data: { level: 3, $where: { a: [null] } },
    status: 'queued',
    device,
    expires_at: now + 60,
    owner: 'alice',
    updater: 'alice',
    created_at: now,
    updated_at: now,
  };
  expect(await show(id)).toEqual(stored);
  expect((await ctx.api.get(path())).body).toEqual({ total_documents: 1, result: [stored] });
  expect(await statusOf(await send())).toBe('queued');
  expect((await show(await send())).expires_at).toBe(now + 86_400);
});

it.each([
  [{}, '4003 name'],
  [{ name: '' }, '4003 name'],
  [{ name: 'n'.repeat(101) }, '4003 name'],
  [{ name: 'n', data: [] }, '4003 data'],
  [{ name: 'n', data: { a: 'x'.repeat(32 * 1024 - 7) } }, '4003 data'],
  [{ name: 'n', expires_in: 0 }, '4003 expires_in'],
  [{ name: 'n', expires_in: 1.5 }, '4003 expires_in'],
  [{ name: 'n', expires_in: 30 * 86_400 + 1 }, '4003 expires_in'],
  [{ name: 'n', other: 1 }, '4003 other'],
  [[], '4001'],
])('refuses %j', async (body, expected) => {
  expect(summarize(await ctx.api.post(path(), body))).toBe(expected);
});

it('takes what is just within the limits', async () => {
  await send({ name: 'n'.repeat(100), data: { a: 'x'.repeat(32 * 1024 - 8) }, expires_in: 30 * 86_400 });
  await send({ expires_in: 1 });
});

it('lists newest first, filters and sorts', async () => {
  await send({ name: 'a' });
  ctx.service.advance(10);
  const from = ctx.service.now();
  const second = await send({ name: 'b' });
  await send({ name: 'a' });
  await answer(second, { status: 'failed' });
  expect(namesOf(await ctx.api.get(path()))).toEqual(['a', 'b', 'a']);
  expect(namesOf(await ctx.api.get(`${path()}?order=1`))).toEqual(['a', 'b', 'a']);
  expect(namesOf(await ctx.api.get(`${path()}?status=failed`))).toEqual(['b']);
  expect(namesOf(await ctx.api.get(`${path()}?name=a&max=1`))).toEqual(['a']);
  expect(namesOf(await ctx.api.get(`${path()}?created_at_from=${from}`))).toEqual(['a', 'b']);
  expect(namesOf(await ctx.api.get(`${path()}?sort=name`))).toEqual(['a', 'a', 'b']);
  expect(summarize(await ctx.api.get(`${path()}?status=open`))).toBe('4004 status');
});

it('an answer ends a command, before and after it was sent, and may be repeated', async () => {
  const id = await send({ name: 'a' });
  const reply = await answer(id, { id, status: 'done', data: { took: 1 } });
  expect([reply.status, reply.body]).toEqual([200, { code: 2005, message: 'command updated', details: {} }]);
  const now = ctx.service.now();
  expect(await show(id)).toMatchObject({ status: 'done', result: { took: 1 }, finished_at: now });
  expect(summarize(await answer(id, { status: 'done', data: { took: 2 } }))).toBe('2005');
  expect(summarize(await answer(id, { status: 'failed' }))).toBe('4003 status');
  expect((await show(id)).result).toEqual({ took: 1 });
  expect(summarize(await ctx.api.delete(path(id)))).toBe('4003 status');
  expect(await eventsOf(2)).toEqual(['command.created a', 'command.done a']);
});

it('a wrong answer changes nothing', async () => {
  const id = await send();
  const other = await send();
  expect(summarize(await answer(id, { status: 'queued' }))).toBe('4003 status');
  expect(summarize(await answer(id, {}))).toBe('4003 status');
  expect(summarize(await answer(id, { id: other, status: 'done' }))).toBe('4003 id');
  expect(summarize(await answer(id, { status: 'done', data: 5 }))).toBe('4003 data');
  expect(summarize(await answer(id, { status: 'done', data: { a: 'x'.repeat(32 * 1024) } }))).toBe('4003 data');
  expect(summarize(await answer('00000000-0000-7000-8000-000000000000', { status: 'done' }))).toBe('4041');
  expect(summarize(await answer('nothing', { status: 'done' }))).toBe('4041');
  expect(await statusOf(id)).toBe('queued');
});

it('cancels an open command, once', async () => {
  const id = await send({ name: 'a' });
  expect((await ctx.api.delete(path(id))).body).toEqual({ code: 2004, message: 'command cancelled', details: {} });
  expect(await show(id)).toMatchObject({ status: 'cancelled', finished_at: ctx.service.now() });
  expect(summarize(await ctx.api.delete(path(id)))).toBe('4003 status');
  expect(summarize(await answer(id, { status: 'done' }))).toBe('4003 status');
  expect(await eventsOf(2)).toEqual(['command.created a', 'command.cancelled a']);
});

it('of concurrent ends one takes place', async () => {
  const id = await send({ name: 'a' });
  const replies = await Promise.all([
    ctx.api.delete(path(id)),
    answer(id, { status: 'done' }),
    answer(id, { status: 'failed' }),
    ctx.api.delete(path(id)),
  ]);
  expect(replies.filter(({ status }) => status === 200)).toHaveLength(1);
  expect((await eventsOf(2))[1]).toBe(`command.${await statusOf(id)} a`);
});

it('expires by the clock', async () => {
  const id = await send({ name: 'a', expires_in: 60 });
  const longer = await send({ name: 'b', expires_in: 3600 });
  ctx.service.advance(61);
  await waitUntil(async () => (await statusOf(id)) === 'expired');
  expect(await statusOf(longer)).toBe('queued');
  expect(summarize(await answer(id, { status: 'done' }))).toBe('4003 status');
  expect(await eventsOf(3)).toEqual(['command.created a', 'command.created b', 'command.expired a']);
  ctx.service.advance(30 * 86_400 + 120);
  await removeOldCommands(ctx.service.db, ctx.service.now());
  expect((await ctx.api.get(path())).body.total_documents).toBe(1);
  expect(summarize(await ctx.api.get(path(id)))).toBe('4041');
});

/** Queues commands, ten at a time. */
async function fill(commands: string, count: number): Promise<void> {
  for (let queued = 0; queued < count; queued += 10)
    await repeat(10, async () => expect(summarize(await ctx.api.post(commands, { name: 'n' }))).toBe('2001'));
}

it('a device has at most 100 open commands', async () => {
  await fill(path(), 90);
  const ids = await repeat(15, () => ctx.api.post(path(), { name: 'n' }));
  expect(ids.map(summarize).filter((outcome) => outcome !== '2001')).toEqual(
    Array.from({ length: 5 }, () => '4003 name'),
  );
  await ctx.api.delete(path(ids.find(({ status }) => status === 200)?.body.details.id));
  await send();
  expect(summarize(await ctx.api.post(path(), { name: 'n' }))).toBe('4003 name');
});

it('other keys only look at queued commands', async () => {
  await send({ name: 'a' });
  expect(namesOf(await ctx.api.get(`${path()}?status=queued`))).toEqual(['a']);
  expect(namesOf(await ctx.api.get(`${path()}?status=queued`))).toEqual(['a']);
});

it('a feed has the open commands first, then new ones', async () => {
  const first = await send({ name: 'a', data: { n: 1 } });
  const cancelled = await send({ name: 'gone' });
  await ctx.api.delete(path(cancelled));
  const key = await createKey(ctx.service, { scope: 'read' });
  const feed = await follow(`${ctx.service.url}${path('live')}`, key.headers);
  const commands = () => feed.messages.filter(({ event }) => event === 'command').map(({ data }) => data);
  await waitUntil(() => commands().length === 1);
  const second = await send({ name: 'b' });
  await waitUntil(() => commands().length === 2);
  const expires_at = ctx.service.now() + 86_400;
  expect(commands()).toEqual([
    { id: first, name: 'a', data: { n: 1 }, expires_at },
    { id: second, name: 'b', expires_at },
  ]);
  expect(await statusOf(first)).toBe('queued');
  await feed.close();
});

it('metrics count each transition once', async () => {
  const counts = () => readCounters(ctx.service, 'commands_total', 'status');
  const before = await counts();
  const issued = await ctx.api.post('/apikeys/', { username: 'pump', scope: 'device', id_device: device });
  const ids = [await send(), await send(), await send()] as const;
  const late = await send({ name: 'late', expires_in: 60 });
  await ctx.service.clientWith(issued.body.details.key).get(`${path()}?status=queued&max=2`);
  for (const status of ['done', 'done', 'failed']) await answer(ids[0], { status });
  await answer(ids[1], { status: 'failed' });
  for (const _ of [1, 2]) await ctx.api.delete(path(ids[2]));
  ctx.service.advance(61);
  await waitUntil(async () => (await statusOf(late)) === 'expired');
  const changes = async () =>
    Object.entries(await counts()).map(([status, count]) => [status, count - (before[status] ?? 0)] as const);
  await waitUntil(async () => new Map(await changes()).get('expired') === 1);
  expect(Object.fromEntries(await changes())).toEqual({
    ...{ queued: 4, sent: 2, done: 1, failed: 1, expired: 1, cancelled: 1 },
  });
});

describe('a key of scope device', () => {
  let key: string;
  let own: Api;
  beforeEach(async () => {
    const reply = await ctx.api.post('/apikeys/', { username: 'pump', scope: 'device', id_device: device });
    ({ key } = reply.body.details);
    own = ctx.service.clientWith(key);
  });

  it('fetches queued commands once, oldest first', async () => {
    const ids = [await send({ name: 'a' }), await send({ name: 'b', data: { n: 1 } }), await send({ name: 'a' })];
    await send({ name: 'late', expires_in: 1 });
    ctx.service.advance(2);
    expect((await own.get(path())).body.total_documents).toBe(4);
    expect(await statusOf(ids[0] ?? '')).toBe('queued');
    const now = ctx.service.now();
    const first = await own.get(`${path()}?status=queued&max=1`);
    expect(first.body.total_documents).toBe(3);
    expect(first.body.result).toEqual([expect.objectContaining({ id: ids[0], status: 'sent', sent_at: now })]);
    expect(namesOf(await own.get(`${path()}?status=queued&name=b&fields=name`))).toEqual(['b']);
    expect((await own.get(`${path()}?status=queued`)).body.result.map(({ id }: { id: string }) => id)).toEqual([
      ids[2],
    ]);
    expect((await own.get(`${path()}?status=queued`)).body).toEqual({ total_documents: 0, result: [] });
    for (const id of ids) expect(await show(id)).toMatchObject({ status: 'sent', updater: 'pump' });
    expect(summarize(await own.post(path(ids[0] ?? '', 'result'), { status: 'done' }))).toBe('2005');
    expect((await eventsOf(8)).filter((event) => event.startsWith('command.sent'))).toHaveLength(3);
  });

  it('follows: what is written to it is sent, and open commands come again', async () => {
    const first = await send({ name: 'a' });
    const headers = { 'service.apikey': key };
    const feed = await follow(`${ctx.service.url}${path('live')}`, headers);
    await waitUntil(async () => (await statusOf(first)) === 'sent');
    const second = await send({ name: 'b' });
    await waitUntil(async () => (await statusOf(second)) === 'sent');
    await feed.received(2);
    await feed.close();
    await own.post(path(first, 'result'), { status: 'failed' });
    const again = await follow(`${ctx.service.url}${path('live')}`, headers);
    await waitUntil(() => again.messages.some(({ event }) => event === 'command'));
    const namesOfFeed = ({ messages }: typeof feed) =>
      messages.filter(({ event }) => event === 'command').map(({ data }) => (data as { name: string }).name);
    expect([namesOfFeed(feed), namesOfFeed(again)]).toEqual([['a', 'b'], ['b']]);
    await again.close();
    expect((await eventsOf(5)).toSorted()).toEqual([
      ...['command.created a', 'command.created b', 'command.failed a', 'command.sent a', 'command.sent b'],
    ]);
  });
});

describe('to many devices', () => {
  const many = (query: string, body: object = { name: 'restart', data: { delay: 5 }, expires_in: 60 }) =>
    ctx.api.post(`/devices/commands/${query}`, body);
  const inGroup = (id: string) => `?id_group=${encodeURIComponent(id)}`;

  it('queues one for each that matches, once it is confirmed', async () => {
    const id_group = await ctx.fixtures.group();
    const ids = await repeat(3, () => ctx.fixtures.device({ id_group }));
    const query = inGroup(id_group);
    expect((await many(query)).body).toEqual({ code: 2006, message: 'would change', details: { matched: 3 } });
    expect((await many(`${query}&confirm=2`)).body).toMatchObject({ code: 4005, details: { matched: 3 } });
    for (const id of ids) expect((await ctx.api.get(pathOf('devices', id, 'commands'))).body.total_documents).toBe(0);
    const reply = await many(`${query}&confirm=3`);
    expect([reply.status, reply.body]).toEqual([
      200,
      { code: 2001, message: 'command created', details: { matched: 3, changed: 3 } },
    ]);
    const fields = { name: 'restart', data: { delay: 5 }, status: 'queued', expires_at: ctx.service.now() + 60 };
    for (const id of ids)
      expect((await ctx.api.get(pathOf('devices', id, 'commands'))).body.result).toEqual([
        expect.objectContaining({ ...fields, device: id, owner: 'alice' }),
      ]);
    const [event] = await waitForEvents(
      ctx.api,
      `type=command.created&id_developer=${encodeURIComponent(ids[0] ?? '')}`,
      1,
    );
    expect(event).toMatchObject({ user: 'alice', id_group, data: { name: 'restart', id: expect.any(String) } });
    expect((await many(`?type=nothing&confirm=0`)).body.details).toEqual({ matched: 0, changed: 0 });
  });

  it('refuses what is wrong', async () => {
    expect(summarize(await many(''))).toBe('4004 filter');
    expect(summarize(await many('?confirm=1'))).toBe('4004 filter');
    for (const param of ['max', 'sort', 'order', 'offset', 'fields', 'after'])
      expect(summarize(await many(`?enabled=1&${param}=1`))).toBe(`4004 ${param}`);
    expect(summarize(await many('?enabled=1', {}))).toBe('4003 name');
    expect(summarize(await many('?enabled=1&confirm=1', { name: 'a', expires_in: 0 }))).toBe('4003 expires_in');
  });

  it('queues none if one has 100 open ones', async () => {
    const id_group = await ctx.fixtures.group();
    const [full = '', free = ''] = await repeat(2, () => ctx.fixtures.device({ id_group }));
    await fill(pathOf('devices', full, 'commands'), 100);
    expect(summarize(await many(`${inGroup(id_group)}&confirm=2`))).toBe('4003 name');
    expect((await ctx.api.get(pathOf('devices', free, 'commands'))).body.total_documents).toBe(0);
  });

  it('reaches no further than a limited key', async () => {
    const id_group = await ctx.fixtures.group();
    await ctx.fixtures.device({ id_group });
    const issued = await ctx.api.post('/apikeys/', { username: 'hall', scope: 'write', id_group });
    const api = ctx.service.clientWith(issued.body.details.key);
    const reply = await api.post('/devices/commands/?enabled=1&confirm=1', { name: 'n' });
    expect(reply.body.details).toEqual({ matched: 1, changed: 1 });
    expect((await ctx.api.get(path())).body.total_documents).toBe(0);
    expect(summarize(await api.post(path(), { name: 'n' }))).toBe('4041');
    expect(summarize(await api.get(path()))).toBe('4041');
  });
});
