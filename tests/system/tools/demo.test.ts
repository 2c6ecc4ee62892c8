import { expect, it } from '@jest/globals';
import { issueKey } from '../../../src/objects/api-keys.js';
import { useTestService } from '../../support/expect-status.js';
import { waitUntil } from '../../support/process.js';
import { runTool } from '../../support/tools.js';

const ctx = await useTestService({ eventLog: true });

it('fills stations with a day of readings, and raises alarms, once', async () => {
  const { key } = await issueKey(ctx.service.db, { account: 'demo', username: 'tool', scope: 'write' }, 0);
  const env = { PORT: new URL(ctx.service.url).port, API_KEY: key };
  const first = await runTool('demo', ['--count', '60'], env);
  expect(first).toMatchObject({
    code: 0,
    out: expect.stringMatching(/60 devices, 3 device configs, \d+ streams, 3 alarm rules\n/),
  });
  expect(first.out).toContain(`npm run simulate -- --url ${ctx.service.url} --devices`);
  // a service without a broker
  expect(first.out).not.toContain('--mqtt');
  const demo = await ctx.service.client({ account: 'demo' });
  const total = async (path: string) => (await demo.get(path)).body.total_documents;
  const streams = await total('/streams/?max=1');
  expect(first.out).toContain(` ${streams} streams`);
  const enabled = await total('/devices/?enabled=true&max=1');
  const ok = await total('/devices/?status=ok&max=1');
  expect(ok).toBeGreaterThan(enabled * 0.7);
  expect(await total('/devices/?status=no_data&max=1')).toBeGreaterThan(0);
  expect(await total('/devices/?status=no_status&max=1')).toBeGreaterThan(0);
  const [device] = (await demo.get('/devices/?status=ok&max=1')).body.result;
  const path = `/devices/${encodeURIComponent(device.id_developer)}/streams/`;
  const readings = (await demo.get(`${path}?_t=str`)).body.result;
  expect(readings).toHaveLength(48);
  expect(readings[0].data).toEqual({
    temperature_c: expect.any(Number),
    humidity_percent: expect.any(Number),
    wind_m_s: expect.any(Number),
    wind_from_deg: expect.any(Number),
  });
  const times: number[] = readings.map(({ at }: { at: number }) => at);
  expect(times.slice(1).every((at, index) => at - (times[index] ?? 0) === 1800)).toBe(true);
  const temperatures: number[] = readings.map(({ data }: { data: { temperature_c: number } }) => data.temperature_c);
  expect(Math.max(...temperatures) - Math.min(...temperatures)).toBeGreaterThan(4);
  expect((await demo.get(`${path}?_t=sta`)).body.result).toHaveLength(6);
  const { measures, properties } = (await demo.get('/models/Weather%20station%20mk%20II@demo/')).body;
  expect([measures[0], properties.measures]).toEqual([
    ...[{ path: 'temperature_c', name: 'Temperature', unit: '°C', decimals: 1, min: -40, max: 60, filter: true }],
    undefined,
  ]);
  const files = (await demo.get('/devices/deviceconfigs/counts/?config=station.json&config_desired=2.1.0')).body;
  const countOf = (status: string) =>
    files.result
      .filter((entry: { status: string }) => entry.status === status)
      .reduce((sum: number, { count }: { count: number }) => sum + count, 0);
  expect([countOf('applied'), countOf('refused')]).toEqual([5, 1]);
  expect(countOf('pending')).toBe(files.total_documents - 6);
  expect(await total('/filters/?max=1')).toBe(2);
  await waitUntil(async () => (await total('/events/?type=command.done&max=1')) === 3);
  const raised = '/alarms/?rule=No%20readings%40demo&max=1';
  const late = await total('/devices/?status=no_data&max=1');
  await waitUntil(async () => (await total(raised)) === late);
  const second = await runTool('demo', ['--count', '60'], env);
  expect(second.out).toContain('created: nothing, everything existed already');
  expect(await total('/streams/?max=1')).toBe(streams);
  expect(await total('/events/?type=command.done&max=1')).toBe(3);
});
