import { expect, it } from '@jest/globals';
import { createEvaluation } from '../../../src/alarms/evaluation.js';
import type { OpenAlarms } from '../../../src/alarms/open-alarms.js';
import { createRuleSets } from '../../../src/alarms/rule-sets.js';
import { startAlarmWatch } from '../../../src/alarms/watch.js';
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
    /** Lines that begin so. */
    async scrape(name: string): Promise<string[]> {
      return (await metrics.text()).split('\n').filter((line) => line.startsWith(name));
    },
  };
}

/** An instance that watches, unless another one does. */
function startWatch() {
  const { service } = ctx;
  const { alarms, scrape } = createProcess();
  const counts: (readonly OpenAlarms[])[] = [];
  const moments: (number | undefined)[] = [];
  const metrics = {
    open(open: readonly OpenAlarms[]) {
      counts.push(open);
      alarms.open(open);
    },
    watchedUntil: (moment: number | undefined) => void moments.push(moment),
  };
  const log = { info() {}, warn() {}, error() {} };
  const evaluation = createEvaluation(service.store, () => service.now() * 1000);
  const watch = startAlarmWatch({ ...evaluation, loadRules: createRuleSets(service.db).load, log, metrics });
  return { counts, moments, scrapeOpen: () => scrape('alarms_open{'), stop: () => watch.stop() };
}

it('the instance that watches has the open alarms by account and severity, from its start on', async () => {
  const device = await ctx.fixtures.device();
  for (const severity of ['info', 'critical', 'critical'])
    await tools.rule({ conditions: [{ path: 'bar', op: '>', value: 8 }], id_device: device, severity });
  await tools.send(device, { data: { bar: 9 } });
  const [first] = await tools.alarmsOf(device);
  await ctx.api.put(pathOf('alarms', String(first?.id)), { state: 'acknowledged' });
  const expected = [
    'alarms_open{account="acme",severity="info"} 1',
    'alarms_open{account="acme",severity="warning"} 0',
    'alarms_open{account="acme",severity="critical"} 2',
  ];
  const started = startWatch();
  await waitUntil(() => started.counts.length === 1);
  const waiting = startWatch();
  await waitUntil(() => waiting.counts.length > 0);
  expect([await started.scrapeOpen(), await waiting.scrapeOpen()]).toEqual([expected, []]);
  expect(waiting.moments).not.toContainEqual(expect.any(Number));
  await started.stop();
  expect(await started.scrapeOpen()).toEqual([]);
  expect([started.moments[0], started.moments.at(-1)]).toEqual([expect.any(Number), undefined]);
  await waitUntil(async () => (await waiting.scrapeOpen()).length > 0);
  expect(await waiting.scrapeOpen()).toEqual(expected);
  expect(waiting.moments).toContainEqual(expect.any(Number));
  await waiting.stop();
  await tools.send(device, { data: { bar: 1 } });
  const restarted = startWatch();
  await waitUntil(() => restarted.counts.length > 0);
  expect(await restarted.scrapeOpen()).toEqual([]);
  await restarted.stop();
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
