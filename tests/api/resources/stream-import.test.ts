import { beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { useTestService } from '../../support/expect-status.js';
import { sendImport } from '../../support/import.js';
import { pathOf } from '../../support/service.js';

type Json = Record<string, unknown>;

/** Streams that come in by import (reference/import.md#streams). */
const ctx = await useTestService();
let id_group = '';
let device = '';
let path = '';

beforeAll(async () => {
  id_group = await ctx.fixtures.group();
});
beforeEach(async () => {
  device = await ctx.fixtures.device({ id_group });
  path = pathOf('devices', device, 'streams');
});

const totals = (created: number, skipped: number, failed: number) => ({ created, updated: 0, skipped, failed });
const listed = async (from = path): Promise<Json[]> => (await ctx.api.get(`${from}?sort=at`)).body.result;
const codes = ({ lines }: { lines: { code: number }[] }) => lines.map(({ code }) => code);
const stream = (at: unknown, n: number, more: Json = {}) => ({ resource: 'stream', device, at, data: { n }, ...more });

it('stores streams of NDJSON, and leaves out what is there, stored or in a line before', async () => {
  await ctx.api.post(path, { at: 10, data: { n: 1 } });
  const lines = [stream(10, 2), stream('1970-01-01T00:00:20Z', 3), stream(20, 4), stream(20, 5, { _t: 'sta' })];
  const answer = await sendImport(ctx.api, lines);
  expect(answer.lines).toEqual([
    { line: 1, code: 2007 },
    { line: 2, code: 2001 },
    { line: 3, code: 2007 },
    { line: 4, code: 2001 },
  ]);
  expect(answer.totals).toEqual(totals(2, 2, 0));
  expect(await listed()).toMatchObject([
    { _t: 'str', at: 10, data: { n: 1 }, protocol: 'http' },
    { _t: 'str', at: 20, data: { n: 3 }, owner: 'alice' },
    { _t: 'sta', at: 20, data: { n: 5 } },
  ]);
  expect((await sendImport(ctx.api, lines)).totals).toEqual(totals(0, 4, 0));
  expect((await sendImport(ctx.api, lines, '?on_conflict=create')).totals).toEqual(totals(4, 0, 0));
  expect(await listed()).toHaveLength(7);
});

it('names what is wrong with a line, and goes on', async () => {
  const disabled = await ctx.fixtures.device({ id_group, enabled: false });
  const lines = [
    stream(undefined, 1),
    stream('soon', 2, { data: 5 }),
    stream(1, 3, { device: 'none@acme' }),
    stream(1, 4, { device: disabled }),
    stream(1, 5, { checksum: 'a'.repeat(40) }),
    { ...stream(1, 6), device: undefined },
    stream(1, 7, { other: 1 }),
    stream(1, 8),
  ];
  const answer = await sendImport(ctx.api, lines);
  expect(answer.lines.map(({ code, details }) => [code, Object.keys(details ?? {}).join()])).toEqual([
    ...[[4003, 'at'] as const, [4003, 'at,data'] as const, [4003, 'device'] as const, [4003, 'device'] as const],
    ...[[4003, 'checksum'] as const, [4003, 'device'] as const, [4003, 'other'] as const, [2001, ''] as const],
  ]);
  expect(answer.totals).toEqual(totals(1, 0, 7));
  for (const mode of ['update', 'fail'])
    expect((await sendImport(ctx.api, [stream(2, 1)], `?on_conflict=${mode}`)).lines).toEqual([
      { line: 1, code: 4003, details: { on_conflict: 'must be skip or create for streams' } },
    ]);
  const project = { resource: 'project', name: 'P', id_customer: 'c' };
  expect(codes(await sendImport(ctx.api, [project], '?on_conflict=create'))).toEqual([4003]);
});

it('takes CSV with columns for paths, which may hold any JSON', async () => {
  const csv = [
    'device,at,data.t,data.on,data.engine.oil,data.text,data./a.b,data.__proto__,_t',
    `${device},2026-11-27T09:00:00+01:00,21.5,true,-2e3,'=1+1,007,7,`,
    `${device},1795766401.25,"[1,{""x"":2}]",null,,"a,b",,,sta`,
    `${device},1795766402,,,,,,,`,
  ].join('\r\n');
  expect((await sendImport(ctx.api, csv, '?resource=stream')).totals).toEqual(totals(3, 0, 0));
  const [first, second, third] = await listed();
  expect(JSON.stringify(first?.data)).toBe(
    '{"t":21.5,"on":true,"engine":{"oil":-2000},"text":"=1+1","a.b":"007","__proto__":7}',
  );
  expect(second).toMatchObject({ at: 1_795_766_401.25, _t: 'sta', data: { t: [1, { x: 2 }], on: null, text: 'a,b' } });
  expect(third).toMatchObject({ at: 1_795_766_402, data: {} });
  const decimal = `device;at;data.t;data.u\n${device};5;1,5;1,5,5\n`;
  await sendImport(ctx.api, decimal, '?resource=stream');
  expect((await listed())[0]?.data).toEqual({ t: 1.5, u: '1,5,5' });
});

it.each(['ndjson', 'csv'])('export, delete, import: equal, as %s', async (format) => {
  const sender = await ctx.fixtures.device({ id_group, checksum: 'k'.repeat(40) });
  const own = pathOf('devices', sender, 'streams');
  await ctx.api.post(own, [
    { at: 1, data: { text: "'=x", nested: { list: [1, 'é', null], on: false } } },
    { at: 1, data: { n: 1 } },
    { at: 1.125, _t: 'sta', protocol: 'lora', data: {} },
  ]);
  await ctx.service.db
    .collection('streams')
    .updateMany({ '_id.device': sender, '_id.at': 1.125 }, [{ $set: { protocol: 'v3' } }]);
  const before = await listed(own);
  const { text } = await ctx.api.get(`${own}?format=${format}`);
  await ctx.api.delete(own);
  const answer = await sendImport(ctx.api, text, '?resource=stream&on_conflict=create');
  expect(answer.totals).toEqual(totals(3, 0, 0));
  const withoutIds = (streams: Json[]) => streams.map(({ id_developer: _id, ...members }) => members);
  expect(withoutIds(await listed(own))).toEqual(withoutIds(before));
});

it('moves streams to another account, after the devices that stand before them', async () => {
  const lines = [
    { resource: 'device', name: 'moved', type: 't', id_group: id_group.replace('@acme', '@old') },
    stream(5, 1, { device: 'moved@old' }),
  ];
  expect((await sendImport(ctx.api, lines, '?account=old')).totals).toEqual(totals(2, 0, 0));
  expect(await listed(pathOf('devices', 'moved@acme', 'streams'))).toMatchObject([{ at: 5, data: { n: 1 } }]);
});

it('counts for the status as received at its time, if that is later', async () => {
  const shown = async () => (await ctx.api.get(pathOf('devices', device))).body;
  const now = ctx.service.now();
  await sendImport(ctx.api, [stream(now - 1e6, 1), stream(now - 1e6 + 0.5, 2, { _t: 'sta' })]);
  expect(await shown()).toMatchObject({ last_stream_at: now - 1e6, status: 'disconnected' });
  await ctx.api.post(path, { at: 7, data: {} });
  await sendImport(ctx.api, [stream(now - 60, 1), stream(now - 120, 2, { _t: 'sta' })]);
  expect(await shown()).toMatchObject({ last_stream_at: now, last_status_at: now - 120, status: 'ok' });
  await sendImport(ctx.api, [stream(now + 1000, 1, { _t: 'sta' })]);
  expect((await shown()).last_status_at).toBe(now);
});

it('raises alarms only if it is newer than what the device has', async () => {
  const rule = { name: 'hot', severity: 'info', conditions: [{ path: 't', op: '>', value: 30 }], id_device: device };
  expect((await ctx.api.post('/alarmrules/', rule)).body.code).toBe(2001);
  await ctx.api.post(path, { at: 1000, data: { other: 1 } });
  const alarms = async () => (await ctx.api.get(`${pathOf('devices', device, 'alarms')}?state=active`)).body.result;
  await sendImport(ctx.api, [stream(900, 1, { data: { t: 50 } })]);
  expect(await alarms()).toEqual([]);
  await sendImport(ctx.api, [stream(1100, 1, { data: { t: 40 } })]);
  expect(await alarms()).toMatchObject([{ at: 1100, values: { t: 40 } }]);
});

describe('dry_run=1', () => {
  it('answers what the import would, and stores nothing', async () => {
    await ctx.api.post(path, { at: 10, data: { n: 1 } });
    const above = { resource: 'group', name: 'off', id_service: await ctx.fixtures.service(), enabled: false };
    const lines = [
      ...[stream(10, 1), stream(20, 1), stream(20, 2), stream(30, 1, { device: 'none@acme' })],
      { resource: 'device', name: 'dry', type: 't', id_group },
      ...[stream(20, 1, { device: 'dry@acme' }), stream(20, 1, { device: 'dry@acme' })],
      ...[above, { resource: 'device', name: 'off', type: 't', id_group: 'off@acme' }],
      stream(20, 1, { device: 'off@acme' }),
    ];
    const dry = await sendImport(ctx.api, lines, '?dry_run=1');
    expect(codes(dry)).toEqual([2007, 2001, 2007, 4003, 2001, 2001, 2007, 2001, 2001, 4003]);
    expect(await listed()).toHaveLength(1);
    expect(await sendImport(ctx.api, lines)).toEqual(dry);
  });
});
