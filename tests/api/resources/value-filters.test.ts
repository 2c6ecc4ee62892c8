import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { OpaqueJson } from '../../../src/db/opaque-json.js';
import { silentLog } from '../../../src/lib/log.js';
import { refreshValues } from '../../../src/objects/values/jobs.js';
import { measuredPathsOf } from '../../../src/objects/values/measured-paths.js';
import { openReview } from '../../../src/objects/values/reviews.js';
import type { StreamingDevice } from '../../../src/objects/values/stream-values.js';
import { toKeptPaths, valuesOf } from '../../../src/objects/values/values.js';
import { buildDocument, insertDocuments, setSender } from '../../../src/streams/documents.js';
import { createNumbering } from '../../../src/streams/numbering.js';
import { removeOldStreams } from '../../../src/streams/retention.js';
import { createSummaryWork } from '../../../src/summaries/job.js';
import { summarize, useTestService } from '../../support/expect-status.js';
import { sendImport } from '../../support/import.js';
import { waitForEvents } from '../../support/logged-events.js';
import { waitUntil } from '../../support/process.js';
import { type Receiver, startReceiver } from '../../support/receiver.js';
import { pathOf } from '../../support/service.js';

/** Filters and sort by the values that devices sent last (reference/lists.md#paths). */
const errors: unknown[] = [];
const log = { info() {}, warn() {}, error: (fields: object) => void errors.push(fields) };
const ctx = await useTestService({ webhook_allow_nets: ['127.0.0.0/8'], deliver: true, eventLog: true, log });
let now: number;

const names = (body: { result: { name: string }[] }) => body.result.map(({ name }) => name).join('');
const namesAt = async (query: string, client = api) => {
  const { status, body } = await client.get(`/devices/?${query}&fields=name`);
  expect([query, status]).toEqual([query, 200]);
  const found = names(body);
  expect([query, body.total_documents]).toEqual([query, found.length]);
  return found;
};
const waitForNames = (query: string, expected: string) =>
  waitUntil(async () => names((await api.get(`/devices/?${query}&fields=name`)).body) === expected);
const send = async (name: string, data: object, at = now) =>
  expect((await api.post('/streams/', { device: `${name}@gauges`, at, data })).body).toEqual({ response: 'OK' });
const create = (name: string, more: object = {}) =>
  ctx.api && api.post('/devices/', { name, type: 'extra', id_group: 'Yard@gauges', ...more });
const measure = (path: string, more: object = {}) => ({ path, filter: true, ...more });

const api = await ctx.service.client({ account: 'gauges' });
now = ctx.service.now();
const device = (name: string, more: object = {}) => ({
  ...{ resource: 'device', name, type: 'gauge', id_group: 'Hall@gauges' },
  ...more,
});
const { totals } = await sendImport(api, [
  { resource: 'project', name: 'North', id_customer: 'c' },
  { resource: 'service', name: 'Water', id_project: 'North@gauges' },
  { resource: 'group', name: 'Hall', id_service: 'Water@gauges' },
  { resource: 'group', name: 'Yard', id_service: 'Water@gauges' },
  { resource: 'model', name: 'Numbers', measures: [{ path: '/temp', type: 'number' }] },
  { resource: 'model', name: 'Any' },
  ...['a', 'b', 'c', 'd', 'e', 'f', 'g'].map((name) => device(name)),
  device('h', { type: 'mute', id_group: 'Yard@gauges', properties: { room: 'A' } }),
  device('i'),
  device('j', { id_group: 'Yard@gauges' }),
]);
expect(totals.failed).toBe(0);
await send('a', { bar: 1 }, now - 100);
await send('a', { other: 1 }, now - 50);
await send('g', { bar: 99 }, now + 1000);
const measures = ['bar', 'temp', 'valve', '/a.b', 'list', '/list/0', 'gps.lat'].map((path) => measure(path));
expect(summarize(await api.post('/models/', { name: 'Gauge', measures }))).toBe('2001');

describe('a path that has just been declared', () => {
  it('answers 5031 while many stored streams are read', async () => {
    const paths = ctx.service.db.collection<{ fill_at: number }>('measured_paths');
    const { modifiedCount } = await paths.updateMany({}, { $inc: { fill_at: 3_600_000 } });
    expect(modifiedCount).toBeGreaterThan(0);
    const { body } = await api.get('/devices/?latest.bar=1');
    expect(body.code).toBe(5031);
    expect(body.details).toEqual({ 'latest.bar': 'is not complete yet: stored streams are being read' });
    expect(summarize(await api.post('/filters/', { name: 'Early', query: 'latest.bar_from=1' }))).toBe('2001');
    const refused = ['?sort=latest./a.b', 'counts/?by=type&filter=Early@gauges'];
    const answers = await Promise.all(refused.map((query) => api.get(`/devices/${query}`)));
    expect(answers.map(summarize)).toEqual(['5031 sort', '5031 filter']);
    expect(errors).toEqual([]);
    await paths.updateMany({}, { $inc: { fill_at: -3_600_000 } });
  });

  it('is waited for', async () => {
    expect(await namesAt('latest.bar=1')).toBe('a');
  });
});

describe('the last value', () => {
  beforeAll(async () => {
    await send('b', { bar: 12, valve: 'open' });
    await send('c', { bar: '12', valve: true });
    await send('d', { bar: 5 }, now - 1);
    await send('d', { bar: null });
    await send('e', { bar: 20, 'a.b': 1, a: { b: 2 }, list: [7, 8], gps: { lat: -3.5 } }, now - 10);
    await send('e', { bar: 3 }, now - 20);
    await send('e', { other: 1 });
    const twice = [7, 8].map((bar) => ({ at: now - 5, data: { bar } }));
    await api.post(pathOf('devices', 'f@gauges', 'streams'), twice);
    await send('g', { bar: 2 }, now - 5);
    await api.post('/status/', { device: 'h@gauges', at: now, data: { bar: 50 } });
    await send('i', { bar: true, list: { '0': 'x' } });
    await send('j', { bar: 8 }, now - 1);
  });

  it.each([
    ['latest.bar=12', 'bc'],
    ['latest.bar=12.0', 'b'],
    ['latest.bar=true', 'i'],
    ['latest.bar=1', 'a'],
    ['latest.bar=null', ''],
    ['latest.bar=5', ''],
    ['latest.bar=50', ''],
    ['latest.bar=7', ''],
    ['latest.bar=3', ''],
    ['latest.bar=99', ''],
    ['latest.bar_from=12', 'be'],
    ['latest.bar_to=2', 'ag'],
    ['latest.bar_from=2&latest.bar_to=8', 'fgj'],
    ['latest.bar_from=2&latest./bar_to=8&latest.bar=8', 'fj'],
    ['latest.valve=open', 'b'],
    ['latest.valve=true', 'c'],
    ['latest.valve=OPEN', ''],
    ['latest./a.b=1', 'e'],
    ['latest./list/0=7', 'e'],
    ['latest./list/0=x', 'i'],
    ['latest.list=7', ''],
    ['latest.gps.lat_to=0', 'e'],
    ['latest.bar_from=2&type=gauge&id_group=Yard@gauges', 'j'],
    ['latest.bar=12&latest.valve=true', 'c'],
    ['latest.bar=12&latest.valve=true&latest.gps.lat=1', ''],
    ['latest.bar_from=1&properties.room=A', ''],
    ['latest.bar_from=1&status=disconnected', ''],
    ['latest.bar_from=7&order=-1', 'jfeb'],
    ['latest.bar_from=7&sort=created_at&order=-1', 'jfeb'],
    ['latest.bar_from=2&name=g', 'g'],
    ['filter=Early@gauges&latest.bar_to=2', 'ag'],
  ])('selects by ?%s', async (query, expected) => {
    expect(await namesAt(query)).toBe(expected);
  });

  it.each([
    ['sort=latest.bar', 'dhagfjbeci'],
    ['sort=latest./bar&order=-1', 'icebjfgahd'],
    ['sort=latest.bar&type=gauge', 'dagfjbeci'],
    ['sort=latest.bar&latest.bar_from=2', 'gfjbe'],
    ['sort=latest.bar&latest.bar_from=2&order=-1&id_group=Hall@gauges', 'ebfg'],
    ['sort=latest.bar&latest.bar=12', 'bc'],
    ['sort=latest.bar&latest.valve=open', 'b'],
    ['sort=latest.valve&latest.bar=12', 'bc'],
    ['sort=latest.gps.lat&latest.bar_from=12', 'be'],
    ['sort=latest.gps.lat&order=-1&filter=Early@gauges&latest.bar_from=12', 'eb'],
    ['sort=latest.valve&status=no_data', 'h'],
  ])('sorts by ?%s', async (query, expected) => {
    expect(await namesAt(query)).toBe(expected);
    const { total_documents } = (await api.get(`/devices/?${query}&max=2`)).body;
    let paged = '';
    for (let offset = 0; offset < total_documents; offset += 2) {
      const { body } = await api.get(`/devices/?${query}&max=2&offset=${offset}&fields=name`);
      expect([query, offset, body.total_documents]).toEqual([query, offset, total_documents]);
      paged += names(body);
    }
    expect([query, paged]).toEqual([query, expected]);
    expect((await api.get(`/devices/?${query}&offset=${total_documents}`)).body.result).toEqual([]);
  });

  it('selects devices wherever they are filtered', async () => {
    expect((await api.get('/devices/counts/?by=id_group&latest.bar_from=2')).body).toEqual({
      total_documents: 5,
      result: [
        { id_group: 'Hall@gauges', count: 4 },
        { id_group: 'Yard@gauges', count: 1 },
      ],
    });
    expect((await api.get('/devices/?format=csv&fields=name,latest.bar&latest.bar_from=12&sort=latest.bar')).text).toBe(
      ['name,latest.at,latest.bar', `b,${now},12`, `e,${now},`, ''].join('\r\n'),
    );
    expect((await api.get('/devices/?format=ndjson&fields=name&latest.bar_from=12')).text).toBe(
      '{"name":"b"}\n{"name":"e"}\n',
    );
    const page = (await api.get('/devices/?after=0&max=1&fields=name&latest.bar_from=12')).body;
    expect([names(page), page.total_documents, page.next]).toEqual(['b', 2, 'b@gauges']);
    const rest = (await api.get('/devices/?after=b@gauges&fields=name&latest.bar_from=12')).body;
    expect([names(rest), rest.next]).toEqual(['e', undefined]);
    const children = (await api.get('/groups/Yard@gauges/devices/?latest.bar_from=2&fields=name')).body;
    expect([names(children), children.total_documents]).toEqual(['j', 1]);
    const patch = (confirm: number) => api.patch(`/devices/?latest.bar=12&confirm=${confirm}`, { sensor: 'light' });
    expect((await api.patch('/devices/?latest.bar=12', { sensor: 'light' })).body.details).toEqual({ matched: 2 });
    expect(summarize(await patch(3))).toBe('4005 matched');
    expect((await patch(2)).body.details).toEqual({ matched: 2, changed: 2 });
    expect(await namesAt('sensor=light')).toBe('bc');
    const command = await api.post('/devices/commands/?latest.bar=8&confirm=2', { name: 'reset' });
    expect(command.body.details).toEqual({ matched: 2, changed: 2 });
    await api.post('/filters/', { name: 'High', query: 'latest.bar_from=12' });
    const series = await api.get('/devices/series/?filter=High@gauges&fields=bar&aggregate=max,count&every=86400');
    expect(series.body.result).toEqual([{ at: expect.any(Number), count: 4, bar: { max: 20, count: 3 } }]);
  });

  it.each([
    ['latest.gone=1', 'latest.gone'],
    ['latest.other_from=1', 'latest.other_from'],
    ['latest=1', 'latest'],
    ['latest.=1', 'latest.'],
    ['latest.bar=', 'latest.bar'],
    ['latest.bar=1&latest.bar=2', 'latest.bar'],
    ['latest.bar_from=x', 'latest.bar_from'],
    ['latest.bar_from=2&latest.bar_to=1', 'latest.bar_from'],
    ['latest.bar=1&latest.temp=1&latest.valve=1&latest.list=1', 'latest.list'],
    ['latest.bar=1&latest.temp=1&properties.valve=1&properties.list=1', 'properties.list'],
    ['latest.bar=1&latest.temp=1&latest.valve=1&sort=latest.list', 'sort'],
    ['sort=latest.gone', 'sort'],
    ['sort=latest', 'sort'],
    ['sort=latest.', 'sort'],
    ['sort=properties.room', 'sort'],
    ['after=0&sort=latest.bar', 'after'],
    ['filter=Early@gauges&latest.temp=1&latest.valve=1&sort=latest.list', 'filter'],
  ])('refuses ?%s', async (query, field) => {
    expect(summarize(await api.get(`/devices/?${query}`))).toBe(`4004 ${field}`);
    expect(summarize(await api.get(`/devices/?format=csv&${query}`))).toBe(`4004 ${field}`);
  });

  it('is refused elsewhere', async () => {
    expect(summarize(await api.get('/devices/counts/?by=latest.bar'))).toBe('4004 by');
    expect(summarize(await api.get('/devices/counts/?by=type&sort=latest.bar'))).toBe('4004 sort');
    expect(summarize(await api.get('/groups/?latest.bar=1'))).toBe('4004 latest.bar');
    expect(summarize(await api.patch('/devices/?latest.gone=1', { sensor: 'x' }))).toBe('4004 latest.gone');
    expect(summarize(await api.delete('/devices/?sort=latest.bar&type=gauge'))).toBe('4004 sort');
    const gone = await api.post('/filters/', { name: 'Gone', query: 'type=pump&latest.gone=1' });
    expect(summarize(gone)).toBe('4003 query');
    expect(gone.body.details.query).toBe('latest.gone: is the path of no measure with filter');
    expect(summarize(await api.post('/filters/', { name: 'Sorted', query: 'sort=latest.bar' }))).toBe('4003 query');
    const other = await ctx.service.client({ account: 'other' });
    expect(summarize(await other.get('/devices/?latest.bar=1'))).toBe('4004 latest.bar');
  });

  it('is not compared where the suffix may belong to a declared path', async () => {
    await api.post('/models/', { name: 'Suffixed', measures: [measure('/bar_from')] });
    await waitUntil(async () => (await api.get('/devices/?latest.bar_from_eq=1')).status === 200);
    const fault =
      'may mean the path latest.bar_from, which latest.bar_from_eq compares, or the lower bound of latest.bar';
    expect((await api.get('/devices/?latest.bar_from=12')).body.details).toEqual({ 'latest.bar_from': fault });
    expect(summarize(await api.get('/devices/?filter=Early@gauges'))).toBe('4004 filter');
    expect(await namesAt('latest.bar_eq=12')).toBe('bc');
    await api.delete('/models/Suffixed@gauges/');
    expect(await namesAt('latest.bar_from=12')).toBe('be');
  });

  it('is narrowed for a limited key', async () => {
    const issued = await api.post('/apikeys/', { username: 'lina', scope: 'write', id_group: 'Yard@gauges' });
    const limited = ctx.service.clientWith(issued.body.details.key);
    expect(await namesAt('latest.bar_from=2', limited)).toBe('j');
    expect(await namesAt('sort=latest.bar', limited)).toBe('hj');
    expect(await namesAt('sort=latest.bar&order=-1', limited)).toBe('jh');
    expect((await limited.patch('/devices/?latest.bar_from=2', { sensor: 'x' })).body.details).toEqual({ matched: 1 });
    const own = await api.post('/apikeys/', { username: 'lina', scope: 'read', id_device: 'b@gauges' });
    const ofDevice = ctx.service.clientWith(own.body.details.key);
    expect(await namesAt('latest.bar=12', ofDevice)).toBe('b');
    expect(await namesAt('latest.bar=8', ofDevice)).toBe('');
  });
});

describe('the type of a measure', () => {
  it('is that of the model of the device at that moment', async () => {
    await create('k', { id_model: 'Numbers@gauges' });
    await create('l', { id_model: 'Any@gauges' });
    await create('m', { id_model: 'Numbers@gauges' });
    for (const [name, temp] of [
      ['k', '5'],
      ['l', '5'],
      ['m', 5],
    ] as const)
      await send(name, { temp });
    expect(await namesAt('latest.temp=5')).toBe('lm');
    expect(await namesAt('sort=latest.temp&type=extra')).toBe('kml');
    await api.put('/devices/k@gauges/', { id_model: 'Any@gauges' });
    expect(await namesAt('latest.temp=5')).toBe('klm');
    await api.put('/models/Any@gauges/', { measures: [{ path: 'temp', type: 'boolean' }] });
    expect(await namesAt('latest.temp=5')).toBe('m');
    expect(await namesAt('latest.temp_from=5&latest.bar_to=5')).toBe('');
    await api.delete('/models/Any@gauges/');
    expect(await namesAt('latest.temp=5')).toBe('klm');
  });
});

describe('a change', () => {
  const fresh = async (name: string, ...values: [bar: unknown, at: number][]) => {
    await create(name);
    for (const [bar, at] of values) await send(name, { bar }, at);
    expect(await namesAt('latest.bar_from=1000&sort=latest.bar')).toBe(name);
  };

  it('of streams by their deletion makes the one before count', async () => {
    await fresh('n', [900, now - 3], [1000, now - 2], [1001, now - 1]);
    const path = pathOf('devices', 'n@gauges', 'streams');
    const { id_developer } = (await api.get(`${path}?at_from=${now - 1}`)).body.result[0];
    await api.delete(pathOf('streams', id_developer));
    await waitForNames('latest.bar=1000', 'n');
    await api.delete(`${path}?at_from=${now - 2}`);
    await waitForNames('latest.bar=900', 'n');
    await api.delete(path);
    await waitForNames('latest.bar=900', '');
    await send('n', { bar: 7 }, now - 50);
    expect(await namesAt('latest.bar=7')).toBe('n');
    await api.delete('/devices/n@gauges/');
  });

  it('of a late stream counts though the later one is deleted meanwhile', async () => {
    await fresh('z', [900, now - 30], [1000, now - 10]);
    const { db } = ctx.service;
    const stored = await db.collection<StreamingDevice>('devices').findOne({ id_developer: 'z@gauges' });
    const paths = toKeptPaths(await measuredPathsOf(db).find({ path: '/bar' }).toArray());
    const last = { parent: stored?._id, 'data.bar': 1000 };
    expect((await db.collection('streams').deleteOne(last)).deletedCount).toBe(1);
    const values = valuesOf(db);
    // between the look at the streams and the write
    const bulkWrite: typeof values.bulkWrite = async (writes, options) => {
      await send('z', { bar: 950 }, now - 20);
      return values.bulkWrite(writes, options);
    };
    const racing = Object.create(values, { bulkWrite: { value: bulkWrite } });
    const collection = (name: string) => (name === values.collectionName ? racing : db.collection(name));
    await refreshValues(
      Object.create(db, { collection: { value: collection } }),
      stored === null ? [] : [stored],
      paths,
      now,
    );
    expect(await namesAt('latest.bar=950')).toBe('z');
    await api.delete('/devices/z@gauges/');
  });

  it('of the hierarchy leaves no value behind', async () => {
    await fresh('o', [1000, now]);
    await api.put('/devices/o@gauges/', { id_group: 'Hall@gauges' });
    expect(await namesAt('latest.bar=1000&id_group=Hall@gauges')).toBe('o');
    await api.delete('/devices/o@gauges/');
    expect(await namesAt('latest.bar=1000')).toBe('');
    await create('o');
    expect(await namesAt('latest.bar=1000')).toBe('');
    await send('o', { bar: 6 }, now - 30);
    expect(await namesAt('latest.bar=6')).toBe('o');
    const dry = await api.delete('/devices/o@gauges/?dry_run=1');
    expect(dry.body.details).toEqual({ device: 1, stream: 1 });
    expect((await api.delete('/devices/?latest.bar=6&confirm=1')).body.details).toEqual({ matched: 1, changed: 1 });
    const left = { device: 'o@gauges' };
    await waitUntil(async () => (await ctx.service.db.collection('device_values').countDocuments(left)) === 0);
  });

  it('by retention is seen', async () => {
    await fresh('p', [1000, now - 900_000]);
    const { db } = ctx.service;
    const pace = { isLeaseHeld: () => true, pause: async () => undefined };
    const work = createSummaryWork({ db, log: silentLog, metrics: { until() {}, summarized() {} } });
    for (let isMore = true; isMore; ) isMore = await work(now + 61, pace);
    await removeOldStreams(db, { streams: 10 }, now, pace);
    await waitForNames('latest.bar=1000', '');
    await api.delete('/devices/p@gauges/');
  });

  it('of the time makes streams of the future count, one after the other', async () => {
    await create('q');
    await api.post(pathOf('devices', 'q@gauges', 'streams'), [
      { at: now, data: { bar: 1000 } },
      { at: now + 100, data: { bar: 1001 } },
      { at: now + 200, data: { other: 1 } },
      { at: now + 300, data: { bar: 1002 } },
    ]);
    expect(await namesAt('latest.bar_from=1000')).toBe('q');
    expect(await namesAt('latest.bar=1000')).toBe('q');
    ctx.service.advance(100);
    await waitForNames('latest.bar=1001', 'q');
    ctx.service.advance(200);
    await waitForNames('latest.bar=1002', 'q');
    // the stream of before the declaration
    ctx.service.advance(700);
    await waitForNames('latest.bar=99', 'g');
    await api.delete('/devices/q@gauges/');
    now = ctx.service.now();
  });

  it('that a crash interrupted between the write of streams and that of values is completed', async () => {
    await create('r');
    const { db } = ctx.service;
    const sender = await db.collection('devices').findOne({ id_developer: 'r@gauges' });
    if (sender === null) throw new Error('there is no device');
    await openReview(db, [sender._id], now);
    const next = createNumbering(() => now * 1000);
    const entry = { device: 'r@gauges', _t: 'str' as const, protocol: 'http', data: new OpaqueJson({ bar: 1000 }) };
    const documents = [now, now + 60].map((at) =>
      buildDocument({ account: 'gauges', user: undefined, now }, { ...entry, at, checksum: undefined }, next(now)),
    );
    for (const document of documents) setSender(document, { _id: sender._id, owner: 'alice' });
    await insertDocuments(db, documents, next);
    expect(await namesAt('latest.bar=1000')).toBe('');
    ctx.service.advance(10);
    await waitForNames('latest.bar=1000', 'r');
    // the review of the interrupted write ends after that of the device is scheduled
    const reviewed = async () =>
      (await db.collection('device_value_reviews').find().toArray()).map(({ _id }) => `${_id}`);
    await waitUntil(async () => (await reviewed()).join() === `${sender._id}`);
    expect(await db.collection('device_value_reviews').findOne()).toMatchObject({ _id: sender._id, due_at: now + 60 });
    await api.delete('/devices/r@gauges/');
    now = ctx.service.now();
  });
});

describe('a saved filter', () => {
  let receiver: Receiver;
  beforeAll(async () => {
    receiver = await startReceiver();
  });
  afterAll(() => receiver.close());

  it('passes events of the devices that it selects then', async () => {
    const hook = { name: 'Hook', url: receiver.url, types: ['device.updated'], filter: 'High@gauges' };
    expect(summarize(await api.post('/webhooks/', hook))).toBe('2001');
    const update = async (name: string) =>
      expect(summarize(await api.put(`/devices/${name}@gauges/`, { firmware: name }))).toBe('2005');
    await update('a');
    await update('b');
    await send('a', { bar: 500 });
    await update('a');
    await send('b', { bar: 0 });
    await update('b');
    await update('e');
    await waitForEvents(api, 'type=device.updated&id_developer=e@gauges', 1);
    await waitUntil(() => receiver.received.length >= 3);
    const told = receiver.events().map(({ id_developer }) => id_developer);
    expect(told).toEqual(['b@gauges', 'a@gauges', 'e@gauges']);
  });

  it('covers the devices of alarm rules by the stream that decides', async () => {
    const conditions = [{ path: 'other', op: '=', value: 'on' }];
    const rule = { name: 'Rule', filter: 'High@gauges', severity: 'warning', conditions };
    expect(summarize(await api.post('/alarmrules/', rule))).toBe('2001');
    const open = async () => (await api.get('/alarms/?state=active')).body.result;
    await waitUntil(async () => {
      await send('i', { bar: 12, other: 'on' });
      return (await open()).length === 1;
    });
    await send('j', { bar: 11, other: 'on' });
    expect((await open()).map(({ device }: { device: string }) => device)).toEqual(['i@gauges']);
    await send('i', { bar: 1, other: 'on' });
    expect(await open()).toEqual([]);
  });

  it('whose path is declared no longer answers 4004', async () => {
    const measures = ['temp', 'valve', '/a.b'].map((path) => measure(path));
    expect(summarize(await api.put('/models/Gauge@gauges/', { measures }))).toBe('2005');
    expect(summarize(await api.get('/devices/?latest.bar=1'))).toBe('4004 latest.bar');
    for (const path of ['/devices/?', '/devices/counts/?by=type&', '/devices/series/?fields=bar&', '/events/live/?'])
      expect(summarize(await api.get(`${path}filter=High@gauges`))).toBe('4004 filter');
    expect(summarize(await api.put('/filters/High@gauges/', { query: 'latest.bar_from=1' }))).toBe('4003 query');
    expect(summarize(await api.put('/filters/High@gauges/', { description: 'old' }))).toBe('2005');
    await send('a', { bar: 13 });
    await api.put('/models/Gauge@gauges/', { measures: [...measures, measure('bar')] });
    expect(await namesAt('latest.bar=13')).toBe('a');
  });
});
