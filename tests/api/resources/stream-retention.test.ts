import { expect, it } from '@jest/globals';
import { silentLog } from '../../../src/lib/log.js';
import { removeOldStreams } from '../../../src/streams/retention.js';
import { progressOf } from '../../../src/summaries/hours.js';
import { createSummaryWork } from '../../../src/summaries/job.js';
import { summarize, useTestService } from '../../support/expect-status.js';
import { pathOf } from '../../support/service.js';
import { buildStreamDocument } from '../../support/stream-documents.js';

/** Removal of old streams (reference/streams.md#retention). */
const ctx = await useTestService();
const day_s = 86_400;
const turn = { isLeaseHeld: () => true, pause: async () => undefined };
let id_group = '';

id_group = await ctx.fixtures.group();

/** Creates a device with a stream of each age in days. */
async function createDevice(ages: readonly number[], fields: Record<string, unknown> = {}): Promise<string> {
  const id = await ctx.fixtures.device({ id_group, ...fields });
  const streams = ages.map((age) => ({ at: ctx.service.now() - age * day_s, data: { age } }));
  expect((await ctx.api.post(pathOf('devices', id, 'streams'), streams)).body.code).toBe(2001);
  return id;
}

async function agesOf(id: string): Promise<number[]> {
  const { result } = (await ctx.api.get(`${pathOf('devices', id, 'streams')}?order=-1`)).body;
  return result.map(({ data }: { data: { age: number } }) => data.age);
}

/** Summarises all streams again, also those that a test has written to the database. */
async function summarizeAll(): Promise<void> {
  const { db, now } = ctx.service;
  await progressOf(db).deleteMany({});
  const work = createSummaryWork({ db, log: silentLog, metrics: { until() {}, summarized() {} } });
  for (let isMore = true; isMore; ) isMore = await work(now() + 61, turn);
}

async function removeOld(days?: number): Promise<void> {
  await summarizeAll();
  await removeOldStreams(ctx.service.db, { streams: days }, ctx.service.now(), turn);
}

it('removes by `at`, by the days of the device before those of its model before those of all', async () => {
  const id_model = await ctx.fixtures.model({ stream_retention_days: 20 });
  const ages = [-1, 0, 5, 10, 15, 20, 25, 30, 31, 40];
  const plain = await createDevice(ages);
  const ofModel = await createDevice(ages, { id_model });
  const own = await createDevice(ages, { id_model, stream_retention_days: 10 });
  const longer = await createDevice(ages, { stream_retention_days: 36_500 });
  const otherModel = await createDevice(ages, { id_model: await ctx.fixtures.model() });
  await removeOld();
  expect(await agesOf(plain)).toEqual(ages);
  expect(await agesOf(ofModel)).toEqual([-1, 0, 5, 10, 15, 20]);
  expect(await agesOf(own)).toEqual([-1, 0, 5, 10]);
  await removeOld(30);
  expect(await agesOf(plain)).toEqual([-1, 0, 5, 10, 15, 20, 25, 30]);
  expect(await agesOf(otherModel)).toEqual([-1, 0, 5, 10, 15, 20, 25, 30]);
  expect(await agesOf(ofModel)).toEqual([-1, 0, 5, 10, 15, 20]);
  expect(await agesOf(longer)).toEqual(ages);
  const change = { stream_retention_days: null };
  expect((await ctx.api.put(pathOf('devices', own), change)).body.details).not.toHaveProperty('stream_retention_days');
  await ctx.api.put(pathOf('models', id_model), { stream_retention_days: 5 });
  await removeOld(30);
  expect(await agesOf(own)).toEqual([-1, 0, 5]);
  expect((await ctx.api.get(pathOf('devices', longer))).body.stream_retention_days).toBe(36_500);
});

it('keeps the status of a device, and logs no event', async () => {
  const id = await createDevice([40], { stream_retention_days: 1 });
  const before = (await ctx.api.get(pathOf('devices', id))).body;
  const tombstones = () => ctx.service.db.collection('tombstones').countDocuments({ resource: 'streams' });
  const logged = await tombstones();
  await removeOld();
  expect(await agesOf(id)).toEqual([]);
  expect((await ctx.api.get(pathOf('devices', id))).body).toEqual(before);
  expect(await tombstones()).toBe(logged);
});

it('removes in pieces, and stops when its turn ends', async () => {
  const id = await createDevice([0], { stream_retention_days: 1 });
  const device = await ctx.service.db.collection('devices').findOne({ id_developer: id });
  const streams = Array.from({ length: 12_000 }, (_, n) =>
    buildStreamDocument({ device: id, parent: device?._id, at: n, place: 0, data: { age: n } }),
  );
  await ctx.service.db.collection('streams').insertMany(streams);
  const count = () => ctx.service.db.collection('streams').countDocuments({ '_id.device': id });
  let pauses = 0;
  const ending = {
    isLeaseHeld: () => pauses < 2,
    async pause() {
      pauses++;
    },
  };
  await summarizeAll();
  await removeOldStreams(ctx.service.db, {}, ctx.service.now(), ending);
  expect(await count()).toBe(7001);
  await removeOld();
  expect(await count()).toBe(1);
});

it('pauses after each device, however few streams it had', async () => {
  const count = 3;
  for (let number = 0; number < count; number++) await createDevice([40], { stream_retention_days: 1 });
  const pauses: number[] = [];
  const pace = { isLeaseHeld: () => true, pause: async (milliseconds: number) => void pauses.push(milliseconds) };
  await summarizeAll();
  await removeOldStreams(ctx.service.db, {}, ctx.service.now(), pace);
  expect(pauses).toHaveLength(count + 1);
  expect(Math.min(...pauses)).toBeGreaterThan(0);
});

it.each([0, -1, 36_501, 1.5, '7', true])('refuses %j days', async (stream_retention_days) => {
  const device = { type: 't', name: 'n', id_group, stream_retention_days };
  expect(summarize(await ctx.api.post('/devices/', device))).toBe('4003 stream_retention_days');
  const model = { name: 'never', enabled: true, stream_retention_days };
  expect(summarize(await ctx.api.post('/models/', model))).toBe('4003 stream_retention_days');
});
