import { describe, expect, it } from '@jest/globals';
import { useTestService } from '../../support/expect-status.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService();

/** Data whose keys a path cannot name by dots, or that objects would interpret. */
const data = {
  bar: 2.5,
  gps: { lat: 40, lon: -3.5 },
  'a.b': [1, { c: 'x' }],
  valve: null,
  ['__proto__']: 1,
  flow: true,
};

const now = ctx.service.now();
const group = await ctx.fixtures.group({ name: 'Hall' });
const id_model = await ctx.fixtures.model({
  name: 'P2',
  measures: [
    { path: 'bar', name: 'Pressure', unit: 'bar' },
    { path: '/gps/lat', unit: '°' },
    { path: 'gps.lon', name: 'name' },
    { path: 'flow', name: 'Flow' },
    { path: 'valve', name: 'Same' },
    { path: '/a.b', name: 'Same' },
  ],
});
await ctx.fixtures.model({ name: 'P3', measures: [{ path: '/flow', name: 'Stream' }] });
await ctx.fixtures.device({ name: 'Pump', id_group: group, id_model });
await ctx.fixtures.device({ name: 'Silent', id_group: group });
await ctx.fixtures.device({ name: 'Busy', id_group: group });
await send('Pump', { at: now - 10, data });
await send('Pump', { at: now - 20, data: { bar: 1 } });
await send('Busy', [
  { at: now - 5, data: { bar: 7 } },
  { at: now - 5, data: { bar: 8 } },
  { at: now + 10_000, data: { bar: 9 } },
  { at: now - 1, _t: 'sta', data: { bar: 10 } },
]);
await send('Silent', { at: now - 1, _t: 'sta', data: { bar: 11 } });

async function send(name: string, streams: unknown): Promise<void> {
  expect((await ctx.api.post(pathOf('devices', `${name}@acme`, 'streams'), streams)).body.code).toBe(2001);
}

const listed = async (query: string) => (await ctx.api.get(`/devices/?${query}`)).body.result;
const showPump = (fields: string) => ctx.api.get(`${pathOf('devices', 'Pump@acme')}?fields=${fields}`);

describe('the last data stream', () => {
  it('is shown where it is asked for, and nowhere else', async () => {
    expect((await showPump('name,latest')).body).toEqual({ name: 'Pump', latest: { at: now - 10, data } });
    expect((await ctx.api.get(pathOf('devices', 'Pump@acme'))).body.latest).toBe(undefined);
    expect((await listed('max=1'))[0].latest).toBe(undefined);
  });

  it('can be sent back with the device, and is ignored', async () => {
    const shown = (await showPump('type,name,id_group,latest,alarms')).body;
    const copy = { ...shown, name: 'Copy', latest: { at: 1, data: { bar: 99 } } };
    expect((await ctx.api.post('/devices/', copy)).body.code).toBe(2001);
    expect((await ctx.api.put(pathOf('devices', 'Copy@acme'), copy)).body).toMatchObject({ code: 2005 });
    expect(await listed('name=Copy&fields=name,latest')).toEqual([{ name: 'Copy' }]);
    expect((await ctx.api.delete(pathOf('devices', 'Copy@acme'))).body.code).toBe(2004);
  });

  it('is the one with the greatest time, of equal ones the last received, and no status stream', async () => {
    const children = `${pathOf('groups', group, 'devices')}?fields=name,latest.bar`;
    expect((await ctx.api.get(children)).body.result).toEqual([
      { name: 'Busy', latest: { at: now - 5, data: { bar: 8 } } },
      { name: 'Pump', latest: { at: now - 10, data: { bar: 2.5 } } },
      { name: 'Silent' },
    ]);
    const child = `${pathOf('groups', group, 'devices')}Busy@acme/?fields=latest.bar`;
    expect((await ctx.api.get(child)).body).toEqual({ latest: { at: now - 5, data: { bar: 8 } } });
  });

  it('is one of the future once its time has come, and changes when streams are deleted', async () => {
    await ctx.fixtures.device({ name: 'Early', id_group: group });
    await send('Early', [
      { at: now, data: { bar: 1 } },
      { at: now + 500, data: { bar: 2 } },
    ]);
    const show = async () => (await listed('name=Early&fields=latest'))[0].latest;
    expect(await show()).toEqual({ at: now, data: { bar: 1 } });
    ctx.service.advance(500);
    expect(await show()).toEqual({ at: now + 500, data: { bar: 2 } });
    await ctx.api.delete(`${pathOf('devices', 'Early@acme', 'streams')}?at_from=${now + 500}`);
    expect(await show()).toEqual({ at: now, data: { bar: 1 } });
    await ctx.api.delete(pathOf('devices', 'Early@acme'));
    await ctx.fixtures.device({ name: 'Early', id_group: group });
    expect(await listed('name=Early&fields=name,latest')).toEqual([{ name: 'Early' }]);
    await ctx.api.delete(pathOf('devices', 'Early@acme'));
  });

  it('has at most its first 100 values, in the order sent', async () => {
    await ctx.fixtures.device({ name: 'Talkative', id_group: group });
    const values = Array.from({ length: 98 }, (_, n) => n);
    await send('Talkative', { at: now, data: { z: { values, none: {} }, y: [[]], a: 1, late: { deep: [5] } } });
    const show = async (fields: string) => (await listed(`name=Talkative&fields=${fields}`))[0].latest.data;
    expect(JSON.stringify(await show('latest'))).toBe(JSON.stringify({ z: { values, none: {} }, y: [[]] }));
    expect(await show('latest.late,latest.a')).toEqual({ a: 1, late: { deep: [5] } });
    await ctx.api.delete(pathOf('devices', 'Talkative@acme'));
  });

  it('is seen with a key that is limited to the device, as the device is', async () => {
    const issued = await ctx.api.post('/apikeys/', { username: 'bob', scope: 'read', id_device: 'Pump@acme' });
    const limited = ctx.service.clientWith(issued.body.details.key);
    const { body } = await limited.get('/devices/?fields=id_developer,latest.bar');
    expect(body.result).toEqual([{ id_developer: 'Pump@acme', latest: { at: now - 10, data: { bar: 2.5 } } }]);
    expect((await limited.get(`${pathOf('devices', 'Busy@acme')}?fields=latest`)).body.code).toBe(4041);
  });
});

describe('paths', () => {
  it.each([
    ['latest.gps.lat', { gps: { lat: 40 } }],
    ['latest./gps/lat,latest.bar', { bar: 2.5, gps: { lat: 40 } }],
    ['latest.gps', { gps: { lat: 40, lon: -3.5 } }],
    ['latest./a.b', { 'a.b': [1, { c: 'x' }] }],
    ['latest./a.b/1/c', { 'a.b': [null, { c: 'x' }] }],
    ['latest.a.b', {}],
    ['latest.valve', { valve: null }],
    ['latest.missing', {}],
    ['latest.at', {}],
  ])('%s selects in data', async (fields, selected) => {
    expect((await showPump(fields)).body).toEqual({ latest: { at: now - 10, data: selected } });
  });

  it.each([
    ['latest.', 'must be different fields of the type, separated by commas; unknown: latest.'],
    ['latest.count', 'must be different fields of the type, separated by commas; unknown: latest.count'],
    ['latest.toString,latest.toString', 'must be different fields of the type, separated by commas'],
    ['latest./a~2', 'must be different fields of the type, separated by commas; unknown: latest./a~2'],
    ['newest', 'must be different fields of the type, separated by commas; unknown: newest'],
  ])('%s is refused', async (fields, details) => {
    for (const path of [pathOf('devices', 'Pump@acme'), '/devices/', pathOf('groups', group, 'devices')]) {
      const { body } = await ctx.api.get(`${path}?fields=${encodeURIComponent(fields)}`);
      expect(body).toEqual({ code: 4004, message: 'format parameter invalid', details: { fields: details } });
    }
  });

  it('are no fields of other types', async () => {
    expect((await ctx.api.get('/groups/?fields=latest')).body.code).toBe(4004);
    expect((await ctx.api.get(`${pathOf('groups', group)}?fields=name`)).body.code).toBe(4004);
  });
});

describe('formats', () => {
  it('shows XML', async () => {
    const { text } = await ctx.api.get(`${pathOf('devices', 'Pump@acme')}?fields=latest.gps,name`, {
      Accept: 'application/xml',
    });
    expect(text).toBe(
      '<?xml version="1.0" encoding="UTF-8"?><device><name>Pump</name>' +
        `<latest><at>${now - 10}</at><data><gps><lat>40</lat><lon>-3.5</lon></gps></data></latest></device>`,
    );
  });

  it('exports lines of JSON', async () => {
    const { text } = await ctx.api.get('/devices/?format=ndjson&fields=latest.bar&name=Busy');
    expect(text).toBe(`{"latest":{"at":${now - 5},"data":{"bar":8}}}\n`);
  });

  it('exports columns of CSV that are headed as the measure', async () => {
    const fields = 'latest.bar,name,latest.gps.lat,latest./gps/lon,latest.flow,latest./a.b,latest.valve';
    const { text } = await ctx.api.get(`/devices/?format=csv&fields=${fields}`);
    expect(text.split('\r\n')).toEqual([
      'latest.at,Pressure (bar),name,latest.gps.lat (°),latest./gps/lon,latest.flow,latest./a.b,latest.valve',
      `${now - 5},8,Busy,,,,,`,
      `${now - 10},2.5,Pump,40,-3.5,true,"[1,{""c"":""x""}]",`,
      ',,Silent,,,,,',
      '',
    ]);
  });

  it('exports all values as one cell of JSON', async () => {
    const { text } = await ctx.api.get('/devices/?format=csv&fields=latest,name&name=Busy');
    expect(text).toBe(`latest.at,latest.data,name\r\n${now - 5},"{""bar"":8}",Busy\r\n`);
  });
});

it('changes the entity tag of a device', async () => {
  const first = await showPump('latest.bar');
  const matched = { 'If-None-Match': String(first.headers.etag) };
  const path = `${pathOf('devices', 'Pump@acme')}?fields=latest.bar`;
  expect((await ctx.api.get(path, matched)).status).toBe(304);
  await send('Pump', { at: now - 9, data: { ...data, bar: 3 } });
  expect((await ctx.api.get(path, matched)).body).toEqual({ latest: { at: now - 9, data: { bar: 3 } } });
});

it('has come within the second of its time, also in series', async () => {
  ctx.service.advance(0.5);
  const at = ctx.service.now() - 0.1;
  await send('Busy', { at, data: { bar: 12 } });
  expect(await listed('name=Busy&fields=latest.bar')).toEqual([{ latest: { at, data: { bar: 12 } } }]);
  const series = await ctx.api.get(`${pathOf('devices', 'Busy@acme', 'series')}?fields=bar&every=86400&aggregate=last`);
  expect(series.body.result.at(-1)).toMatchObject({ bar: { last: 12 } });
});
