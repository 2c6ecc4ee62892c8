import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { beforeAll, describe, expect, it } from '@jest/globals';
import { listMetrics } from '../../scripts/docs.js';
import type { Log } from '../../src/db/database.js';
import { deriveFilterIndex } from '../../src/db/indexes.js';
import { buildCountPipeline, countFleet, type FleetCounts, startFleetCounts } from '../../src/metrics/fleet-counts.js';
import { createWorkerMetrics } from '../../src/metrics/worker-metrics.js';
import { byStatus } from '../../src/resources/device/status.js';
import { device } from '../../src/resources/index.js';
import { useTestService } from '../support/expect-status.js';
import { waitUntil } from '../support/process.js';

const ctx = await useTestService();

async function scrape(): Promise<string> {
  const { status, text } = await ctx.service.clientWith(undefined).get('/metrics');
  expect(status).toBe(200);
  return text;
}

/** The value of a series, or undefined. */
function readSeries(text: string, series: string): number | undefined {
  const line = text.split('\n').find((candidate) => candidate.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length + 1));
}

describe('the table of metrics', () => {
  const page = readFileSync('docs/operations.md', 'utf8');

  it('has every metric that the service exposes', async () => {
    const exposed = [...(await scrape()).matchAll(/^# TYPE (\w+) /gm)].map(([, name]) => name);
    expect(exposed).toContain('http_requests_in_flight');
    // those of the runtime are in one line
    const declared = exposed.filter((name = '') => !/^(?:process|nodejs)_/.test(name));
    for (const name of declared) expect(page).toContain(`\`${name}\``);
  });

  it('has no cell that breaks the table', async () => {
    for (const { name, help } of await listMetrics())
      expect([name, help]).toEqual([name, expect.not.stringMatching(/[|\n]/)]);
  });
});

const promtool = (args: string[], input?: string) => spawnSync('promtool', args, { encoding: 'utf8', input });
const itWithPromtool = promtool(['--version']).status === 0 ? it : it.skip;

describe('the metrics of a process', () => {
  itWithPromtool('pass `promtool check metrics` (package prometheus of Debian)', async () => {
    const { status, stdout, stderr } = promtool(['check', 'metrics'], await scrape());
    expect([status, stdout + stderr]).toEqual([0, '']);
  });

  it('state version, readiness and database', async () => {
    const text = await scrape();
    const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
    expect(readSeries(text, `device_platform_build_info{version="${version}"}`)).toBe(1);
    expect(readSeries(text, 'device_platform_ready')).toBe(1);
    expect(readSeries(text, 'database_up')).toBe(1);
  });

  it('state that it is not ready after an interrupted operation', async () => {
    ctx.service.db.markNotReady();
    expect(readSeries(await scrape(), 'device_platform_ready')).toBe(0);
    await waitUntil(() => ctx.service.db.isReady());
    expect(readSeries(await scrape(), 'device_platform_ready')).toBe(1);
  });

  it('count requests in flight', async () => {
    // the scrape itself is one
    expect(readSeries(await scrape(), 'http_requests_in_flight')).toBe(1);
    const live = await fetch(`${ctx.service.url}/events/live/`, { headers: await keyHeader() });
    expect(live.status).toBe(200);
    expect(readSeries(await scrape(), 'http_requests_in_flight')).toBe(2);
    await live.body?.cancel();
    await waitUntil(async () => readSeries(await scrape(), 'http_requests_in_flight') === 1);
  });

  it('count connections to the database and the waits for them', async () => {
    const before = readSeries(await scrape(), 'database_pool_wait_seconds_count') ?? 0;
    await Promise.all(Array.from({ length: 20 }, (_, n) => ctx.api.get(`/projects/?offset=${n}`)));
    const text = await scrape();
    expect(readSeries(text, 'database_pool_wait_seconds_count')).toBeGreaterThanOrEqual(before + 20);
    expect(readSeries(text, 'database_pool_wait_failures_total')).toBe(0);
    const open = ['in_use', 'idle'].map(
      (state) => readSeries(text, `database_pool_connections{state="${state}"}`) ?? -1,
    );
    for (const count of open) expect(count).toBeGreaterThanOrEqual(0);
    expect((open[0] ?? 0) + (open[1] ?? 0)).toBeGreaterThan(0);
  });
});

async function keyHeader(): Promise<Record<string, string>> {
  const { body } = await ctx.api.post('/apikeys/', { username: 'metrics', scope: 'read' });
  return { 'service.apikey': body.details.key };
}

describe('the count of the fleet', () => {
  beforeAll(async () => {
    const now = ctx.service.now();
    // [stream_safe_until, status_safe_until] relative to now
    const bounds = [
      [1, 1],
      [1, 1],
      [1, 1],
      [-1, 1],
      [-1, 1],
      [1, 0],
      [-1, -1],
    ];
    const devices = bounds.map(([stream = 0, status = 0], n) => ({
      _id: ctx.service.db.newId(),
      account: n % 2 ? 'acme' : 'other',
      id_developer: `d ${n}@acme`,
      stream_safe_until: now + stream,
      status_safe_until: now + status,
      stream_late_from: now + 100,
    }));
    await ctx.service.db.collection('devices').insertMany(devices);
    await ctx.service.client({ account: 'other' });
    await ctx.service.client({ account: 'third' });
  });

  const expected: FleetCounts = {
    // acme, other and third, and demo of the first key
    accounts: 4,
    devices: { ok: 3, no_data: 2, no_status: 1, disconnected: 1 },
    alarms: [],
  };

  it('has devices by status and accounts with a key', async () => {
    expect(await countFleet(ctx.service.db, ctx.service.now())).toEqual(expected);
  });

  it('is made by one instance, and by another after that has stopped', async () => {
    const { db } = ctx.service;
    const log: Log = { info() {}, warn() {}, error() {} };
    const reports: (FleetCounts | undefined)[][] = [[], [], []];
    const start = (n: number) =>
      startFleetCounts({
        db,
        log,
        clock: () => ctx.service.now() * 1000,
        report: (counts) => reports[n]?.push(counts),
      });
    const first = start(0);
    await waitUntil(async () => reports[0]?.length === 1);
    const second = start(1);
    await waitUntil(async () => reports[1]?.length === 1);
    // or it might take over before the third one asks
    await second.stop();
    await first.stop();
    const third = start(2);
    await waitUntil(async () => reports[2]?.length === 1);
    await third.stop();
    expect(reports).toEqual([[expected], [undefined], [expected]]);
  });

  it('examines index entries only', async () => {
    const { key } = deriveFilterIndex(device, byStatus);
    const pipeline = buildCountPipeline(ctx.service.now());
    const count = { aggregate: 'devices', pipeline, cursor: {}, hint: key };
    const plan = JSON.stringify(await ctx.service.db.command({ explain: count, verbosity: 'executionStats' }));
    expect(plan).toContain('PROJECTION_COVERED');
    expect(plan).toContain('DISTINCT_SCAN');
    expect(plan).not.toContain('COLLSCAN');
    const examined = [...plan.matchAll(/"totalDocsExamined":(.+?)[,}]/g)].map(([, count]) => count);
    expect(new Set(examined)).toEqual(new Set(['0']));
  });
});

describe('the sum over workers', () => {
  const counter = (value: number) => [
    { name: 'c_total', help: 'c', type: 'counter', aggregator: 'sum', values: [{ value, labels: {} }] },
    { name: 'g', help: 'g', type: 'gauge', aggregator: 'sum', values: [{ value, labels: {} }] },
  ];
  const snapshot = (value: number) =>
    counter(value) as unknown as Parameters<ReturnType<typeof createWorkerMetrics>['record']>[1];

  it('keeps counters of workers that died together, and drops their gauges', async () => {
    const metrics = createWorkerMetrics();
    for (const [id, value] of [3, 4, 5].entries()) metrics.record(id, snapshot(value));
    expect(readSeries(await metrics.text(), 'c_total')).toBe(12);
    await Promise.all([metrics.retire(0), metrics.retire(1)]);
    const text = await metrics.text();
    expect([readSeries(text, 'c_total'), readSeries(text, 'g')]).toEqual([12, 5]);
    await metrics.retire(2);
    metrics.record(3, snapshot(1));
    const after = await metrics.text();
    expect([readSeries(after, 'c_total'), readSeries(after, 'g')]).toEqual([13, 1]);
  });
});
