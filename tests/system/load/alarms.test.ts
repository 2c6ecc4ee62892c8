import { describe, expect, it } from '@jest/globals';
import { type AlarmRecord, createRecordBatches, recordsOf } from '../../../src/alarms/records.js';
import { createAlarmTools } from '../../support/alarms.js';
import { repeat, useTestService } from '../../support/expect-status.js';
import { waitForEvents } from '../../support/logged-events.js';
import { waitUntil } from '../../support/process.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService({ eventLog: true });
const tools = createAlarmTools(ctx);
const high = { path: 'bar', op: '>', value: 8 };
const count = 60;

describe('devices that cross together', () => {
  it('raise and close one alarm of each rule, with their own values', async () => {
    const id_group = await ctx.fixtures.group();
    const devices = await repeat(count, () => ctx.fixtures.device({ id_group }));
    for (const severity of ['info', 'critical']) await tools.rule({ conditions: [high], id_group, severity });
    const where = `id_group=${encodeURIComponent(id_group)}`;
    const list = async () => (await ctx.api.get(`/alarms/?${where}&max=1000&fields=device,severity,state,values`)).body;
    const sendAll = (values: (index: number) => object) =>
      ctx.api.post(
        '/streams/',
        devices.map((device, index) => ({ device, data: values(index) })),
      );
    expect((await sendAll((index) => ({ bar: 9 + index }))).body).toEqual({ response: 'OK' });
    const expected = devices.flatMap((device, index) =>
      ['info', 'critical'].map((severity) => ({ device, severity, state: 'active', values: { bar: 9 + index } })),
    );
    const raised = await list();
    expect(raised.total_documents).toBe(2 * count);
    expect(raised.result).toEqual(expect.arrayContaining(expected));
    // two thirds end, beside others that only go on
    expect((await sendAll((index) => ({ bar: index % 3 === 0 ? 10 : 1 }))).body).toEqual({ response: 'OK' });
    const open = (await list()).result.filter(({ state }: { state: string }) => state === 'active');
    expect(open.map(({ device }: { device: string }) => devices.indexOf(device) % 3)).toEqual(Array(40).fill(0));
    const events = await waitForEvents(ctx.api, `resource=alarm&${where}&max=1000`, 200);
    const kindsOf = (device: string) => events.filter((event) => event.id_developer === device).map(({ type }) => type);
    expect(kindsOf(devices[0] ?? '')).toEqual(['alarm.raised', 'alarm.raised']);
    expect(kindsOf(devices[1] ?? '')).toEqual([...Array(2).fill('alarm.raised'), ...Array(2).fill('alarm.closed')]);
    expect(events).toHaveLength(200);
  });

  it('fall silent together, and each raises the alarm of its status', async () => {
    const id_group = await ctx.fixtures.group();
    const devices = await repeat(count, () =>
      ctx.fixtures.device({ id_group, frequency_stream: 10, frequency_status: 100_000 }),
    );
    const streams = devices.map((device) => ({ device, data: { bar: 1 } }));
    await ctx.api.post('/streams/', streams);
    await ctx.api.post(
      '/status/',
      devices.map((device) => ({ device, data: {} })),
    );
    await tools.waitForScan(await tools.rule({ conditions: [{ status: ['no_data'] }], id_group }));
    ctx.service.advance(700);
    const total = async (state: string) =>
      (await ctx.api.get(`/alarms/?id_group=${encodeURIComponent(id_group)}&state=${state}&max=1`)).body
        .total_documents;
    await waitUntil(async () => (await total('active')) === count);
    await ctx.api.post('/streams/', streams);
    await waitUntil(async () => (await total('closed')) === count);
  });

  it('are looked at by a new rule, also where the path is far behind', async () => {
    const id_group = await ctx.fixtures.group();
    const devices = await repeat(count, () => ctx.fixtures.device({ id_group }));
    const at = ctx.service.now() - 100;
    const streams = devices.flatMap((device, index) => [
      { device, data: { bar: index }, at },
      ...Array.from({ length: index % 13 }, () => ({ device, data: { other: 1 }, at: at + 1 })),
    ]);
    expect((await ctx.api.post('/streams/', streams)).body).toEqual({ response: 'OK' });
    await tools.waitForScan(await tools.rule({ conditions: [high], id_group }));
    const where = `id_group=${encodeURIComponent(id_group)}&max=1000&fields=device,values`;
    const { result } = (await ctx.api.get(`/alarms/?${where}`)).body;
    expect(result).toHaveLength(count - 9);
    for (const { device, values } of result) expect(values).toEqual({ bar: devices.indexOf(device) });
  });
});

it('a write that is refused says so, beside others of its command', async () => {
  const id_group = await ctx.fixtures.group();
  const devices = await repeat(4, () => ctx.fixtures.device({ id_group }));
  await tools.rule({ conditions: [high], id_group });
  for (const device of devices) await tools.send(device, { data: { bar: 9 } });
  const { db } = ctx.service;
  const records = createRecordBatches(db);
  const stored = await recordsOf(db)
    .find({ device: { $in: devices } })
    .toArray();
  const [same, changed, gone, kept] = stored as [AlarmRecord, AlarmRecord, AlarmRecord, AlarmRecord];
  await ctx.api.put(pathOf('alarms', changed.id ?? ''), { state: 'acknowledged' });
  await recordsOf(db).deleteOne({ _id: gone._id });
  const change = { set: { note: 'n' }, unset: ['due_at' as const] };
  const [updated, ...refused] = await Promise.all([
    records.update(same, change),
    records.update(changed, change),
    records.update(gone, change),
    records.delete(changed),
  ]);
  expect(refused).toEqual([undefined, undefined, undefined]);
  expect(updated).toMatchObject({ _id: same._id, note: 'n', state: 'active' });
  expect(await records.find(same.watch_key)).toEqual(updated);
  expect(await records.find(changed.watch_key)).toMatchObject({ state: 'acknowledged' });
  expect(await records.find(gone.watch_key)).toBe(undefined);
  expect(await records.delete(kept)).toBe('none');
  expect(await records.find(kept.watch_key)).toBe(undefined);
});
