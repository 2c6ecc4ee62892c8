import { beforeEach, expect, it } from '@jest/globals';
import { repeat, summarize, useTestService } from '../../support/expect-status.js';
import { waitForEvents } from '../../support/logged-events.js';
import { pathOf, readCounters } from '../../support/service.js';

const ctx = await useTestService({ eventLog: true });
let group: string | undefined;
let device: string;
beforeEach(async () => {
  group ??= await ctx.fixtures.group();
  device = await ctx.fixtures.device({ id_group: group });
});

const statePath = (...rest: string[]) => pathOf('devices', device, 'state', ...rest);
const configPath = (...rest: string[]) => pathOf('devices', device, 'deviceconfigs', ...rest);
const desire = (patch: unknown, query = '', headers = {}) => ctx.api.patch(`${statePath()}${query}`, patch, headers);
const report = (patch: unknown) => ctx.api.patch(statePath('reported'), patch);
const show = async () => (await ctx.api.get(statePath())).body;
const deltaOf = async () => (await show()).delta;
const eventsOf = (resource: string, count: number) =>
  waitForEvents(ctx.api, `id_developer=${encodeURIComponent(device)}&resource=${resource}`, count);

async function upload(name: string, ...versions: string[]): Promise<void> {
  for (const version of versions)
    expect((await ctx.api.post(configPath(), { name, version, file: 'aGVsbG8=' })).status).toBe(201);
}

it('a new device has an empty state', async () => {
  const reply = await ctx.api.get(statePath());
  const empty = { desired: {}, reported: {}, delta: {}, desired_version: 0, reported_version: 0 };
  expect([reply.status, reply.body]).toEqual([200, empty]);
  expect(reply.headers.etag).toMatch(/^"0\.[\w-]+"$/);
  const again = await ctx.api.get(statePath(), { 'If-None-Match': `W/${reply.headers.etag}`.replace(/"$/, '-gzip"') });
  expect([again.status, again.text]).toEqual([304, '']);
});

it('merges patches into both sides, and shows what is left to do', async () => {
  const now = ctx.service.now();
  const first = await desire({ interval: 60, led: { on: true, colour: 'red' }, list: [1, { a: 2, b: 3 }], none: {} });
  const desired = { interval: 60, led: { on: true, colour: 'red' }, list: [1, { a: 2, b: 3 }], none: {} };
  const { none, ...delta } = desired;
  const details = { desired, reported: {}, delta, desired_version: 1, reported_version: 0, desired_at: now };
  expect([first.status, first.body]).toEqual([200, { code: 2005, message: 'state updated', details }]);
  expect(first.headers.etag).toMatch(/^"1\.[\w-]+"$/);
  expect(await show()).toEqual(details);

  const reported = { interval: 30, led: { on: true }, list: [1, { b: 3, a: 2 }], uptime: 5 };
  const second = await report(reported);
  expect(second.body.details).toEqual({
    ...details,
    reported,
    delta: { interval: 60, led: { colour: 'red' } },
    reported_version: 1,
    reported_at: now,
  });
  expect((await desire({ led: null, list: null, none: null })).body.details.desired).toEqual({ interval: 60 });
  expect((await report({ interval: 60, uptime: null })).body.details.delta).toEqual({});
  expect((await show()).reported).toEqual({ interval: 60, led: { on: true }, list: [1, { b: 3, a: 2 }] });
});

it.each([
  [{ a: [1, 2] }, { a: [1, 2, 3] }, { a: [1, 2] }],
  [{ a: [1, 2] }, { a: [1, 2] }, {}],
  [{ a: { b: 1, c: 2 } }, { a: 5 }, { a: { b: 1, c: 2 } }],
  [{ a: 5 }, { a: { b: 1 } }, { a: 5 }],
  [
    { a: 0, b: false, c: '' },
    { a: false, b: 0, c: [] },
    { a: 0, b: false, c: '' },
  ],
  [{ a: [null] }, { a: [0] }, { a: [null] }],
  [{ a: { b: {} } }, {}, {}],
  [
    { 'a.b': 1, '': 2, $where: 3, _bsontype: 'x' },
    { 'a.b': 1, '': 3 },
    { '': 2, $where: 3, _bsontype: 'x' },
  ],
])('of %j and %j the delta is %j', async (desired, reported, delta) => {
  await desire(desired);
  await report(reported);
  expect(await show()).toMatchObject({ desired, reported, delta });
  expect(await deltaOf()).toEqual(delta);
});

it('keeps __proto__ as a member like others', async () => {
  const text = '{"__proto__":{"a":1},"b":{"__proto__":2}}';
  expect((await ctx.api.patch(statePath(), text)).body.code).toBe(2005);
  const reply = await ctx.api.get(statePath());
  expect(reply.text).toContain('"desired":{"__proto__":{"a":1},"b":{"__proto__":2}}');
  expect(reply.text).toContain('"delta":{"__proto__":{"a":1},"b":{"__proto__":2}}');
  expect((await ctx.api.patch(statePath(), '{"__proto__":null,"b":null}')).body.details.desired).toEqual({});
});

it('every patch raises the version, and a wrong one changes nothing', async () => {
  expect((await desire({})).body.details.desired_version).toBe(1);
  const { etag = '' } = (await desire({ a: 1 }, '?version=1')).headers;
  expect((await desire({ a: 2 }, '', { 'If-Match': etag })).body.details.desired_version).toBe(3);
  for (const [query, headers] of [
    ['?version=2', {}],
    ['', { 'If-Match': etag }],
    ['?version=3', { 'If-Match': '"2"' }],
    ['?version=2', { 'If-Match': '"3"' }],
  ] as const) {
    const reply = await desire({ a: 9 }, query, headers);
    const body = { code: 4005, message: 'concurrency error', details: { version: 3 } };
    expect([query, reply.status, reply.body]).toEqual([query, 400, body]);
  }
  expect(summarize(await desire({ a: 9 }, '?version=x'))).toBe('4004 version');
  expect(summarize(await desire({ a: 9 }, '?other=1'))).toBe('4004 other');
  for (const tag of ['3', '"x"', '""', '"3", x'])
    expect([tag, summarize(await desire({ configs: 1 }, '', { 'If-Match': tag }))]).toEqual([tag, '4004 If-Match']);
  expect((await desire({ a: 3 }, '?version=3', { 'If-Match': 'W/"3.x-gzip", "7"' })).body.code).toBe(2005);
  expect((await desire({ a: 4 }, '', { 'If-Match': '*' })).body.code).toBe(2005);
  expect(await show()).toMatchObject({ desired: { a: 4 }, desired_version: 5, reported_version: 0 });
});

it('of concurrent patches of one version one succeeds, and no report is lost', async () => {
  const patches = await repeat(10, (index) => desire({ [`d${index}`]: index }, '?version=0'));
  expect(patches.map(summarize).sort()).toEqual(['2005', ...Array.from({ length: 9 }, () => '4005 version')]);
  await repeat(20, (index) => report({ [`r${index}`]: index }));
  const state = await show();
  expect(state).toMatchObject({ desired_version: 1, reported_version: 20 });
  expect(Object.keys(state.reported)).toHaveLength(20);
});

const deep = (levels: number): unknown => (levels === 0 ? 1 : { a: deep(levels - 1) });
const keys = (count: number, from = 0) =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`k${from + index}`, 1]));

it.each([
  ['6 levels', deep(6)],
  ['101 keys', keys(101)],
  ['a key of 101 characters', { ['k'.repeat(101)]: 1 }],
  ['a key with NUL', { 'a\0': 1 }],
  ['a removed key with NUL', { b: { 'a\0': null } }],
  ['a text with a lone surrogate', '{"a":"\\ud800"}'],
  ['a number beyond a double', '{"a":1e999}'],
  ['5,001 values', { a: Array.from({ length: 5000 }, () => 1) }],
  ['more than 32 KiB', { a: 'x'.repeat(32 * 1024 - 7) }],
])('refuses %s on both sides', async (_what, patch) => {
  expect(summarize(await desire(patch))).toBe('4003 desired');
  expect(summarize(await report(patch))).toBe('4003 reported');
  expect(await show()).toEqual({ desired: {}, reported: {}, delta: {}, desired_version: 0, reported_version: 0 });
});

it('takes what is just within the limits, and refuses what exceeds them with what is there', async () => {
  const deepest = { a: deep(3), z: { a: { a: { a: { b: null } } } } };
  for (const patch of [deepest, { z: null }, { a: 'x'.repeat(32 * 1024 - 8) }])
    expect((await desire(patch)).body.code).toBe(2005);
  expect(summarize(await desire({ b: 1 }))).toBe('4003 desired');
  // the whole is at fault, so the version does not matter
  expect(summarize(await desire({ b: 1 }, '?version=9'))).toBe('4003 desired');
  await report(keys(100));
  expect(summarize(await report({ more: 1 }))).toBe('4003 reported');
  const removed = Object.fromEntries(Object.keys(keys(100)).map((key) => [key, null]));
  expect((await report({ ...removed, ...keys(100, 200) })).body.details.reported).toEqual(keys(100, 200));
});

it.each(['[]', '1', 'null', '', '{'])('refuses %j as a patch', async (body) => {
  expect((await ctx.api.patch(statePath(), body)).body).toMatchObject({ code: 4001, message: 'nonexistent file' });
  expect((await ctx.api.patch(statePath('reported'), body)).body.code).toBe(4001);
});

it('configs are made desired by their own path only', async () => {
  for (const configs of [{}, null, { 'a.cfg': { version: '1' } }])
    expect(summarize(await desire({ configs, a: 1 }))).toBe('4003 configs');
  expect((await show()).desired_version).toBe(0);
});

it('a rejected path leaves the delta until desired changes there to another value', async () => {
  await desire({ a: { b: 1, c: 2 }, d: 3, 'e.f': 4, list: [1] });
  await report({ rejected: { 'a.b': 'too small', d: 'unknown', '/e.f': 'no', '/list/0': 'no part of it' } });
  expect(await deltaOf()).toEqual({ a: { c: 2 }, list: [1] });
  // the same value again, and a change elsewhere
  await desire({ a: { b: 1, c: 5 }, d: 3 });
  expect(await deltaOf()).toEqual({ a: { c: 5 }, list: [1] });
  const changed = (await desire({ a: { b: 7 }, 'e.f': null })).body.details;
  expect(changed.delta).toEqual({ a: { b: 7, c: 5 }, list: [1] });
  expect(changed.reported.rejected).toEqual({ d: 'unknown', '/list/0': 'no part of it' });
  expect(changed.reported_version).toBe(1);
  await report({ rejected: { a: 'the whole object' } });
  expect(await deltaOf()).toEqual({ list: [1] });
  await desire({ a: { c: 6 } });
  expect(await deltaOf()).toEqual({ a: { b: 7, c: 6 }, list: [1] });
  await report({ rejected: null });
  expect(await deltaOf()).toEqual({ a: { b: 7, c: 6 }, d: 3, list: [1] });
});

it.each([{ rejected: 5 }, { rejected: ['a'] }, { rejected: { a: 5 } }, { rejected: { '/a~2': 'no path' } }])(
  'refuses %j',
  async (patch) => {
    expect(summarize(await report(patch))).toBe('4003 rejected');
  },
);

it('each change of desired is one event with its version and keys', async () => {
  await report({ a: 0 });
  await desire({ a: 1, b: { c: 1 } });
  await desire({ a: 1, b: { c: 2 } });
  await desire({});
  await desire({ a: null }, '?version=1');
  await desire({ a: null });
  const events = await eventsOf('state', 4);
  expect(events.map(({ type, data }) => [type, data])).toEqual([
    ['state.desired', { version: 1, changed: ['a', 'b'] }],
    ['state.desired', { version: 2, changed: ['b'] }],
    ['state.desired', { version: 3, changed: [] }],
    ['state.desired', { version: 4, changed: ['a'] }],
  ]);
  expect(events[0]).toMatchObject({ user: 'alice', id_group: group, id_developer: device });
  expect(events[0]?.request_id).toMatch(/\S/);
});

it('delivers a version of a config: desired, applied, deployed', async () => {
  await upload('a.cfg', '1', '2');
  const reply = await ctx.api.put(configPath('a.cfg', 'desired'), { version: '1' });
  const entry = { version: '1', size: 5, checksum: 'aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d' };
  expect([reply.status, reply.body.code]).toEqual([200, 2005]);
  expect(reply.body.details).toMatchObject({ desired: { configs: { 'a.cfg': entry } }, desired_version: 1 });
  expect(await deltaOf()).toEqual({ configs: { 'a.cfg': entry } });
  const list = async () =>
    (await ctx.api.get(configPath())).body.result.map(
      ({ version, desired, date_deployed }: Record<string, unknown>) => [version, desired, date_deployed],
    );
  expect(await list()).toEqual([
    ['1', true, undefined],
    ['2', undefined, undefined],
  ]);
  expect((await ctx.api.get(`${configPath()}?format=csv&fields=version,desired`)).text).toBe(
    'version,desired\r\n1,true\r\n2,\r\n',
  );

  ctx.service.advance(60);
  const deployed = ctx.service.now();
  await report({ configs: { 'a.cfg': { version: '1' } } });
  await report({ configs: { 'a.cfg': { version: '1' } } });
  expect(await deltaOf()).toEqual({});
  expect(await list()).toEqual([
    ['1', true, deployed],
    ['2', undefined, undefined],
  ]);

  await ctx.api.put(configPath('a.cfg', 'desired'), { version: '2' });
  await report({ configs: { 'a.cfg': { version: '2', error: 'bad sum' } } });
  await report({ configs: { 'a.cfg': { version: '2', error: 'bad sum' } } });
  expect(await deltaOf()).toEqual({});
  await report({ configs: { 'a.cfg': { version: '2' } } });
  expect((await show()).reported.configs).toEqual({ 'a.cfg': { version: '2' } });
  await ctx.api.put(configPath('a.cfg', 'desired'), { version: null });
  expect((await show()).desired).toEqual({});
  expect((await eventsOf('config', 6)).map(({ type, data }) => [type, data])).toEqual([
    ['config.desired', { name: 'a.cfg', version: '1' }],
    ['config.applied', { name: 'a.cfg', version: '1' }],
    ['config.desired', { name: 'a.cfg', version: '2' }],
    ['config.refused', { name: 'a.cfg', version: '2' }],
    ['config.applied', { name: 'a.cfg', version: '2' }],
    ['config.desired', { name: 'a.cfg', version: null }],
  ]);
  expect((await eventsOf('state', 0)).length).toBe(0);
});

it('takes a reported version that is a number for its JSON text', async () => {
  await upload('n.cfg', '1.5');
  await ctx.api.put(configPath('n.cfg', 'desired'), { version: '1.5' });
  await report({ configs: { 'n.cfg': { version: 1.5 } } });
  expect(await deltaOf()).toEqual({});
  const applied = '/devices/?config=n.cfg&config_status=applied&config_reported=1.5';
  expect((await ctx.api.get(applied)).body.total_documents).toBe(1);
  await report({ configs: { 'n.cfg': { version: 1.5, error: 'bad sum' } } });
  expect((await eventsOf('config', 3)).map(({ type, data }) => `${type} ${data?.version}`)).toEqual([
    'config.desired 1.5',
    'config.applied 1.5',
    'config.refused 1.5',
  ]);
});

it('metrics count each change', async () => {
  const counts = () => readCounters(ctx.service, 'device_state_changes_total', 'type');
  await upload('m.cfg', '1');
  const before = await counts();
  await desire({ a: 1 });
  await ctx.api.put(configPath('m.cfg', 'desired'), { version: '1' });
  await report({ configs: { 'm.cfg': { version: '1', error: 'bad sum' } } });
  await report({ configs: { 'm.cfg': { error: null } } });
  await report({ configs: { 'm.cfg': { version: '1' } } });
  expect(summarize(await desire({ configs: {} }))).toBe('4003 configs');
  const after = await counts();
  expect(Object.fromEntries(Object.entries(after).map(([type, count]) => [type, count - (before[type] ?? 0)]))).toEqual(
    { 'state.desired': 1, 'state.reported': 3, 'config.desired': 1, 'config.applied': 1, 'config.refused': 1 },
  );
});

it('a version that is desired again is applied again', async () => {
  await upload('b.cfg', '1', '2');
  for (const version of ['1', '2', '1']) {
    await ctx.api.put(configPath('b.cfg', 'desired'), { version });
    await report({ configs: { 'b.cfg': { version: 'other' } } });
    await report({ configs: { 'b.cfg': { version } } });
  }
  expect((await eventsOf('config', 6)).map(({ type, data }) => `${type} ${data?.version}`)).toEqual(
    ['1', '2', '1'].flatMap((version) => [`config.desired ${version}`, `config.applied ${version}`]),
  );
});

it('a file or version that does not exist cannot be desired', async () => {
  await upload('c.cfg', '1', 'desired');
  const put = async (name: string, body: unknown) => summarize(await ctx.api.put(configPath(name, 'desired'), body));
  expect(await put('c.cfg', { version: '9' })).toBe('4003 version');
  expect(await put('c.cfg', {})).toBe('4003 version');
  expect(await put('c.cfg', { version: 1, other: 2 })).toBe('4003 other version');
  expect(await put('nothing', { version: '1' })).toBe('4041');
  expect(await put('nothing', { version: null })).toBe('4041');
  expect(await put('c.cfg', { version: null })).toBe('2005');
  // the path does not hide the version of that name
  expect((await ctx.api.get(configPath('c.cfg', 'desired'), { Accept: 'application/json' })).body).toMatchObject({
    version: 'desired',
  });
  expect(summarize(await ctx.api.get(configPath('a.cfg', 'desired')))).toBe('4041');
});
