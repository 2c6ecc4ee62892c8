import { describe, expect, it } from '@jest/globals';
import { parse } from 'csv-parse/sync';
import { useTestService } from '../../support/expect-status.js';
import { pathOf } from '../../support/service.js';

type Json = Record<string, unknown>;

const ctx = await useTestService();

async function deviceWith(streams: readonly Json[]): Promise<string> {
  const id = await ctx.fixtures.device();
  for (let from = 0; from < streams.length; from += 1000)
    expect((await ctx.api.post(pathOf('devices', id, 'streams'), streams.slice(from, from + 1000))).body.code).toBe(
      2001,
    );
  return id;
}

const seriesOf = (id: string, query: string, plural = 'devices') =>
  ctx.api.get(`${pathOf(plural, id, 'series')}?${query}`);

describe('entries (reference/series.md#buckets)', () => {
  it('begin at multiples of the length, in order of time, and leave out buckets without a data stream', async () => {
    const id = await deviceWith([
      { at: 1012, data: { t: 3 } },
      { at: 1000, data: { t: 1, on: true } },
      { at: 1009.5, data: { t: 2 } },
      { at: 1031, data: { on: false } },
      { at: 1001, data: { t: 100 }, _t: 'sta' },
      { at: 1041, data: { t: 5 } },
    ]);
    const { status, body } = await seriesOf(id, 'fields=t&every=10&at_from=1000&at_to=1040');
    expect([status, body]).toEqual([
      200,
      {
        total_documents: 3,
        metadata: { every: 10, at_from: 1000, at_to: 1040 },
        result: [
          { at: 1000, count: 2, t: { avg: 1.5, min: 1, max: 2 } },
          { at: 1010, count: 1, t: { avg: 3, min: 3, max: 3 } },
          { at: 1030, count: 1, t: {} },
        ],
      },
    ]);
  });

  it('have every aggregate; only numbers count, first and last take texts and booleans', async () => {
    const id = await deviceWith([
      { at: 10, data: { v: 'low' } },
      { at: 11, data: { v: 4 } },
      { at: 12, data: { v: [9] } },
      { at: 13, data: { v: 6 } },
      { at: 14, data: { v: true } },
      { at: 15, data: { v: null } },
      { at: 16, data: { v: { w: 1 } } },
      { at: 25, data: { w: 1 } },
    ]);
    const { body } = await seriesOf(
      id,
      'fields=v&aggregate=last,avg,min,max,sum,count,first&every=20&at_from=0&at_to=30',
    );
    expect(body.result).toEqual([
      { at: 0, count: 7, v: { last: true, avg: 5, min: 4, max: 6, sum: 10, count: 2, first: 'low' } },
      { at: 20, count: 1, v: { sum: 0, count: 0 } },
    ]);
    expect(Object.keys(body.result[0].v)[0]).toBe('last');
  });

  it('are found by keys and by JSON Pointers', async () => {
    const data = { a: { b: 1, 0: 6 }, 'a.b': 2, list: [3, { x: 4 }], at: 5, count: 7, 'x/y~z': 8, $eq: 9, '': 10 };
    const id = await deviceWith([{ at: 10, data }]);
    const paths = ['a.b', '/a.b', '/list/0', '/list/1/x', '/at', '/count', '/x~1y~0z', '$eq', '/', '/a/0'];
    const query = (some: readonly string[]) =>
      `fields=${some.map(encodeURIComponent).join()}&aggregate=first&every=60&at_from=0&at_to=59`;
    const { body } = await seriesOf(id, query(paths));
    const { at, count, ...found } = body.result[0];
    expect([at, count]).toEqual([0, 1]);
    expect(found).toEqual(
      Object.fromEntries([1, 2, 3, 4, 5, 7, 8, 9, 10, 6].map((first, index) => [paths[index], { first }])),
    );
    const nothing = await seriesOf(id, query(['list.0', '/list/x', 'a.b.c', '/list/999999999', '__proto__']));
    expect(nothing.text).toContain('"list.0":{},"/list/x":{},"a.b.c":{},"/list/999999999":{},"__proto__":{}');
  });

  it('are the same in XML', async () => {
    const id = await deviceWith([{ at: 10, data: { a: { b: 2 } } }]);
    const { text } = await ctx.api.get(
      `${pathOf('devices', id, 'series')}?fields=a.b,/a/b&aggregate=sum&every=60&at_from=0&at_to=59`,
      { Accept: 'application/xml' },
    );
    expect(text).toContain(
      '<metadata><every>60</every><at_from>0</at_from><at_to>59</at_to></metadata><result><entry><at>0</at>' +
        '<count>1</count><a.b><sum>2</sum></a.b><entry key="/a/b"><sum>2</sum></entry></entry></result>',
    );
  });
});

describe('the formats (reference/series.md#formats)', () => {
  const csvOf = (text: string) => parse(text, { columns: true }) as Record<string, string>[];

  it('CSV has a column for each aggregate of each path, in the order of the request', async () => {
    const id = await deviceWith([
      { at: 10, data: { t: 1.5, a: { b: '=1+1' } } },
      { at: 11, data: { t: 2 } },
      { at: 70, data: {} },
    ]);
    const query = 'fields=t,/a/b,a.b&aggregate=last,sum&every=60&at_from=0&at_to=119';
    const byFormat = await seriesOf(id, `${query}&format=csv`);
    expect([byFormat.status, byFormat.headers['content-type']]).toEqual([200, 'text/csv; charset=utf-8']);
    expect(byFormat.text).toBe(
      'at,count,t.last,t.sum,/a/b.last,/a/b.sum,a.b.last,a.b.sum\r\n' +
        "0,2,2,3.5,'=1+1,0,'=1+1,0\r\n" +
        '60,1,,0,,0,,0\r\n',
    );
    const path = `${pathOf('devices', id, 'series')}?${query}`;
    // as Infinity of Grafana asks for CSV and JSON
    const byAccept = await ctx.api.get(path, { Accept: 'text/csv; charset=utf-8' });
    expect([byAccept.text, byAccept.headers.vary]).toEqual([byFormat.text, expect.stringContaining('Accept')]);
    const json = await ctx.api.get(`${path}&format=json`, { Accept: 'text/csv' });
    const plain = await ctx.api.get(path, { Accept: 'application/json;q=0.9,text/plain' });
    expect([json.body.total_documents, plain.body]).toEqual([2, json.body]);
    const head = await ctx.api.send('HEAD', `${path}&format=csv`);
    expect([head.status, head.headers['content-type']]).toEqual([200, 'text/csv; charset=utf-8']);
    expect(
      (await seriesOf(id, `${query}&at_from=500&at_to=600&format=csv`.replace('at_from=0&at_to=119&', ''))).text,
    ).toBe('at,count,t.last,t.sum,/a/b.last,/a/b.sum,a.b.last,a.b.sum\r\n');
  });

  it('CSV keeps apart paths whose columns begin alike, and those that spreadsheets would execute', async () => {
    const id = await deviceWith([{ at: 10, data: { t: { avg: { sum: 4 }, sum: 7 }, '=x': 3, ['__proto__']: 5 } }]);
    const paths = ['t.avg', 't.avg.sum', 't.sum', '=x', '__proto__'];
    const { text } = await seriesOf(
      id,
      `fields=${encodeURIComponent(paths.join())}&aggregate=sum&every=60&at_from=0&at_to=59&format=csv`,
    );
    expect(text).toBe("at,count,t.avg.sum,t.avg.sum.sum,t.sum.sum,'=x.sum,__proto__.sum\r\n0,1,0,4,7,3,5\r\n");
  });

  it('all have the same entries, with device first by device', async () => {
    const id_group = await ctx.fixtures.group();
    for (let n = 0; n < 3; n++) {
      const id = await ctx.fixtures.device({ id_group, name: `"${n}", device` });
      const streams = Array.from({ length: 200 }, () => ({
        at: Math.round(Math.random() * 10_000 * 8) / 8,
        data: { v: [Math.random() * 100 - 50, 'te"x,t\n', false, null, -1e-9][Math.floor(Math.random() * 5)] },
      }));
      await ctx.api.post(pathOf('devices', id, 'streams'), streams);
    }
    for (const by of ['', '&by=device']) {
      const query = `fields=v&aggregate=first,avg,min,max,sum,count,last&every=300&at_from=0&at_to=10000${by}`;
      const [json, ndjson, csv] = await Promise.all(
        ['json', 'ndjson', 'csv'].map((format) => seriesOf(id_group, `${query}&format=${format}`, 'groups')),
      );
      const entries: Record<string, unknown>[] = json?.body.result;
      expect(entries.length).toBeGreaterThan(30);
      const lines = ndjson?.text
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line));
      expect([ndjson?.headers['content-type'], lines]).toEqual(['application/x-ndjson; charset=utf-8', entries]);
      const isText = (value: unknown) => typeof value === 'string';
      const guard = (value: unknown) => (isText(value) ? value : value === undefined ? '' : String(value));
      const columns = ['first', 'avg', 'min', 'max', 'sum', 'count', 'last'];
      const rows = entries.map(({ v, ...entry }) => ({
        ...Object.fromEntries(Object.entries(entry).map(([key, value]) => [key, String(value)])),
        ...Object.fromEntries(columns.map((name) => [`v.${name}`, guard((v as Json)[name])])),
      }));
      expect(csvOf(csv?.text ?? '')).toEqual(rows);
      expect(csv?.text.startsWith(by === '' ? 'at,count,v.first' : 'device,at,count,v.first')).toBe(true);
    }
  });
});

describe('the length of buckets (reference/series.md#buckets)', () => {
  it.each([
    ['at_from=0&at_to=499', 1],
    ['at_from=0&at_to=500', 2],
    ['at_from=0&at_to=86399', 300],
    ['at_from=0&at_to=86399&points=24', 3600],
    ['at_from=0&at_to=86400&points=24', 7200],
    ['at_from=0&at_to=8640000&points=100', 2 * 86_400],
    ['at_from=0&at_to=8639999&points=100', 86_400],
    ['at_from=86399&at_to=86401&points=1', 2 * 86_400],
    ['at_from=0&at_to=4999&points=5000', 1],
  ])('%s: %d s', async (span, every) => {
    const id = await ctx.fixtures.device();
    const { body } = await seriesOf(id, `fields=t&${span}`);
    expect(body.metadata.every).toBe(every);
    expect(body.result).toEqual([]);
  });

  it('is that of the last 24 h by default', async () => {
    const id = await ctx.fixtures.device();
    const { body } = await seriesOf(id, 'fields=t');
    expect(body.metadata).toEqual({ every: 300, at_from: ctx.service.now() - 86_400, at_to: ctx.service.now() });
  });
});

describe('local time (reference/series.md#local-time)', () => {
  const zones = ['Europe/Madrid', 'America/St_Johns', 'Australia/Lord_Howe', 'Pacific/Chatham'];
  const [at_from, at_to] = [Date.UTC(2025, 2, 1) / 1000, Date.UTC(2025, 10, 15) / 1000];

  /** Dates by another way than the service's: only from instants to dates. */
  function datesOf(timeZone: string, unit: string): (at: number) => string {
    const format = new Intl.DateTimeFormat('sv-SE', { timeZone, year: 'numeric', month: '2-digit', day: '2-digit' });
    return (at) => {
      const date = format.format(Math.floor(at * 1000));
      if (unit === 'month') return `${date.slice(0, 7)}-01`;
      const day_of_week = (new Date(date).getUTCDay() + 6) % 7;
      const monday = new Date(Date.parse(date) - day_of_week * 86_400_000).toISOString().slice(0, 10);
      return unit === 'week' ? monday : date;
    };
  }

  it('agrees with the date of each stream over two changes of summer time, in four zones', async () => {
    const streams = Array.from({ length: 4400 }, (_, n) => ({ at: at_from + n * 5077.5, data: { n } }));
    const id = await deviceWith(streams);
    for (const time_zone of zones) {
      for (const every of ['day', 'week', 'month']) {
        const query = `fields=n&aggregate=sum,first&every=${every}&time_zone=${time_zone}`;
        const { body } = await seriesOf(id, `${query}&at_from=${at_from}&at_to=${at_to}`);
        const dateOf = datesOf(time_zone, every);
        const expected = new Map<string, number[]>();
        for (const { at, data } of streams)
          if (at <= at_to) expected.set(dateOf(at), [...(expected.get(dateOf(at)) ?? []), data.n]);
        const sums = [...expected].map(([local, values]) => ({
          ...{ local, count: values.length },
          n: { sum: values.reduce((sum, n) => sum + n, 0), first: values[0] },
        }));
        const entries: { at: number }[] = body.result;
        expect(entries.map(({ at: _at, ...entry }) => entry)).toEqual(sums);
        const edges = entries.map(({ at }) => [dateOf(at - 0.001), dateOf(at)]);
        expect(edges.every(([before, after]) => before !== after)).toBe(true);
        expect(edges.map(([, after]) => after)).toEqual([...expected.keys()]);
        expect(body.metadata).toEqual({ every, at_from, at_to });
      }
    }
  });

  /** Midnights in Madrid before and after 23 and 25 hours, by hand. */
  const spring = [1_743_202_800, 1_743_289_200, 1_743_372_000];
  const autumn = [1_761_343_200, 1_761_429_600, 1_761_519_600];

  it('has days of 23 and 25 hours, of the zone of the device unless another is asked for', async () => {
    const edges = [...spring, ...autumn].flatMap((at) => [at - 0.001, at]);
    const id = await deviceWith(edges.map((at) => ({ at, data: { at } })));
    const span = (times: number[]) => `at_from=${times[0]}&at_to=${times.at(-1)}`;
    const entry = (local: string, at: number | undefined, count: number) => ({ at, local, count, '/at': { count } });
    const query = 'fields=/at&aggregate=count&every=day';
    expect((await seriesOf(id, `${query}&${span(spring)}`)).body.result).toEqual([
      entry('2025-03-29', spring[0], 2),
      entry('2025-03-30', spring[1], 2),
      entry('2025-03-31', spring[2], 1),
    ]);
    expect((await seriesOf(id, `${query}&${span(autumn)}`)).body.result).toEqual([
      entry('2025-10-25', autumn[0], 2),
      entry('2025-10-26', autumn[1], 2),
      entry('2025-10-27', autumn[2], 1),
    ]);
    const utc = await seriesOf(id, `${query}&time_zone=UTC&${span(spring)}`);
    expect(utc.body.result.map(({ local }: Json) => local)).toEqual(['2025-03-28', '2025-03-29', '2025-03-30']);
    expect(utc.body.result[0].at).toBe(1_743_120_000);
  });

  it('serves several devices, in UTC by default, each by itself, and as CSV', async () => {
    const id_group = await ctx.fixtures.group();
    const ids = [
      await ctx.fixtures.device({ id_group, name: 'a' }),
      await ctx.fixtures.device({ id_group, name: 'b' }),
    ];
    for (const [n, id] of ids.entries())
      await ctx.api.post(pathOf('devices', id, 'streams'), [
        { at: '2025-01-31T23:30:00Z', data: { n } },
        { at: '2025-02-01T00:30:00Z', data: { n } },
      ]);
    const span = 'fields=n&aggregate=sum&every=month&at_from=2025-01-01T00:00:00Z&at_to=2025-03-01T00:00:00Z';
    expect((await seriesOf(id_group, span, 'groups')).body.result).toEqual([
      { at: 1_735_689_600, local: '2025-01-01', count: 2, n: { sum: 1 } },
      { at: 1_738_368_000, local: '2025-02-01', count: 2, n: { sum: 1 } },
    ]);
    const { text } = await seriesOf(id_group, `${span}&by=device&time_zone=Asia/Kathmandu&format=csv`, 'groups');
    expect(text).toBe(
      `device,at,local,count,n.sum\r\n${ids.map((id, n) => `${id},1738347300,2025-02-01,2,${2 * n}\r\n`).join('')}`,
    );
  });

  it('counts 5,000 buckets of the calendar', async () => {
    const id = await deviceWith([{ at: 5, data: { n: 1 } }]);
    const query = 'fields=n&aggregate=sum&time_zone=UTC&at_from=0';
    const days = await seriesOf(id, `${query}&every=day&at_to=${5000 * 86_400 - 1}`);
    expect(days.body.result).toEqual([{ at: 0, local: '1970-01-01', count: 1, n: { sum: 1 } }]);
    const months = await seriesOf(id, `${query}&every=month&at_to=${5000 * 86_400}`);
    expect(months.body.total_documents).toBe(1);
    for (const span of [`every=day&at_to=${5000 * 86_400}`, 'every=month&at_to=1e12']) {
      const { status, body } = await seriesOf(id, `${query}&${span}`);
      expect([status, body.code, Object.keys(body.details)]).toEqual([400, 4004, ['every']]);
    }
  });
});

describe('below an object (reference/series.md#below-an-object)', () => {
  it('all devices count, together or each by itself, and no other', async () => {
    const project = await ctx.fixtures.project();
    const serviceId = await ctx.fixtures.service({ id_project: project });
    const group = await ctx.fixtures.group({ id_service: serviceId });
    const asset = await ctx.fixtures.asset({ id_group: group });
    const inGroup = await ctx.fixtures.device({ id_group: group, name: 'b' });
    const inAsset = await ctx.fixtures.device({ id_asset: asset, name: 'a' });
    const outside = await ctx.fixtures.device();
    for (const [index, id] of [inGroup, inAsset, outside].entries())
      await ctx.api.post(pathOf('devices', id, 'streams'), [
        { at: 10, data: { t: index } },
        { at: 70, data: { t: index } },
      ]);
    const span = 'fields=t&aggregate=sum&every=60&at_from=0&at_to=119';
    for (const [plural, id] of Object.entries({ projects: project, services: serviceId, groups: group })) {
      expect((await seriesOf(id, span, plural)).body.result).toEqual([
        { at: 0, count: 2, t: { sum: 1 } },
        { at: 60, count: 2, t: { sum: 1 } },
      ]);
    }
    expect((await seriesOf(asset, span, 'assets')).body.result).toEqual([
      { at: 0, count: 1, t: { sum: 1 } },
      { at: 60, count: 1, t: { sum: 1 } },
    ]);
    const { body } = await seriesOf(project, `${span}&by=device`, 'projects');
    expect(body.total_documents).toBe(4);
    expect(body.result).toEqual([
      { device: inAsset, at: 0, count: 1, t: { sum: 1 } },
      { device: inAsset, at: 60, count: 1, t: { sum: 1 } },
      { device: inGroup, at: 0, count: 1, t: { sum: 0 } },
      { device: inGroup, at: 60, count: 1, t: { sum: 0 } },
    ]);
  });

  it('by=device takes 100 devices', async () => {
    const group = await ctx.fixtures.group();
    for (let n = 0; n < 101; n++) {
      if (n === 100) expect((await seriesOf(group, 'fields=t&by=device', 'groups')).status).toBe(200);
      await ctx.fixtures.device({ id_group: group });
    }
    const { status, body } = await seriesOf(group, 'fields=t&by=device', 'groups');
    expect([status, body.code, Object.keys(body.details)]).toEqual([400, 4004, ['by']]);
    expect((await seriesOf(group, 'fields=t', 'groups')).status).toBe(200);
  });
});

describe('a wrong request', () => {
  it.each([
    ['', 'fields'],
    ['fields=', 'fields'],
    ['fields=a,,b', 'fields'],
    ['fields=a,a', 'fields'],
    ['fields=at', 'fields'],
    ['fields=count', 'fields'],
    ['fields=/a~2', 'fields'],
    ['fields=a,b,c,d,e,f,g,h,i,j,k', 'fields'],
    ['fields=a&every=60&points=10', 'points'],
    ['fields=a&every=0', 'every'],
    ['fields=a&every=1.5', 'every'],
    ['fields=a&every=hour', 'every'],
    ['fields=a&every=day&points=10', 'points'],
    ['fields=a&every=3600&time_zone=UTC', 'time_zone'],
    ['fields=a&points=10&time_zone=UTC', 'time_zone'],
    ['fields=a&time_zone=UTC', 'time_zone'],
    ['fields=a&every=day&time_zone=Mars/Base', 'time_zone'],
    ['fields=a,local&every=day', 'fields'],
    ['fields=a&points=5001', 'points'],
    ['fields=a&every=1', 'every'],
    ['fields=a&every=1&at_from=0&at_to=5000', 'every'],
    ['fields=a&at_from=10&at_to=9', 'at_from'],
    ['fields=a&aggregate=median', 'aggregate'],
    ['fields=a&aggregate=avg,avg', 'aggregate'],
    ['fields=a&by=device', 'by'],
    ['fields=a&max=10', 'max'],
    ['fields=a&format=yaml', 'format'],
    ['fields=a&at_from[$gt]=0', 'at_from[$gt]'],
    ['fields=a&$where=1', '$where'],
  ])('%s answers 4004', async (query, param) => {
    const id = await ctx.fixtures.device();
    const { status, body } = await seriesOf(id, query);
    expect([status, body.code, Object.keys(body.details)]).toEqual([400, 4004, [param]]);
  });

  it('for a device path beside by=device answers 4004', async () => {
    const group = await ctx.fixtures.group();
    expect((await seriesOf(group, 'fields=device&by=device', 'groups')).body.code).toBe(4004);
    expect((await seriesOf(group, 'fields=/device&by=device', 'groups')).status).toBe(200);
  });

  it('for what does not exist, or is of another account, answers 4041', async () => {
    const id = await ctx.fixtures.device();
    const other = await ctx.service.client({ account: 'globex' });
    expect((await other.get(`${pathOf('devices', id, 'series')}?fields=t`)).body.code).toBe(4041);
    for (const plural of ['devices', 'groups', 'assets', 'services', 'projects'])
      expect((await seriesOf('none@acme', 'fields=t', plural)).body.code).toBe(4041);
  });
});
