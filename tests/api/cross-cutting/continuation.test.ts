import { describe, expect, it } from '@jest/globals';
import { summarize, useTestService } from '../../support/expect-status.js';
import { createFixtures, pathOf } from '../../support/service.js';

const ctx = await useTestService({ countCacheThreshold: 5 });
const names = ['b', 'Z', 'ä', 'a', 'B', '10', '9'];
/** In the order of their bytes. */
const ids = ['10@acme', '9@acme', 'B@acme', 'Z@acme', 'a@acme', 'b@acme', 'ä@acme'];

const group = await ctx.fixtures.group({ name: 'Hall' });
for (const name of names) await ctx.fixtures.device({ name, id_group: group, type: name < 'a' ? 'pump' : 'gate' });
for (const name of ['m2', 'm1', 'm3']) await ctx.fixtures.model({ name });
const streams = pathOf('devices', 'a@acme', 'streams');
// equal times and an order other than that of receipt
for (const at of [3, 1, 2, 2, 2]) expect((await ctx.api.post(streams, { at, data: { at } })).body.code).toBe(2001);
expect((await ctx.api.post(pathOf('devices', 'b@acme', 'streams'), { at: 2, data: {} })).body.code).toBe(2001);
for (const version of ['1', '2', '3']) {
  const config = { name: 'c', version, file: 'eA==' };
  expect((await ctx.api.post(pathOf('devices', 'a@acme', 'deviceconfigs'), config)).status).toBe(201);
}
const credentials = { username: 'a', password: 'open sesame' };
expect((await ctx.api.post(pathOf('mqttdevices', 'a@acme', 'credentials'), credentials)).body.code).toBe(2001);
for (const name of ['t/2', 't/1', 't/3'])
  expect((await ctx.api.post(pathOf('mqttdevices', 'a@acme', 'topics'), { name })).body.code).toBe(2001);

// biome-ignore lint/suspicious/noExplicitAny: objects of every type
type Json = any;

/** Reads a list page by page; calls `between` after each page. */
async function readAll(path: string, max: number, between?: (page: number) => Promise<void>): Promise<Json[]> {
  const all: Json[] = [];
  let after = '0';
  for (let page = 0; page < 400; page++) {
    const { status, body } = await ctx.api.get(
      `${path}${path.includes('?') ? '&' : '?'}max=${max}&after=${encodeURIComponent(after)}`,
    );
    expect(status).toBe(200);
    expect(body.result.length).toBeLessThanOrEqual(max);
    all.push(...body.result);
    if (!('next' in body)) return all;
    expect(body.result.length).toBe(max);
    expect(Object.keys(body)).toEqual(['total_documents', 'result', 'next']);
    after = body.next;
    await between?.(page);
  }
  throw new Error('the list does not end');
}

const idsOf = (objects: Json[]) => objects.map(({ id_developer }) => id_developer);

describe('after', () => {
  it.each([1, 2, 3, 7, 1000])('reads all devices in the order of their identifiers, %d at a time', async (max) => {
    expect(idsOf(await readAll('/devices/', max))).toEqual(ids);
    expect(idsOf(await readAll(`${pathOf('groups', group, 'devices')}`, max))).toEqual(ids);
    expect(idsOf(await readAll('/devices/?type=gate', max))).toEqual(['a@acme', 'b@acme', 'ä@acme']);
    expect(idsOf(await readAll('/devices/?created_at_from=1', max))).toEqual(ids);
  });

  it.each(['/models/', '/projects/', '/services/', '/groups/', '/assets/', '/apikeys/', '/types/', '/time_zones/'])(
    'reads all of %s',
    async (path) => {
      const { result } = (await ctx.api.get(path)).body;
      for (const max of [2, 1000]) {
        const read = await readAll(path, max);
        expect(new Set(read.map((one: object) => JSON.stringify(one))).size).toBe(read.length);
        expect(read.map((one: object) => JSON.stringify(one)).toSorted()).toEqual(
          result.map((one: object) => JSON.stringify(one)).toSorted(),
        );
      }
    },
  );

  it('reads streams by device, time and receipt, and other children in their own order', async () => {
    const all = (await ctx.api.get('/streams/')).body.result;
    expect(all.map(({ device, at }: Json) => `${device} ${at}`)).toEqual([
      ...['a@acme 1', 'a@acme 2', 'a@acme 2', 'a@acme 2', 'a@acme 3', 'b@acme 2'],
    ]);
    for (const max of [1, 2, 4]) {
      expect(await readAll('/streams/', max)).toEqual(all);
      expect(await readAll(streams, max)).toEqual(all.slice(0, 5));
      expect(await readAll(`${streams}?at_from=2`, max)).toEqual(all.slice(1, 5));
      expect(await readAll('/streams/?device=b@acme', max)).toEqual(all.slice(5));
    }
    const versions = await readAll(pathOf('devices', 'a@acme', 'deviceconfigs'), 2);
    expect(versions.map(({ version }) => version)).toEqual(['1', '2', '3']);
    const topics = await readAll(pathOf('mqttdevices', 'a@acme', 'topics'), 2);
    expect(topics.map(({ name }) => name)).toEqual(['t/1', 't/2', 't/3']);
  });

  it('shows next in XML, and the total of the whole list', async () => {
    const { text } = await ctx.api.get('/devices/?after=9@acme&max=1&format=xml&fields=name');
    expect(text).toBe(
      '<?xml version="1.0" encoding="UTF-8"?><response><total_documents>7</total_documents>' +
        '<result><device><name>B</name></device></result><next>B@acme</next></response>',
    );
    expect((await ctx.api.get('/devices/?max=1')).body.next).toBeUndefined();
    expect((await ctx.api.get('/devices/?after=zzz@acme')).body).toMatchObject({ total_documents: 7 });
  });

  it('adds metadata of the page of streams', async () => {
    const { body } = await ctx.api.get(`${streams}?after=0&max=2&_m=1`);
    expect(body.metadata).toMatchObject({
      parameters: { after: '0', max: 2, _m: 1 },
      returned: 2,
      at_first: 1,
      at_last: 2,
    });
    expect(Object.keys(body)).toEqual(['total_documents', 'metadata', 'result', 'next']);
  });

  it('continues exports', async () => {
    expect((await ctx.api.get('/devices/?after=Z@acme&format=csv&fields=name')).text).toBe('name\r\na\r\nb\r\nä\r\n');
    const { next } = (await ctx.api.get(`${streams}?after=0&max=3`)).body;
    expect((await ctx.api.get(`${streams}?after=${next}&format=csv&fields=at`)).text).toBe('at\r\n2\r\n3\r\n');
    expect((await ctx.api.get(`/streams/?after=${next}&format=csv&fields=at,device`)).text).toBe(
      'at,device\r\n2,a@acme\r\n3,a@acme\r\n2,b@acme\r\n',
    );
  });

  it('loses and repeats nothing while objects come and go', async () => {
    const api = await ctx.service.client({ account: 'busy' });
    const other = createFixtures(api);
    const id_group = await other.group();
    for (let n = 10; n < 30; n++) await other.device({ name: `d${n}`, id_group });
    const seen: string[] = [];
    let after = '0';
    for (let page = 0; after !== undefined; page++) {
      const { body } = await api.get(`/devices/?max=4&after=${after}`);
      seen.push(...idsOf(body.result));
      after = body.next;
      if (after === undefined) break;
      // the object named by next goes, another one before it comes, and one that is still to come goes
      expect((await api.delete(pathOf('devices', after))).body.code).toBe(2004);
      await other.device({ name: `c${page}`, id_group });
      await other.device({ name: `e${page}`, id_group });
    }
    expect(seen.slice(0, 20)).toEqual(Array.from({ length: 20 }, (_, index) => `d${index + 10}@busy`));
    expect(seen.slice(20)).toEqual(expect.arrayContaining(['e0@busy', 'e1@busy', 'e2@busy', 'e3@busy']));
    expect(new Set(seen).size).toBe(seen.length);
  });

  it.each([
    ['/devices/?after=x', '4004 after'],
    ['/devices/?after=00', '4004 after'],
    ['/devices/?after=', '4004 after'],
    ['/devices/?after=0&after=0', '4004 after'],
    ['/devices/?after=0&sort=name', '4004 after'],
    ['/devices/?after=0&order=1', '4004 after'],
    ['/devices/?after=0&offset=0', '4004 after'],
    ['/devices/?after=a%00@b', '4004 after'],
    ['/types/?after=0&offset=1', '4004 after'],
    [`/devices/?after=${'x'.repeat(300)}@acme`, '4004 after'],
    [`/streams/?after=${'x'.repeat(601)}`, '4004 after'],
    ['/streams/?after=x', '4004 after'],
    ['/streams/?after=WzFd', '4004 after'],
    [`/streams/?after=${Buffer.from('["a",{"$gt":1},"00"]').toString('base64url')}`, '4004 after'],
    [`/streams/?after=${Buffer.from(`["a",{"$gt":1},"${'0'.repeat(32)}"]`).toString('base64url')}`, '4004 after'],
    ['/groups/none@acme/devices/?after=0', '4041'],
  ])('answers %s with %s', async (path, expected) => {
    expect(summarize(await ctx.api.get(path))).toBe(expected);
  });
});
