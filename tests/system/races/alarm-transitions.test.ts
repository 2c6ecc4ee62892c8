import { describe, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { findDevices } from '../../../src/alarms/devices.js';
import { createEvaluation, refreshRecord } from '../../../src/alarms/evaluate.js';
import { buildWatchKey } from '../../../src/alarms/records.js';
import { createRuleSets } from '../../../src/alarms/rule-sets.js';
import type { BatchLoader } from '../../../src/db/batching/loader.js';
import { createAlarmTools } from '../../support/alarms.js';
import { useTestService } from '../../support/expect-status.js';
import { waitUntil } from '../../support/process.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService({ eventLog: true });
const tools = createAlarmTools(ctx);
const high = { path: 'bar', op: '>', value: 8 };

/** A device with a rule of its own. */
async function watched(fields: object = {}): Promise<{ device: string; rule: string }> {
  const device = await ctx.fixtures.device();
  return { device, rule: await tools.rule({ conditions: [high], id_device: device, ...fields }) };
}

const recordsOf = (device: string) => ctx.service.db.collection('alarms').countDocuments({ device, is_current: true });

describe('an evaluation beside streams', () => {
  /** Evaluates the rule of a device without a stream, as a scan does. @param insert instead of the insert of the record */
  async function evaluate(
    device: string,
    rule: string,
    insert: (original: BatchLoader['insert']) => BatchLoader['insert'],
  ) {
    const { store, db, now } = ctx.service;
    const stored = await db.collection('devices').findOne({ id_developer: device });
    const [sender] = (await findDevices(db, stored === null ? [] : [stored._id])).values();
    const { rules } = await createRuleSets(db).load('acme');
    const prepared = rules.find(({ id_developer }) => id_developer === rule);
    if (sender === undefined || prepared === undefined) throw new Error('the device has no rule');
    const loader = (plural: string) => ({ ...store.loader(plural), insert: insert(store.loader(plural).insert) });
    const deps = createEvaluation({ ...store, loader }, () => now() * 1000);
    await refreshRecord(deps, prepared, sender, { floor: now() }, undefined);
  }

  it('raises nothing from values that have come and gone since it read them', async () => {
    const device = await ctx.fixtures.device();
    await tools.send(device, { data: { bar: 9 } });
    const rule = await tools.rule({ conditions: [high], id_device: device });
    await evaluate(device, rule, (original) => async (record) => {
      for (const bar of [9, 1]) await tools.send(device, { data: { bar } });
      await original(record);
    });
    expect(await tools.statesOf(device)).toEqual(['closed']);
    expect(await recordsOf(device)).toBe(0);
    await tools.send(device, { data: { bar: 9 } });
    expect(await tools.kindsOf(device, 3)).toEqual(['raised', 'closed', 'raised']);
  });

  it.each(['the next stream', 'the watch'])('that ends before it raises is completed by %s', async (finisher) => {
    const device = await ctx.fixtures.device();
    await tools.send(device, { data: { bar: 9 } });
    const rule = await tools.rule({ conditions: [high], id_device: device });
    const { db } = ctx.service;
    await waitUntil(async () => (await db.collection('alarm_scans').deleteOne({ targets: rule })).deletedCount === 1);
    const killed = evaluate(device, rule, (original) => async (record) => {
      await original(record);
      throw new Error('killed');
    });
    await expect(killed).rejects.toThrow('killed');
    expect([await recordsOf(device), await tools.statesOf(device)]).toEqual([1, []]);
    if (finisher === 'the watch') {
      ctx.service.advance(1);
      await tools.waitForStates(device, ['active']);
    } else await tools.send(device, { data: { bar: 9 } });
    expect(await tools.statesOf(device)).toEqual(['active']);
  });
});

it('an evaluation sees what was received while it wrote', async () => {
  const { device, rule } = await watched();
  const at = ctx.service.now() - 100;
  await tools.send(device, { data: { bar: 9 }, at });
  const { store, db, now } = ctx.service;
  const prepared = (await createRuleSets(db).load('acme')).rules.find(({ id_developer }) => id_developer === rule);
  const stored = await db.collection('devices').findOne({ id_developer: device });
  const [sender] = (await findDevices(db, stored === null ? [] : [stored._id])).values();
  if (sender === undefined || prepared === undefined) throw new Error('the device has no rule');
  const deps = createEvaluation(store, () => now() * 1000);
  const record = await deps.records.find(buildWatchKey(prepared._id, sender._id));
  let isSent = false;
  const records: typeof deps.records = {
    ...deps.records,
    async update(...change) {
      // the alarm is still open, and this value would not end it
      if (!isSent) await tools.send(device, { data: { bar: 10 }, at: at + 2 });
      isSent = true;
      return deps.records.update(...change);
    },
  };
  const sent = { device: sender, entries: [{ at: at + 1, n: mongoose.mongo.Long.ONE, data: { bar: 1 } }] };
  await refreshRecord(
    { ...deps, records },
    prepared,
    sender,
    { step: { ...sent, later: new Set() }, floor: now() },
    record,
  );
  expect(await tools.statesOf(device)).toEqual(['closed', 'active']);
});

describe('a device that is enabled again', () => {
  it('gets no alarm from stored values and status, only from absence', async () => {
    const id_group = await ctx.fixtures.group();
    const device = await ctx.fixtures.device({ id_group });
    const absent = { absent: 'bar', minutes: 60 };
    const conditions = [high, absent, { status: ['no_data'] }];
    await tools.waitForScan(await tools.rule({ conditions, match: 'any', id_device: device }));
    await tools.send(device, { data: { bar: 9 } });
    const states = ['active'];
    for (const path of [pathOf('devices', device), pathOf('groups', id_group)]) {
      await ctx.api.put(path, { enabled: false });
      states.splice(-1, 1, 'closed');
      await tools.waitForStates(device, states);
      await ctx.api.put(path, { enabled: true });
      // absence counts from now on
      await waitUntil(async () => (await recordsOf(device)) === 1);
      expect(await tools.statesOf(device)).toEqual(states);
      ctx.service.advance(3600);
      states.push('active');
      await tools.waitForStates(device, states);
    }
  });
});

it('an absence that is put off raises no alarm from stored values of a device that is enabled again', async () => {
  const device = await ctx.fixtures.device();
  const conditions = [high, { absent: 'beat', minutes: 60 }];
  await tools.waitForScan(await tools.rule({ conditions, match: 'any', id_device: device }));
  await tools.send(device, { data: { bar: 9 } });
  await ctx.api.put(pathOf('devices', device), { enabled: false });
  await tools.waitForStates(device, ['closed']);
  await ctx.api.put(pathOf('devices', device), { enabled: true });
  await waitUntil(async () => (await recordsOf(device)) === 1);
  ctx.service.advance(1800);
  await tools.send(device, { data: { beat: 1 } });
  ctx.service.advance(1800);
  const records = ctx.service.db.collection('alarms');
  const due_at = { $gt: ctx.service.now() };
  await waitUntil(async () => (await records.countDocuments({ device, is_current: true, due_at })) === 1);
  expect(await tools.statesOf(device)).toEqual(['closed']);
  await tools.send(device, { data: { bar: 10 } });
  expect(await tools.statesOf(device)).toEqual(['closed', 'active']);
});

it('a status that changes raises no alarm from stored values of a device that is enabled again', async () => {
  const device = await ctx.fixtures.device({ frequency_stream: 10, frequency_status: 100_000 });
  const conditions = [high, { status: ['no_status'] }];
  await tools.waitForScan(await tools.rule({ conditions, match: 'any', id_device: device }));
  await ctx.api.post('/status/', { device, data: {} });
  await tools.send(device, { data: { bar: 9 } });
  await ctx.api.put(pathOf('devices', device), { enabled: false });
  await tools.waitForStates(device, ['closed']);
  await ctx.api.put(pathOf('devices', device), { enabled: true });
  const query = `type=device.status_changed&id_developer=${encodeURIComponent(device)}`;
  const waitForStatus = async (status: string) => {
    let newest: { id?: string; data?: { to: string } } = {};
    await waitUntil(async () => {
      [newest = {}] = (await ctx.api.get(`/events/?${query}`)).body.result;
      return newest.data?.to === status;
    });
    return newest.id;
  };
  await waitForStatus('ok');
  ctx.service.advance(601);
  const id = await waitForStatus('no_data');
  const positions = ctx.service.db.collection('alarm_watch');
  await waitUntil(async () => (await positions.countDocuments({ event: { $gte: id } })) === 1);
  expect(await tools.statesOf(device)).toEqual(['closed']);
});

describe('a closed alarm that still holds', () => {
  it('is raised again by a stream of the future with its path, when the time has come', async () => {
    const { device } = await watched();
    await tools.send(device, { data: { bar: 9 } });
    const [alarm] = await tools.alarmsOf(device);
    await ctx.api.put(pathOf('alarms', alarm?.id ?? ''), { state: 'closed' });
    const at = ctx.service.now() + 50;
    await tools.send(device, { data: { other: 1 }, at });
    await tools.send(device, { data: { bar: 9 }, at: at + 50 });
    expect(await tools.statesOf(device)).toEqual(['closed']);
    ctx.service.advance(50);
    const devices = ctx.service.db.collection('alarm_devices');
    await waitUntil(async () => (await devices.countDocuments({ due_at: at + 50 })) === 1);
    expect(await tools.statesOf(device)).toEqual(['closed']);
    ctx.service.advance(50);
    await tools.waitForStates(device, ['closed', 'active']);
  });
});

it('changed conditions have to hold for the whole time of `for`', async () => {
  const { device, rule } = await watched({ for: 60 });
  await tools.send(device, { data: { bar: 9, rpm: 1 } });
  await tools.waitForScan(rule);
  ctx.service.advance(50);
  await ctx.api.put(pathOf('alarmrules', rule), { conditions: [{ path: 'rpm', op: '>', value: 0 }] });
  await tools.waitForScan(rule, 'alarmrule.updated');
  ctx.service.advance(59);
  await tools.send(device, { data: { rpm: 2 } });
  expect(await tools.statesOf(device)).toEqual([]);
  ctx.service.advance(1);
  await tools.waitForStates(device, ['active']);
  expect(await tools.alarmsOf(device)).toMatchObject([{ values: { rpm: 2 }, raised_at: ctx.service.now() }]);
});

it.each([[{ clear: 3 }], [{}]])('a late value raises nothing where the last one is lower, with %j', async (more) => {
  const { device } = await watched({ conditions: [{ ...high, ...more }] });
  const at = ctx.service.now() - 100;
  await tools.send(device, { data: { bar: 5 }, at });
  await tools.send(device, { data: { bar: 9 }, at: at - 1 });
  expect([await tools.statesOf(device), await recordsOf(device)]).toEqual([[], 0]);
});

it.each([
  [92, 2, ['active']],
  [2, 92, []],
])(
  'of equal `at` the stream received last counts: %d, not %d, which is evaluated after it',
  async (last, first, states) => {
    const { device } = await watched();
    const at = ctx.service.now() - 100;
    await tools.send(device, { data: { bar: last, other: 1 }, at });
    // its number is lower: that of another instance, or of a batch that was overtaken
    ctx.service.advance(-1);
    await tools.send(device, { data: { bar: first }, at }).finally(() => ctx.service.advance(1));
    expect([await tools.statesOf(device), await recordsOf(device)]).toEqual([states, states.length]);
    expect((await ctx.api.get(`${pathOf('devices', device)}?fields=latest.bar`)).body.latest.data).toEqual({
      bar: last,
    });
  },
);
