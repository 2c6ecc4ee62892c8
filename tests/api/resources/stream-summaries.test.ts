import { describe, expect, it } from '@jest/globals';
import { silentLog } from '../../../src/lib/log.js';
import { removeOldStreams } from '../../../src/streams/retention.js';
import { summariesOf } from '../../../src/summaries/hours.js';
import { createSummaryWork } from '../../../src/summaries/job.js';
import { useTestService } from '../../support/expect-status.js';
import { pathOf } from '../../support/service.js';

/** Summaries of hours (docs/decisions/0035-summaries-of-hours.md). */
const ctx = await useTestService();
const turn = { isLeaseHeld: () => true, pause: async () => undefined };

/** Brings all summaries up to date, a minute and more after the last change. */
async function summarizeAll(): Promise<void> {
  ctx.service.advance(61);
  const { db, now } = ctx.service;
  const work = createSummaryWork({ db, log: silentLog, metrics: { until() {}, summarized() {} } });
  for (let isMore = true; isMore; ) isMore = await work(now(), turn);
}

const send = async (id: string, streams: readonly object[]) =>
  expect((await ctx.api.post(pathOf('devices', id, 'streams'), streams)).body.code).toBe(2001);

const all = 'aggregate=avg,min,max,sum,count,first,last';
const readSeries = async (id: string, query: string) =>
  (await ctx.api.get(`${pathOf('devices', id, 'series')}?${query}`)).body.result;

const stored = (id: string) =>
  summariesOf(ctx.service.db)
    .find({ '_id.device': id } as object, { sort: { _id: 1 } })
    .toArray();

const t0 = 1_699_920_000;

describe('an hour', () => {
  it('is summarised by path once it is over, and answers instead of its streams', async () => {
    const id = await ctx.fixtures.device();
    await send(id, [
      { at: t0 + 10, data: { t: 4, deep: { x: 1.5 }, list: [7, { y: 8 }], name: 'a', on: true } },
      { at: t0 + 20, data: { t: 1 } },
      { at: t0 + 20, data: { t: 2, 'a/b~c': 5 } },
      { at: t0 + 3600, data: { t: 9 } },
      { at: t0 + 15, data: { t: 100 }, _t: 'sta' },
    ]);
    const query = `fields=t,deep.x,/list/0,/list/1/y,/a~1b~0c&every=3600&at_from=${t0}&at_to=${t0 + 7199}&${all}`;
    const before = await readSeries(id, query);
    expect(before[0].t).toEqual({ avg: 7 / 3, min: 1, max: 4, sum: 7, count: 3, first: 4, last: 2 });
    await summarizeAll();
    const [first, second] = await stored(id);
    expect([first?.streams, second?.streams]).toEqual([3, 1]);
    expect(Object.keys(first?.paths ?? {})).toEqual(['/t', '/deep/x', '/list/0', '/list/1/y', '/a~1b~0c']);
    expect(first?.paths?.['/t']).toMatchObject({ count: 3, sum: 7, min: 1, max: 4 });
    expect([first?.paths?.['/t']?.first.value, first?.paths?.['/t']?.last.value]).toEqual([4, 2]);
    expect(first?.texts).toBe(true);
    expect(await readSeries(id, query)).toEqual(before);
    await ctx.service.db.collection('streams').deleteMany({ '_id.device': id });
    const { result } = (
      await ctx.api.get(`${pathOf('devices', id, 'series')}?fields=t&every=3600&at_from=${t0}&at_to=${t0 + 7200}`)
    ).body;
    expect(result).toEqual([
      { at: t0, count: 3, t: { avg: 7 / 3, min: 1, max: 4 } },
      { at: t0 + 3600, count: 1, t: { avg: 9, min: 9, max: 9 } },
    ]);
  });

  it('is read from streams after a late one and a deletion, until it is summarised again', async () => {
    const id = await ctx.fixtures.device();
    await send(id, [
      { at: t0 + 1, data: { t: 1 } },
      { at: t0 + 3601, data: { t: 5 } },
    ]);
    await summarizeAll();
    const query = `fields=t&every=3600&at_from=${t0}&at_to=${t0 + 7200}&aggregate=sum,first`;
    const read = () => readSeries(id, query);
    expect(await read()).toEqual([
      { at: t0, count: 1, t: { sum: 1, first: 1 } },
      { at: t0 + 3600, count: 1, t: { sum: 5, first: 5 } },
    ]);
    await send(id, [{ at: t0, data: { t: 2 } }]);
    const later = [
      { at: t0, count: 2, t: { sum: 3, first: 2 } },
      { at: t0 + 3600, count: 1, t: { sum: 5, first: 5 } },
    ];
    expect(await read()).toEqual(later);
    expect((await stored(id)).map(({ mark }) => mark === undefined)).toEqual([false, true]);
    await summarizeAll();
    expect((await stored(id)).map(({ mark }) => mark === undefined)).toEqual([true, true]);
    expect(await read()).toEqual(later);
    await ctx.api.delete(`${pathOf('devices', id, 'streams')}?at_from=${t0 + 1}&at_to=${t0 + 4000}`);
    const left = [{ at: t0, count: 1, t: { sum: 2, first: 2 } }];
    expect(await read()).toEqual(left);
    await summarizeAll();
    expect(await read()).toEqual(left);
  });
});

describe('retention (reference/series.md#summaries)', () => {
  const sumsOf = (id: string) =>
    readSeries(id, `fields=t&every=3600&at_from=${t0}&at_to=${t0 + 10_800}&aggregate=sum,first,last`);
  const removeOld = (days: { streams?: number; summaries?: number }) =>
    removeOldStreams(ctx.service.db, days, ctx.service.now(), turn);
  const countStreams = (id: string) => ctx.service.db.collection('streams').countDocuments({ '_id.device': id });

  it('keeps the summaries, adds late streams to them, and takes deletions out', async () => {
    const id = await ctx.fixtures.device({ stream_retention_days: 1 });
    await send(id, [
      { at: t0 + 1, data: { t: 1 } },
      { at: t0 + 2, data: { t: 'on' }, _t: 'sta' },
      { at: t0 + 3600, data: { t: 4 } },
      { at: t0 + 7200, data: { t: 8 } },
    ]);
    await removeOld({});
    expect(await countStreams(id)).toBe(4);
    await summarizeAll();
    await removeOld({});
    expect(await countStreams(id)).toBe(0);
    const whole = [
      { at: t0, count: 1, t: { sum: 1, first: 1, last: 1 } },
      { at: t0 + 3600, count: 1, t: { sum: 4, first: 4, last: 4 } },
      { at: t0 + 7200, count: 1, t: { sum: 8, first: 8, last: 8 } },
    ];
    expect(await sumsOf(id)).toEqual(whole);
    await send(id, [
      { at: t0 + 5, data: { t: 20 } },
      { at: t0 + 3599, data: { t: 40 } },
    ]);
    const added = [{ at: t0, count: 3, t: { sum: 61, first: 1, last: 40 } }, ...whole.slice(1)];
    expect(await sumsOf(id)).toEqual(added);
    await removeOld({});
    expect(await countStreams(id)).toBe(2);
    await summarizeAll();
    expect(await sumsOf(id)).toEqual(added);
    await removeOld({});
    expect(await countStreams(id)).toBe(0);
    expect(await sumsOf(id)).toEqual(added);
    await send(id, [{ at: t0 + 6, data: { t: 100 } }]);
    const remove = async (query: string) =>
      (await ctx.api.delete(`${pathOf('devices', id, 'streams')}?${query}`)).body.details;
    expect(await remove(`at_from=${t0 + 6}&at_to=${t0 + 6}`)).toEqual({});
    expect(await remove('_t=str')).toEqual({});
    expect(await sumsOf(id)).toEqual(added);
    expect(await remove(`at_from=${t0 + 1}&at_to=${t0 + 7300}`)).toEqual({ summaries: 1 });
    expect(await sumsOf(id)).toEqual([added[0], added[2]]);
    await summarizeAll();
    expect(await sumsOf(id)).toEqual([added[0], added[2]]);
    expect(await remove('')).toEqual({ summaries: 2 });
    expect(await sumsOf(id)).toEqual([]);
  });

  it('removes summaries by their own days, once their streams are gone', async () => {
    const id = await ctx.fixtures.device({ summary_retention_days: 2 });
    const now = ctx.service.now();
    const old = Math.floor(now / 3600) * 3600 - 3 * 86_400;
    await send(id, [
      { at: old, data: { t: 1 } },
      { at: old + 86_400 + 7200, data: { t: 2 } },
    ]);
    await summarizeAll();
    await removeOld({});
    expect(await stored(id)).toHaveLength(2);
    await removeOld({ streams: 1 });
    await removeOld({ streams: 1 });
    expect((await stored(id)).map(({ _id }) => Number(_id.at))).toEqual([old + 86_400 + 7200]);
  });
});

it('answers for many devices, some with marked hours', async () => {
  const id_group = await ctx.fixtures.group();
  const ids = await Promise.all(Array.from({ length: 23 }, () => ctx.fixtures.device({ id_group })));
  for (const [n, id] of ids.entries())
    await send(
      id,
      [0, 1, 2, 3].map((hour) => ({ at: t0 + 3600 * hour + n, data: { t: n + 100 * hour } })),
    );
  const query = (every: number) => `fields=t&every=${every}&at_from=${t0}&at_to=${t0 + 14_400}&${all}`;
  const read = async () => {
    const path = pathOf('groups', id_group, 'series');
    const lists = [query(3600), query(7200), `${query(7200)}&by=device`].map(
      async (each) => (await ctx.api.get(`${path}?${each}`)).body.result,
    );
    return Promise.all(lists);
  };
  const before = await read();
  expect(before[1]?.[1]).toEqual({
    at: t0 + 7200,
    count: 46,
    t: { avg: 261, min: 200, max: 322, sum: 12_006, count: 46, first: 200, last: 322 },
  });
  await summarizeAll();
  expect(await read()).toEqual(before);
  for (const id of ids.slice(0, 2)) await send(id, [{ at: t0 + 3601, data: { t: 1000 } }]);
  const marked = await read();
  expect(marked[0]?.[1]).toMatchObject({ count: 25, t: { sum: 4553, max: 1000 } });
  await summarizeAll();
  expect(await read()).toEqual(marked);
});

it.each(['Asia/Kathmandu', 'Europe/Madrid', 'Australia/Lord_Howe'])('answers days of %s', async (time_zone) => {
  const id = await ctx.fixtures.device({ time_zone });
  // from Saturday to Monday around the change of the clocks in Madrid, every 20 minutes
  const from = 1_698_440_400;
  const streams = Array.from({ length: 180 }, (_, n) => ({ at: from + 1200 * n, data: { t: n } }));
  await send(id, streams);
  const query = `fields=t&every=day&at_from=${from - 90_000}&at_to=${from + 260_000}&${all}`;
  const before = await readSeries(id, query);
  expect(before.reduce((sum: number, { count }: { count: number }) => sum + count, 0)).toBe(180);
  await summarizeAll();
  expect(await stored(id)).toHaveLength(60);
  expect(await readSeries(id, query)).toEqual(before);
});
