import { describe, expect, it } from '@jest/globals';
import type { PrepareEvaluation } from '../../../src/objects/receipts/received-streams.js';
import { migrate } from '../../../src/service/migrations.js';
import { createIngest } from '../../../src/streams/ingest.js';
import { parseStreams } from '../../../src/streams/parse-streams.js';
import { createAlarmTools } from '../../support/alarms.js';
import { summarize, useTestService } from '../../support/expect-status.js';
import { waitForEvents } from '../../support/logged-events.js';
import { waitUntil } from '../../support/process.js';
import { pathOf, upgradeContext } from '../../support/service.js';

const ctx = await useTestService({ eventLog: true });
const tools = createAlarmTools(ctx);
const high = { path: 'bar', op: '>', value: 8 };
const data = (values: object, at?: number) => ({ data: values, ...(at !== undefined && { at }) });

/** A device with a rule of its own. */
async function watched(fields: object = {}): Promise<{ device: string; rule: string }> {
  const device = await ctx.fixtures.device();
  return { device, rule: await tools.rule({ conditions: [high], id_device: device, ...fields }) };
}

describe('an alarm', () => {
  it('is raised and closed by the streams that are acknowledged, each once', async () => {
    const id_project = await ctx.fixtures.project();
    const id_service = await ctx.fixtures.service({ id_project });
    const id_group = await ctx.fixtures.group({ id_service });
    const id_asset = await ctx.fixtures.asset({ id_group });
    const device = await ctx.fixtures.device({ id_asset });
    const rule = await tools.rule({ conditions: [high], id_group, severity: 'critical' });
    await tools.send(device, data({ bar: 8 }));
    expect(await tools.alarmsOf(device)).toEqual([]);
    await tools.send(device, data({ bar: 8.5, other: 1 }));
    await tools.send(device, data({ bar: 9 }));
    const [raised] = await tools.alarmsOf(device);
    const now = ctx.service.now();
    const shown = {
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      ...{ rule, device, severity: 'critical', state: 'active', values: { bar: 8.5 }, at: now, raised_at: now },
      ...{ id_project, id_service, id_group, id_asset },
    };
    expect(raised).toEqual(shown);
    ctx.service.advance(5);
    await tools.send(device, data({ bar: 8 }));
    await tools.send(device, data({ bar: 7 }));
    const closed = { ...shown, state: 'closed', closed_at: now + 5 };
    expect(await tools.alarmsOf(device)).toEqual([closed]);
    const events = await waitForEvents(ctx.api, `resource=alarm&id_developer=${encodeURIComponent(device)}`, 2);
    expect(events).toEqual([
      {
        ...{ id: expect.any(String), type: 'alarm.raised', at: expect.any(Number), resource: 'alarm' },
        ...{ id_developer: device, id_project, id_service, id_group, id_asset, data: shown },
      },
      {
        ...{ id: expect.any(String), type: 'alarm.closed', at: expect.any(Number), resource: 'alarm' },
        ...{ id_developer: device, id_project, id_service, id_group, id_asset, data: closed },
      },
    ]);
  });

  it('keeps its severity when the rule changes, and stays open between `clear` and `value`', async () => {
    const { device, rule } = await watched({ conditions: [{ ...high, clear: 6 }] });
    for (const bar of [9, 7]) await tools.send(device, data({ bar }));
    await ctx.api.put(pathOf('alarmrules', rule), { severity: 'info' });
    await tools.waitForScan(rule, 'alarmrule.updated');
    await tools.send(device, data({ bar: 7.5 }));
    expect(await tools.alarmsOf(device)).toMatchObject([{ severity: 'warning', state: 'active' }]);
  });
});

describe('a condition on a value', () => {
  it.each([
    ['>', 8, [8, 8.1, 8], [0, 1, 0]],
    ['>=', 8, [7.9, 8, 7.9], [0, 1, 0]],
    ['<', 8, [8, 7.9, 8], [0, 1, 0]],
    ['<=', 8, [8.1, 8, 8.1], [0, 1, 0]],
    ['=', 8, [7, 8, '8', 8, null, 8, [8], 8, { v: 8 }], [0, 1, 0, 1, 0, 1, 0, 1, 0]],
    ['=', 'open', ['shut', 'open', true, 'open', 'Open'], [0, 1, 0, 1, 0]],
    ['=', true, [false, true, 1, true, 'true'], [0, 1, 0, 1, 0]],
    ['!=', 8, [8, 7, 8, '8', 8, null, 8, [8], 8, { v: 8 }], [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]],
    ['!=', 'open', ['open', '', 'open', 5], [0, 1, 0, 1]],
    ['>', 8, [9, '9', 9, null, 9, true], [1, 0, 1, 0, 1, 0]],
  ])('%s %j holds for some of %j', async (op, value, sent, expected) => {
    const { device } = await watched({ conditions: [{ path: 'v', op, value }] });
    const open: number[] = [];
    for (const v of sent) {
      await tools.send(device, data({ v }));
      open.push((await tools.alarmsOf(device, '&state=active')).length);
    }
    expect(open).toEqual(expected);
  });

  it('ends at `clear` only', async () => {
    const { device } = await watched({ conditions: [{ ...high, clear: 6 }] });
    const states: string[] = [];
    for (const bar of [7, 9, 7, 6.1, 6, 7, 8, 8.1]) {
      await tools.send(device, data({ bar }));
      states.push((await tools.statesOf(device)).join());
    }
    expect(states).toEqual(['', 'active', 'active', 'active', 'closed', 'closed', 'closed', 'closed,active']);
    const falling = await watched({ conditions: [{ path: 'bar', op: '<=', value: 2, clear: 4 }] });
    for (const bar of [2, 3.9]) await tools.send(falling.device, data({ bar }));
    expect(await tools.statesOf(falling.device)).toEqual(['active']);
    await tools.send(falling.device, data({ bar: 4 }));
    expect(await tools.statesOf(falling.device)).toEqual(['closed']);
  });

  it('is left as it was by streams without the path, by states and by late streams', async () => {
    const { device } = await watched();
    const at = ctx.service.now() - 100;
    await tools.send(device, data({ other: 1 }, at));
    await tools.send(device, data({ bar: 9 }, at));
    await tools.send(device, data({ bar: 1 }, at - 1));
    await tools.send(device, data({ other: 9 }, at + 2));
    await tools.send(device, { ...data({ bar: 1 }, at + 3), _t: 'sta' });
    expect(await tools.statesOf(device)).toEqual(['active']);
    // older than the last stream, and newer than the last with the path
    await tools.send(device, data({ bar: 1 }, at + 1));
    expect(await tools.statesOf(device)).toEqual(['closed']);
    await tools.send(device, data({ bar: 9 }, at));
    expect(await tools.statesOf(device)).toEqual(['closed']);
    // equal times: the one received last counts
    await tools.send(device, data({ bar: 9 }, at + 1));
    expect(await tools.statesOf(device)).toEqual(['closed', 'active']);
  });

  it('sees of an array only what holds after it', async () => {
    const { device } = await watched();
    const at = ctx.service.now() - 100;
    await tools.send(device, [data({ bar: 9 }, at), data({ bar: 1 }, at + 1)]);
    await tools.send(device, [data({ bar: 1 }, at + 3), data({ bar: 9 }, at + 2)]);
    expect(await tools.statesOf(device)).toEqual([]);
    await tools.send(device, [data({ bar: 1 }, at + 4), data({ bar: 9 }, at + 4)]);
    expect(await tools.statesOf(device)).toEqual(['active']);
  });

  it('takes paths as series do', async () => {
    const nested = await watched({ conditions: [{ path: 'a.b', op: '=', value: 1 }] });
    await tools.send(nested.device, data({ 'a.b': 1, a: [{ b: 1 }] }));
    expect(await tools.statesOf(nested.device)).toEqual([]);
    await tools.send(nested.device, data({ a: { b: 1 } }));
    expect((await tools.alarmsOf(nested.device))[0]?.values).toEqual({ 'a.b': 1 });
    const pointer = await watched({ conditions: [{ path: '/a.b/1', op: '=', value: 2 }] });
    await tools.send(pointer.device, data({ 'a.b': [1, 2] }));
    await tools.send(pointer.device, data({ 'a.b': [1] }));
    expect((await tools.alarmsOf(pointer.device))[0]).toMatchObject({ state: 'active', values: { '/a.b/1': 2 } });
    // far behind newer streams without the path
    const at = ctx.service.now();
    await tools.send(
      pointer.device,
      Array.from({ length: 12 }, () => data({ 'a.b': [1] }, at)),
    );
    await tools.send(pointer.device, data({ 'a.b': [1, 7] }, at - 1));
    expect(await tools.statesOf(pointer.device)).toEqual(['active']);
    await tools.send(pointer.device, data({ 'a.b': { 1: 3 } }));
    expect(await tools.statesOf(pointer.device)).toEqual(['closed']);
  });
});

it('all conditions have to hold, or any', async () => {
  const conditions = [high, { path: 'temp', op: '>', value: 50 }];
  const all = await watched({ conditions });
  const any = await watched({ conditions, match: 'any' });
  const sent = [{ bar: 9 }, { temp: 60 }, { bar: 10, temp: 40 }, { temp: 70 }, { bar: 1 }, { temp: 1 }];
  const states: string[] = [];
  for (const values of sent) {
    for (const { device } of [all, any]) await tools.send(device, data(values));
    states.push(`${await tools.statesOf(all.device)} ${await tools.statesOf(any.device)}`);
  }
  expect(states).toEqual([
    ...[' active', 'active active', 'closed active', 'closed,active active'],
    ...['closed,closed active', 'closed,closed closed'],
  ]);
  expect((await tools.alarmsOf(all.device)).map(({ values }) => values)).toEqual([
    { bar: 9, temp: 60 },
    { bar: 10, temp: 70 },
  ]);
  expect((await tools.alarmsOf(any.device)).map(({ values }) => values)).toEqual([{ bar: 9 }]);
});

describe('time', () => {
  it('has to pass while a rule with `for` holds', async () => {
    const { device } = await watched({ for: 60 });
    await tools.send(device, data({ bar: 9 }));
    ctx.service.advance(59);
    await tools.send(device, data({ bar: 10 }));
    await tools.send(device, data({ bar: 1 }));
    await tools.send(device, data({ bar: 11 }));
    ctx.service.advance(59);
    await tools.send(device, data({ bar: 12 }));
    expect(await tools.statesOf(device)).toEqual([]);
    ctx.service.advance(1);
    await tools.waitForStates(device, ['active']);
    const [raised] = await tools.alarmsOf(device);
    expect(raised).toMatchObject({ values: { bar: 12 }, raised_at: ctx.service.now() });
    expect(raised).not.toHaveProperty('at');
    await tools.send(device, data({ bar: 1 }));
    expect(await tools.kindsOf(device, 2)).toEqual(['raised', 'closed']);
  });

  it('has to come before a stream of the future counts', async () => {
    const { device } = await watched();
    const now = ctx.service.now();
    await tools.send(device, data({ bar: 9 }, now + 100));
    await tools.send(device, data({ bar: 1 }, now + 200));
    await tools.send(device, data({ bar: 2 }, now));
    expect(await tools.statesOf(device)).toEqual([]);
    ctx.service.advance(100);
    await tools.waitForStates(device, ['active']);
    expect(await tools.alarmsOf(device)).toMatchObject([{ at: now + 100, raised_at: now + 100 }]);
    ctx.service.advance(100);
    await tools.waitForStates(device, ['closed']);
  });

  it.each([
    ['its rule was made', {}, undefined],
    ['the device was moved', { id_group: 'target' }, 'devices'],
    ['something above the device was moved', { id_service: 'target' }, 'groups'],
  ])('counts when its time has come although it came before %s', async (_what, target, moved) => {
    const [field = ''] = Object.keys(target);
    const id = moved && (await ctx.fixtures[moved === 'devices' ? 'group' : 'service']());
    if (id !== undefined) await tools.rule({ conditions: [high], [field]: id });
    const id_group = await ctx.fixtures.group();
    const device = await ctx.fixtures.device({ id_group });
    await tools.send(device, data({ bar: 9 }, ctx.service.now() + 100));
    if (moved === undefined) await tools.rule({ conditions: [high], id_device: device });
    else
      expect(
        summarize(await ctx.api.put(pathOf(moved, moved === 'devices' ? device : id_group), { [field]: id })),
      ).toBe('2005');
    const { db } = ctx.service;
    const filter = await db.collection('devices').findOne({ id_developer: device }, { projection: { _id: 1 } });
    await waitUntil(async () => (await db.collection('alarm_devices').countDocuments(filter ?? {})) === 1);
    ctx.service.advance(100);
    await tools.waitForStates(device, ['active']);
  });

  it('without a path raises the alarm of its absence', async () => {
    const { device } = await watched({ conditions: [{ absent: 'bar', minutes: 10 }] });
    // once the rule has looked at what is stored
    await tools.send(device, data({ bar: 1 }));
    ctx.service.advance(400);
    await tools.send(device, data({ bar: 1 }, 1));
    ctx.service.advance(500);
    await tools.send(device, data({ other: 1 }));
    await tools.send(device, { ...data({ bar: 1 }), _t: 'sta' });
    ctx.service.advance(99);
    expect(await tools.statesOf(device)).toEqual([]);
    ctx.service.advance(1);
    await tools.waitForStates(device, ['active']);
    expect((await tools.alarmsOf(device))[0]?.values).toEqual({});
    await tools.send(device, data({ other: 1 }));
    expect(await tools.statesOf(device)).toEqual(['active']);
    await tools.send(device, data({ bar: 1 }, 1));
    expect(await tools.statesOf(device)).toEqual(['closed']);
    ctx.service.advance(600);
    await tools.waitForStates(device, ['closed', 'active']);
  });

  it('goes on while a stream ends the alarms of its absence', async () => {
    const absent = { absent: 'bar', minutes: 10 };
    const device = await ctx.fixtures.device();
    for (const conditions of [[absent], [absent, { path: 'other', op: '>', value: 1 }]])
      await tools.waitForScan(await tools.rule({ conditions, id_device: device }));
    await tools.send(device, data({ other: 5 }));
    ctx.service.advance(600);
    await tools.waitForStates(device, ['active', 'active']);
    const ticking = setInterval(() => ctx.service.advance(0.001), 1);
    await tools.send(device, data({ bar: null }, 1)).finally(() => clearInterval(ticking));
    expect(await tools.statesOf(device)).toEqual(['closed', 'closed']);
  });

  it('since a device was made raises the alarm of its absence', async () => {
    const id_group = await ctx.fixtures.group();
    await tools.rule({ conditions: [{ absent: 'bar', minutes: 1 }], id_group });
    const device = await ctx.fixtures.device({ id_group });
    const { created_at } = (await ctx.api.get(pathOf('devices', device))).body;
    ctx.service.advance(60);
    await tools.waitForStates(device, ['active']);
    expect((await tools.alarmsOf(device))[0]?.raised_at).toBe(created_at + 60);
  });
});

it('the status of a device raises and closes', async () => {
  const device = await ctx.fixtures.device({ frequency_stream: 10, frequency_status: 100_000 });
  await tools.send(device, data({ bar: 1 }));
  await ctx.api.post('/status/', { device, data: { ok: true } });
  await tools.rule({ conditions: [{ status: ['no_data'] }], id_device: device });
  ctx.service.advance(600);
  await tools.waitForStates(device, ['active']);
  const [raised] = await tools.alarmsOf(device);
  expect([raised?.values, raised?.at]).toEqual([{ status: 'no_data' }, undefined]);
  await tools.send(device, data({ bar: 1 }));
  await tools.waitForStates(device, ['closed']);
  expect(await tools.kindsOf(device, 2)).toEqual(['raised', 'closed']);
});

describe('a rule', () => {
  it('looks at what is stored when it is made, and again when it is changed', async () => {
    const id_model = await ctx.fixtures.model();
    const [first, second] = [await ctx.fixtures.device({ id_model }), await ctx.fixtures.device({ id_model })];
    const at = ctx.service.now() - 50;
    await tools.send(first, data({ bar: 9 }, at));
    await tools.send(first, data({ other: 1 }));
    await tools.send(second, data({ bar: 7 }));
    const rule = await tools.rule({ conditions: [high], id_model });
    await tools.waitForStates(first, ['active']);
    expect([(await tools.alarmsOf(first))[0]?.at, await tools.statesOf(second)]).toEqual([at, []]);
    await ctx.api.put(pathOf('alarmrules', rule), { conditions: [{ path: 'bar', op: '<', value: 8 }] });
    await tools.waitForStates(first, ['closed']);
    await tools.waitForStates(second, ['active']);
  });

  it('sees a device that has never sent as disconnected, the one made later too', async () => {
    const id_group = await ctx.fixtures.group();
    const early = await ctx.fixtures.device({ id_group });
    await tools.rule({ conditions: [{ status: ['disconnected'] }], id_group });
    await tools.waitForStates(early, ['active']);
    await tools.waitForStates(await ctx.fixtures.device({ id_group }), ['active']);
  });

  it('that is deleted or disabled closes its alarms, and looks at the stored when it is enabled', async () => {
    const deleted = await watched();
    const disabled = await watched();
    for (const { device } of [deleted, disabled]) await tools.send(device, data({ bar: 9 }));
    await ctx.api.delete(pathOf('alarmrules', deleted.rule));
    await ctx.api.put(pathOf('alarmrules', disabled.rule), { enabled: false });
    for (const { device } of [deleted, disabled]) await tools.waitForStates(device, ['closed']);
    const [closed] = await tools.alarmsOf(disabled.device);
    expect(closed).not.toHaveProperty('closed_by');
    await tools.send(disabled.device, data({ bar: 9 }));
    expect(await tools.statesOf(disabled.device)).toEqual(['closed']);
    await ctx.api.put(pathOf('alarmrules', disabled.rule), { enabled: true });
    await tools.waitForStates(disabled.device, ['closed', 'active']);
  });
});

describe('a rule covers', () => {
  it.each(['id_project', 'id_service', 'id_group', 'id_asset', 'id_device', 'id_model', 'nothing'])(
    'by %s what it names, and without it all of the account',
    async (field) => {
      const branch = async () => {
        const id_project = await ctx.fixtures.project();
        const id_service = await ctx.fixtures.service({ id_project });
        const id_group = await ctx.fixtures.group({ id_service });
        const id_asset = await ctx.fixtures.asset({ id_group });
        const id_model = await ctx.fixtures.model();
        const id_device = await ctx.fixtures.device({ id_asset, id_model });
        return new Map(Object.entries({ id_project, id_service, id_group, id_asset, id_model, id_device }));
      };
      const [inside, outside] = [await branch(), await branch()];
      const id = inside.get(field);
      const path = `level of ${field}`;
      await tools.rule({ conditions: [{ ...high, path }], ...(id !== undefined && { [field]: id }) });
      const states = await Promise.all(
        [inside, outside].map(async (each) => {
          const device = each.get('id_device') ?? '';
          await tools.send(device, data({ [path]: 9 }));
          return tools.statesOf(device);
        }),
      );
      expect(states).toEqual([['active'], id === undefined ? ['active'] : []]);
    },
  );

  it('no longer a device that gets another model, nor those of a place that it no longer names', async () => {
    const id_model = await ctx.fixtures.model();
    const [changed, beside] = [await ctx.fixtures.device({ id_model }), await ctx.fixtures.device({ id_model })];
    const rule = await tools.rule({ conditions: [high], id_model });
    for (const device of [changed, beside]) await tools.send(device, data({ bar: 9 }));
    await ctx.api.put(pathOf('devices', changed), { id_model: await ctx.fixtures.model() });
    await tools.waitForStates(changed, ['closed']);
    expect(await tools.statesOf(beside)).toEqual(['active']);
    await ctx.api.put(pathOf('alarmrules', rule), { id_model: null, id_device: changed });
    await tools.waitForStates(beside, ['closed']);
    await tools.waitForStates(changed, ['closed', 'active']);
    for (const device of [changed, beside]) expect((await tools.alarmsOf(device))[0]).not.toHaveProperty('closed_by');
  });
});

describe('the alarms of a device', () => {
  it('are closed when it is disabled, itself or above it; the next stream decides', async () => {
    const id_service = await ctx.fixtures.service();
    const id_group = await ctx.fixtures.group({ id_service });
    const device = await ctx.fixtures.device({ id_group });
    await tools.rule({ conditions: [high, { absent: 'bar', minutes: 60 }], match: 'any', id_device: device });
    await tools.send(device, data({ bar: 9 }));
    const states = ['active'];
    for (const path of [pathOf('devices', device), pathOf('services', id_service)]) {
      await ctx.api.put(path, { enabled: false });
      states.splice(-1, 1, 'closed');
      await tools.waitForStates(device, states);
      await ctx.api.put(path, { enabled: true });
      await tools.send(device, data({ bar: 9 }));
      states.push('active');
      expect(await tools.statesOf(device)).toEqual(states);
    }
  });

  it('are closed when it is deleted, and when it is moved out of the rule', async () => {
    const [inside, outside] = [await ctx.fixtures.group(), await ctx.fixtures.group()];
    const [moved, removed] = [
      await ctx.fixtures.device({ id_group: inside }),
      await ctx.fixtures.device({ id_group: inside }),
    ];
    await tools.rule({ conditions: [high], id_group: inside });
    for (const device of [moved, removed]) await tools.send(device, data({ bar: 9 }));
    await ctx.api.put(pathOf('devices', moved), { id_group: outside });
    await tools.waitForStates(moved, ['closed']);
    expect(summarize(await ctx.api.delete(pathOf('devices', removed)))).toBe('2004');
    expect(await tools.kindsOf(removed, 2)).toEqual(['raised', 'closed']);
    const { result } = (await ctx.api.get(`/alarms/?device=${encodeURIComponent(removed)}`)).body;
    expect(result).toMatchObject([{ state: 'closed', device: removed, id_group: inside }]);
    expect(summarize(await ctx.api.get(pathOf('devices', removed, 'alarms')))).toBe('4041');
  });

  it('go with it when it is moved within the rule', async () => {
    const id_project = await ctx.fixtures.project();
    const [from, to] = await Promise.all([1, 2].map(() => ctx.fixtures.service({ id_project })));
    const id_group = await ctx.fixtures.group({ id_service: from });
    const device = await ctx.fixtures.device({ id_group });
    await tools.rule({ conditions: [high], id_project });
    await tools.send(device, data({ bar: 9 }));
    await ctx.api.put(pathOf('groups', id_group), { id_service: to });
    for (let alarms = 0; alarms === 0; )
      alarms = (await ctx.api.get(`/alarms/?id_service=${encodeURIComponent(to ?? '')}`)).body.total_documents;
    expect(await tools.alarmsOf(device)).toMatchObject([{ state: 'active', id_service: to, id_group }]);
  });
});

describe('a rule by a saved filter', () => {
  const deviceOf = (type: string) => ctx.fixtures.device({ type });
  let number = 0;
  /** A rule by a new filter; both are about devices of types that no other test has. */
  async function byFilter(query: string, fields: object = {}): Promise<string> {
    const name = `filter ${++number}`;
    await ctx.api.post('/filters/', { name, query });
    await tools.rule({ conditions: [high], filter: `${name}@acme`, ...fields });
    return `${name}@acme`;
  }

  it('looks at the devices that it selects when a stream arrives', async () => {
    const [inside, outside] = [await deviceOf('f1'), await deviceOf('f2')];
    await byFilter('type=f1');
    for (const device of [inside, outside]) await tools.send(device, data({ bar: 9 }));
    expect([await tools.statesOf(inside), await tools.statesOf(outside)]).toEqual([['active'], []]);
    await ctx.api.put(pathOf('devices', outside), { type: 'f1' });
    await tools.send(outside, data({ bar: 9 }));
    expect(await tools.statesOf(outside)).toEqual(['active']);
  });

  it('closes the alarms of devices that are no longer selected, by a change or by a stream', async () => {
    const [changed, sending] = [await deviceOf('f3'), await deviceOf('f3')];
    await byFilter('type=f3');
    await tools.send(changed, data({ bar: 9 }));
    await ctx.api.put(pathOf('devices', changed), { type: 'f4' });
    await tools.waitForStates(changed, ['closed']);
    expect((await tools.alarmsOf(changed))[0]).not.toHaveProperty('closed_by');
    const { db } = ctx.service;
    await ctx.api.put(pathOf('devices', sending), { properties: { level: 5 } });
    await byFilter('properties.level_from=5&type=f3', { severity: 'critical' });
    await tools.send(sending, data({ bar: 9 }));
    expect(await tools.statesOf(sending)).toEqual(['active', 'active']);
    // no event, as when what it sent makes it leave
    await db.collection('devices').updateOne({ id_developer: sending }, { $set: { properties: { level: 4 } } });
    await tools.send(sending, data({ other: 1 }));
    const alarms = await tools.alarmsOf(sending);
    expect(alarms.map(({ severity, state }) => `${severity} ${state}`).sort()).toEqual([
      'critical closed',
      'warning active',
    ]);
  });

  it('follows a change of the filter, and its deadlines ask for the selected only', async () => {
    const [first, second] = [await deviceOf('f5'), await deviceOf('f6')];
    const filter = await byFilter('type=f5', { conditions: [{ absent: 'beat', minutes: 1 }] });
    for (const device of [first, second]) await tools.send(device, data({ beat: 1 }));
    ctx.service.advance(60);
    await tools.waitForStates(first, ['active']);
    expect(await tools.statesOf(second)).toEqual([]);
    await ctx.api.put(pathOf('filters', filter), { query: 'type=f6' });
    await tools.waitForStates(first, ['closed']);
    await tools.waitForStates(second, ['active']);
  });
});

describe('the mark of a device at which a condition is met', () => {
  const markOf = async (device: string) =>
    (await ctx.service.db.collection('devices').findOne({ id_developer: device }))?.condition_met_at;

  it('is set with the first condition, and removed a minute after the last', async () => {
    const { device } = await watched({ conditions: [high, { path: 'rpm', op: '>', value: 5 }] });
    await tools.send(device, data({ bar: 8, rpm: 5 }));
    expect(await markOf(device)).toBeUndefined();
    await tools.send(device, data({ bar: 9 }));
    const now = ctx.service.now();
    expect(await markOf(device)).toBe(now);
    ctx.service.advance(30);
    await tools.send(device, data({ bar: 8 }));
    await tools.send(device, data({ bar: 8 }));
    expect(await markOf(device)).toBe(now);
    ctx.service.advance(31);
    await tools.send(device, data({ bar: 8 }));
    expect(await markOf(device)).toBeUndefined();
    await tools.send(device, data({ bar: 9, rpm: 6 }));
    expect(await tools.statesOf(device)).toEqual(['active']);
  });

  it('makes a stream be looked at that another instance received at the same time', async () => {
    const { db } = ctx.service;
    const device = await ctx.fixtures.device();
    const met_at = ctx.service.now();
    const marks: unknown[] = [];
    const markInBetween = async () => {
      await db.collection('devices').updateOne({ id_developer: device }, { $set: { condition_met_at: met_at } });
      return true;
    };
    const prepareEvaluation: PrepareEvaluation = () => async () => ({
      markOf({ condition_met_at }) {
        marks.push(condition_met_at);
        return condition_met_at === undefined ? { isUnmarked: true } : undefined;
      },
      complete: async () => void marks.push('complete'),
    });
    const metrics = { stored() {}, batch() {}, ingested() {} };
    const clock = () => met_at * 1000;
    const ingest = createIngest({ db, areAncestorsEnabled: markInBetween, metrics, clock, prepareEvaluation });
    const job = { account: 'acme', limit: undefined, user: 'alice', now: met_at };
    await ingest({ ...parseStreams([{ device, data: { bar: 1 } }], {}), ...job });
    expect(marks).toEqual([undefined, met_at, 'complete']);
    expect(await db.collection('streams').countDocuments({ '_id.device': device })).toBe(1);
    expect(await db.collection('devices').findOne({ id_developer: device })).toMatchObject({ last_stream_at: met_at });
  });

  it('is set by the upgrade of a database without marks', async () => {
    const { db } = ctx.service;
    const [met, calm] = [await watched(), await watched()];
    await tools.send(met.device, data({ bar: 9 }));
    await tools.send(calm.device, data({ bar: 1 }));
    await db.collection('devices').updateMany({}, { $unset: { condition_met_at: 1 } });
    await db.collection('migrations').deleteOne({ _id: 'condition-marks' } as object);
    await migrate(db, upgradeContext);
    expect([await markOf(met.device), await markOf(calm.device)]).toEqual([expect.any(Number), undefined]);
    await tools.send(met.device, data({ bar: 1 }));
    expect(await tools.statesOf(met.device)).toEqual(['closed']);
  });
});

it('the value at a path called status is kept beside the status of the device', async () => {
  const conditions = [{ path: 'status', op: '=', value: 'broken' }, { status: ['no_status'] }];
  const { device } = await watched({ conditions });
  await tools.send(device, data({ status: 'broken' }));
  await tools.waitForStates(device, ['active']);
  expect((await tools.alarmsOf(device))[0]?.values).toEqual({ status: 'broken' });
});

it('an alarm has the `at` of the stream that decided, and of large values what is short', async () => {
  const conditions = ['bar', 'text', 'list', 'object', 'none'].map((path) => ({ path, op: '!=', value: 0 }));
  const { device } = await watched({ conditions });
  const at = ctx.service.now() - 100;
  await tools.send(
    device,
    data({ text: `${'\u{1f321}'.repeat(250)}${'x'.repeat(60_000)}`, list: [1], object: {} }, at),
  );
  await tools.send(device, data({ none: null }, at - 1));
  // late, and the last that was missing
  await tools.send(device, [data({ bar: 3 }, at - 7.5), data({ bar: 2 }, at - 9)]);
  const values = { bar: 3, text: '\u{1f321}'.repeat(200), none: null };
  const [raised] = await tools.alarmsOf(device);
  expect([raised?.at, raised?.values]).toEqual([at - 7.5, values]);
});
