import { expect, it } from '@jest/globals';
import { createEvaluation } from '../../../src/alarms/evaluation.js';
import { createRuleSets } from '../../../src/alarms/rule-sets.js';
import { startAlarmWatch } from '../../../src/alarms/watch.js';
import { countFleet } from '../../../src/metrics/fleet-counts.js';
import { createMetrics } from '../../../src/metrics/metrics.js';
import { createAlarmTools } from '../../support/alarms.js';
import { useTestService } from '../../support/expect-status.js';
import { logEvents } from '../../support/logged-events.js';
import { waitUntil } from '../../support/process.js';
import { pathOf } from '../../support/service.js';

const ctx = useTestService();
const tools = createAlarmTools(ctx);

/** Metrics of a process. */
function createProcess() {
  const metrics = createMetrics({ version: '1', readState: () => ({ isReady: true, hasPrimary: true }) });
  return {
    alarms: metrics.alarms,
    fleet: metrics.fleet,
    /** Lines that begin so. */
    async scrape(name: string): Promise<string[]> {
      return (await metrics.text()).split('\n').filter((line) => line.startsWith(name));
    },
  };
}

/** An instance that watches, unless another one does. */
function startWatch() {
  const { service } = ctx;
  const moments: (number | undefined)[] = [];
  const metrics = { watchedUntil: (moment: number | undefined) => void moments.push(moment) };
  const log = { info() {}, warn() {}, error() {} };
  const evaluation = createEvaluation(service.store, () => service.now() * 1000);
  const watch = startAlarmWatch({ ...evaluation, loadRules: createRuleSets(service.db).load, log, metrics });
  return { moments, stop: () => watch.stop() };
}

it('one instance watches, and another after that has stopped', async () => {
  const started = startWatch();
  await waitUntil(() => started.moments.length > 1);
  const waiting = startWatch();
  await waitUntil(() => waiting.moments.length > 0);
  expect(waiting.moments).not.toContainEqual(expect.any(Number));
  await started.stop();
  expect([started.moments[0], started.moments.at(-1)]).toEqual([expect.any(Number), undefined]);
  await waitUntil(() => waiting.moments.some((moment) => typeof moment === 'number'));
  await waiting.stop();
});

it('the count of the fleet has the open alarms by account and severity', async () => {
  const device = await ctx.fixtures.device();
  for (const severity of ['info', 'critical', 'critical'])
    await tools.rule({ conditions: [{ path: 'bar', op: '>', value: 8 }], id_device: device, severity });
  await tools.send(device, { data: { bar: 9 } });
  const [first] = await tools.alarmsOf(device);
  await ctx.api.put(pathOf('alarms', String(first?.id)), { state: 'acknowledged' });
  const { fleet, scrape } = createProcess();
  const count = () => countFleet(ctx.service.db, ctx.service.now());
  fleet(await count());
  expect(await scrape('alarms_open{')).toEqual([
    'alarms_open{account="acme",severity="info"} 1',
    'alarms_open{account="acme",severity="warning"} 0',
    'alarms_open{account="acme",severity="critical"} 2',
  ]);
  fleet(undefined);
  expect(await scrape('alarms_open{')).toEqual([]);
  await tools.send(device, { data: { bar: 1 } });
  fleet(await count());
  expect(await scrape('alarms_open{')).toEqual([]);
});

it('an instance that takes over reviews again what a killed one may have reviewed once only', async () => {
  const { db } = ctx.service;
  const device = await ctx.fixtures.device();
  const rule = await tools.rule({ conditions: [{ path: 'bar', op: '>', value: 8 }], id_device: device });
  await tools.send(device, { data: { bar: 9 } });
  await db.collection('alarmrules').deleteOne({ id_developer: rule });
  const deleted = { type: 'alarmrule.deleted', resource: 'alarmrule', id_developer: rule };
  const [event = ''] = await logEvents(ctx.service, [deleted]);
  await db.collection('alarm_watch').updateOne({ _id: 'position' } as object, { $set: { event } }, { upsert: true });
  const watch = startWatch();
  await tools.waitForStates(device, ['closed']);
  await watch.stop();
});

it('a process has the lag and the time of evaluations from its start on', async () => {
  const { alarms, scrape } = createProcess();
  expect(await scrape('alarms_lag_seconds ')).toEqual(['alarms_lag_seconds 0']);
  expect(await scrape('alarms_evaluation_seconds_count')).toEqual(['alarms_evaluation_seconds_count 0']);
  alarms.evaluated(3);
  alarms.watchedUntil(Date.now() - 60_000);
  expect(await scrape('alarms_evaluation_seconds_bucket{le="0.005"}')).toEqual([
    'alarms_evaluation_seconds_bucket{le="0.005"} 1',
  ]);
  expect((await scrape('alarms_lag_seconds '))[0]).toMatch(/ 60\.\d+$|60$/);
  alarms.watchedUntil(undefined);
  expect(await scrape('alarms_lag_seconds ')).toEqual(['alarms_lag_seconds 0']);
});
