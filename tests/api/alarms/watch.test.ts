import { expect, it } from '@jest/globals';
import { createEvaluation } from '../../../src/alarms/evaluate.js';
import { recordsOf } from '../../../src/alarms/records.js';
import { createRuleSets } from '../../../src/alarms/rule-sets.js';
import { scheduleScans, startAlarmScans } from '../../../src/alarms/scans.js';
import { startAlarmWatch } from '../../../src/alarms/watch.js';
import { createDueRunner } from '../../../src/db/due-work.js';
import { countFleet } from '../../../src/metrics/fleet-counts.js';
import { createMetrics } from '../../../src/metrics/metrics.js';
import { createAlarmTools } from '../../support/alarms.js';
import { useTestService } from '../../support/expect-status.js';
import { logEvents } from '../../support/logged-events.js';
import { waitUntil } from '../../support/process.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService();
const tools = createAlarmTools(ctx);

/** Metrics of a process. */
function createProcess() {
  const metrics = createMetrics({
    version: '1',
    readState: () => ({ isReady: true, hasPrimary: true, clock_offset_ms: 0 }),
  });
  return {
    alarms: metrics.alarms,
    fleet: metrics.fleet,
    /** Lines that begin so. */
    async scrape(name: string): Promise<string[]> {
      return (await metrics.text()).split('\n').filter((line) => line.startsWith(name));
    },
  };
}

function createDeps() {
  const { store, db, now } = ctx.service;
  const log = { info() {}, warn() {}, error() {} };
  return { ...createEvaluation(store, () => now() * 1000), loadRules: createRuleSets(db).load, log };
}

/** An instance that watches, unless another one does. */
function startWatch() {
  const moments: (number | undefined)[] = [];
  const metrics = { watchedUntil: (moment: number | undefined) => void moments.push(moment) };
  const watch = startAlarmWatch({ ...createDeps(), metrics });
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

it('an instance that takes over looks at what a killed one has only followed', async () => {
  const { db } = ctx.service;
  const device = await ctx.fixtures.device();
  const rule = await tools.rule({ conditions: [{ path: 'bar', op: '>', value: 8 }], id_device: device });
  await tools.send(device, { data: { bar: 9 } });
  await db.collection('alarmrules').deleteOne({ id_developer: rule });
  const deleted = { type: 'alarmrule.deleted', resource: 'alarmrule', id_developer: rule };
  await db
    .collection('alarm_watch')
    .updateOne({ _id: 'position' } as object, { $set: { event: '' } }, { upsert: true });
  const [event = ''] = await logEvents(ctx.service, [deleted]);
  const watch = startWatch();
  await waitUntil(async () => (await db.collection('alarm_watch').countDocuments({ event: { $gte: event } })) === 1);
  await watch.stop();
  expect(await tools.statesOf(device)).toEqual(['active']);
  const scans = startAlarmScans(createDeps());
  await tools.waitForStates(device, ['closed']);
  await scans.stop();
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

it('due work takes accounts in turns, and puts off what fails', async () => {
  type Due = { _id: string; account: string; due_at: number };
  const collection = ctx.service.db.collection<Due>('due_work');
  const worked: string[] = [];
  const warned: unknown[] = [];
  const runDue = createDueRunner<Due>({
    ...{ db: ctx.service.db, open: () => collection, account: 'account', piece_size: 50, failure: 'retrying' },
    log: { info() {}, warn: ({ account }: { account?: unknown }) => void warned.push(account), error() {} },
    async run(due) {
      if (due.some(({ account }) => account === 'broken')) throw new Error('broken');
      worked.push(...due.map(({ account }) => account));
      await collection.deleteMany({ _id: { $in: due.map(({ _id }) => _id) } });
    },
  });
  const large = Array.from({ length: 1200 }, (_, index) => ({ _id: `large ${index}`, account: 'large', due_at: 1 }));
  const later = ['broken', 'small', 'future'].map((account, index) => ({ _id: account, account, due_at: 50 + index }));
  await collection.insertMany([...large, ...later]);
  // the earliest 500 are of one account
  expect([await runDue(51), worked.includes('small')]).toEqual([true, false]);
  expect([await runDue(51), worked.includes('small'), worked.length < 1200]).toEqual([true, true, true]);
  while (await runDue(51));
  expect(worked).toHaveLength(1201);
  expect(warned).toEqual(['broken']);
  expect((await collection.find({}).toArray()).map(({ _id, due_at }) => [_id, due_at])).toEqual([
    ['broken', 56],
    ['future', 52],
  ]);
});

it('scans and deadlines read by indexes what they look at, and nothing else', async () => {
  const { db, now } = ctx.service;
  const id_group = await ctx.fixtures.group();
  const device = await ctx.fixtures.device({ id_group });
  const above = await db.collection('groups').findOne({ id_developer: id_group });
  await ctx.api.post('/filters/', { name: 'all', query: 'type=t' });
  const absent = { absent: 'bar', minutes: 1 };
  const rule = await tools.rule({ conditions: [absent], filter: 'all@acme' });
  await tools.rule({ conditions: [absent, { status: ['no_data'] }], id_device: device });
  const members = {
    tenant: 'acme',
    is_current: true as const,
    revision: 0,
    conditions_key: '',
    met: [true],
    seen: [null],
  };
  const build = (name: string, due_at: number) => ({
    ...{ ...members, _id: db.newId(), rule_id: db.newId(), parent: db.newId(), ancestors: [db.newId()], due_at },
    ...{
      watch_key: `${name} of none`,
      rule: `${name} rule@acme`,
      device: `${name} device@acme`,
      id_project: 'p',
      id_service: 's',
    },
  });
  const others = Array.from({ length: 500 }, (_, index) => build(String(index), now() + 1000));
  const ending = { ...build('ending', now() + 1000), rule };
  await recordsOf(db).insertMany([...others, ending, build('due', now() - 1)]);
  const requests = (['rule', 'below', 'moved', 'updated', 'created', 'status', 'members'] as const).map((kind) => ({
    ...{ _id: kind, account: 'acme', kind },
    targets: kind === 'rule' ? [rule] : kind === 'below' && above !== null ? [above._id] : [device],
  }));
  await scheduleScans(db, [...requests, { _id: 'all', account: 'acme', kind: 'members', targets: [] }]);
  const profiled = recordsOf(db).db;
  await profiled.command({ profile: 2 });
  const jobs = [startAlarmScans(createDeps()), startWatch()];
  await waitUntil(async () => (await db.collection('alarm_scans').countDocuments({})) === 0);
  await waitUntil(async () => (await recordsOf(db).countDocuments({ device: /^(ending|due) / })) === 0);
  await Promise.all(jobs.map((job) => job.stop()));
  await profiled.command({ profile: 0 });
  expect(await recordsOf(db).countDocuments({ watch_key: /of none$/ })).toBe(500);
  const read = {
    op: 'query',
    ns: /[.](alarms|alarm_scans|alarm_devices|devices)$/,
    'command.filter': { $exists: true },
  };
  const queries = await profiled.collection('system.profile').find(read).toArray();
  const wide = queries.filter(
    ({ planSummary, docsExamined, nreturned, ns }) =>
      planSummary === 'COLLSCAN' || (!ns.endsWith('.devices') && docsExamined > nreturned + requests.length),
  );
  expect(wide.map(({ command, planSummary, docsExamined }) => [command, planSummary, docsExamined])).toEqual([]);
  expect(new Set(queries.map(({ ns }) => ns.split('.').at(-1)))).toEqual(new Set(['alarms', 'alarm_scans', 'devices']));
  const looks = await profiled.collection('system.profile').find({ 'command.pipeline.1.$limit': 1 }).toArray();
  expect(JSON.stringify(looks)).toContain('"coll":"alarm_devices"');
  expect(looks.filter(({ planSummary, docsExamined }) => planSummary === 'COLLSCAN' || docsExamined > 0)).toEqual([]);
});
