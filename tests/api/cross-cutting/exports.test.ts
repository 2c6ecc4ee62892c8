import { describe, expect, it } from '@jest/globals';
import { parse } from 'csv-parse/sync';
import { summarize, useTestService } from '../../support/expect-status.js';
import { createFixtures, pathOf, type Reply } from '../../support/service.js';
import { wordsOf } from '../../support/words.js';

const ctx = await useTestService();

/** Texts that a spreadsheet would execute, that CSV must quote, or that parsers are known to get wrong. */
const hostile = [...wordsOf(`=1+1 +1 -1 @SUM(A1) ' ''=x a,b a"b " ; ä€😀 null`), 'a\nb', 'a\r\nb', ' a ', '\t=1'];

const group = await ctx.fixtures.group({ name: 'Hall' });
const model = await ctx.fixtures.model({ name: 'P2', properties: { max_bar: 6, colour: 'red' } });
const device = {
  name: 'Pump',
  id_group: group,
  id_model: model,
  description: '=cmd|" /C calc"!A0',
  properties: { room: 'A, 1', colour: null, 'a.b': [1, 'x'] },
  networking: { type: 'ethernet', conn_address: '192.0.2.7' },
  lon: -3.5,
  lat: 40,
  frequency_stream: 60,
};
await ctx.fixtures.device(device);
await ctx.fixtures.device({ name: 'Alarm', id_group: group, enabled: false });
const streams = pathOf('devices', 'Pump@acme', 'streams');
const sent = [1, 2, 3].map((at) => ({ at, data: { bar: at / 2, gps: { lat: at }, text: `-${at}` } }));
expect((await ctx.api.post(streams, sent)).body.code).toBe(2001);

function rowsOf({ text }: Reply): Record<string, string>[] {
  return parse(text, { columns: true });
}

const deviceColumns =
  'id_developer,type,name,id_group,id_asset,id_model,description,properties,sensor,firmware,checksum,time_zone,' +
  'frequency_status,frequency_stream,stream_retention_days,summary_retention_days,lon,lat,enabled,networking.type,' +
  'networking.conn_address,networking.sim_card,networking.telephone_number,networking.carrier,status,last_stream_at,last_status_at,' +
  'stream_due_at,status_due_at,owner,updater,created_at,updated_at,version';
const commonColumns = 'owner,updater,created_at,updated_at,version';

describe('formats', () => {
  it('writes devices as CSV, with a column for each field', async () => {
    const reply = await ctx.api.get('/devices/?format=csv');
    expect(reply.status).toBe(200);
    expect(reply.headers['content-type']).toBe('text/csv; charset=utf-8');
    const now = ctx.service.now();
    expect(reply.text.split('\r\n')).toEqual([
      deviceColumns,
      `Alarm@acme,gateway,Alarm,${group},,,,,,,,Europe/Madrid,1440,1440,,,,,false,,,,,,disconnected,,,,,alice,alice,${now},${now},0`,
      `Pump@acme,gateway,Pump,${group},,${model},"'=cmd|"" /C calc""!A0",` +
        `"{""max_bar"":6,""room"":""A, 1"",""colour"":null,""a.b"":[1,""x""]}",,,,Europe/Madrid,1440,60,,,-3.5,40,true,` +
        `ethernet,192.0.2.7,,,,no_status,${now},,${now + 3600},,alice,alice,${now},${now},0`,
      '',
    ]);
  });

  it('writes streams as CSV, with data in one cell', async () => {
    const reply = await ctx.api.get(`${streams}?format=csv`);
    const [header, first, ...rest] = reply.text.split('\r\n');
    expect(header).toBe('id_developer,_t,protocol,at,data,device,owner,updater,created_at');
    const id = (await ctx.api.get(`${streams}?max=1`)).body.result[0].id_developer;
    expect(first).toBe(
      `${id},str,http,1,"{""bar"":0.5,""gps"":{""lat"":1},""text"":""-1""}",Pump@acme,alice,alice,${ctx.service.now()}`,
    );
    expect(rest.length).toBe(3);
  });

  it.each([
    ['/projects/', `id_developer,name,id_customer,description,enabled,${commonColumns}`],
    ['/services/', `id_developer,name,id_project,description,enabled,${commonColumns}`],
    ['/groups/', `id_developer,name,id_service,description,enabled,${commonColumns}`],
    ['/assets/', `id_developer,name,id_group,description,properties,enabled,${commonColumns}`],
    [
      '/models/',
      `id_developer,name,description,properties,measures,stream_retention_days,summary_retention_days,enabled,${commonColumns}`,
    ],
    [
      '/apikeys/',
      'id,username,scope,description,expires_at,id_project,id_service,id_group,id_asset,id_device,created_at',
    ],
    [
      pathOf('devices', 'Pump@acme', 'deviceconfigs'),
      'name,version,date_deployed,size,checksum,device,desired,owner,updater,created_at,updated_at',
    ],
    [pathOf('mqttdevices', 'Pump@acme', 'topics'), 'name,created_at'],
    ['/types/', 'type'],
    ['/time_zones/', 'tz'],
  ])('has the columns of %s', async (path, header) => {
    const { status, text, headers } = await ctx.api.get(path, { Accept: 'text/csv' });
    expect([status, headers['content-type']]).toEqual([200, 'text/csv; charset=utf-8']);
    expect(text.split('\r\n')[0]).toBe(header);
  });

  it('writes only the header of an empty list', async () => {
    const { text } = await ctx.api.get('/assets/?format=csv');
    expect(text).toBe(`id_developer,name,id_group,description,properties,enabled,${commonColumns}\r\n`);
    expect((await ctx.api.get('/assets/?format=ndjson')).text).toBe('');
  });

  it.each(['/devices/', '/groups/', '/apikeys/', '/types/'])('writes the objects of %s as NDJSON', async (path) => {
    const { result } = (await ctx.api.get(path)).body;
    const reply = await ctx.api.get(path, { Accept: 'application/x-ndjson' });
    expect(reply.headers['content-type']).toBe('application/x-ndjson; charset=utf-8');
    const text = Buffer.isBuffer(reply.body) ? reply.body.toString() : reply.text;
    expect(text).toBe(result.map((object: object) => `${JSON.stringify(object)}\n`).join(''));
  });

  it('prefers format to Accept', async () => {
    expect((await ctx.api.get('/groups/?format=json', { Accept: 'text/csv' })).headers['content-type']).toMatch(/json/);
    expect((await ctx.api.get('/groups/?format=xml', { Accept: 'text/csv' })).headers['content-type']).toMatch(/xml/);
    expect((await ctx.api.get('/groups/?format=csv', { Accept: 'application/xml' })).text).toMatch(
      /^id_developer,name/,
    );
    expect((await ctx.api.get('/groups/', { Accept: 'text/csv;q=0.5, */*' })).headers['content-type']).toMatch(/json/);
  });

  it('keeps errors JSON, and refuses other formats', async () => {
    const wrong = await ctx.api.get('/devices/?nope=1', { Accept: 'text/csv' });
    expect(wrong.headers['content-type']).toMatch(/^application\/json/);
    expect(summarize(wrong)).toBe('4004 nope');
    for (const format of ['CSV', 'text/csv', 'yaml'])
      expect(summarize(await ctx.api.get(`/devices/?format=${format}`))).toBe('4004 format');
    expect(summarize(await ctx.api.get(`${pathOf('devices', 'none@acme', 'streams')}?format=csv`))).toBe('4041');
    expect(summarize(await ctx.api.delete(`${streams}?format=csv`))).toBe('4004 format');
    expect((await ctx.api.get(streams)).body.total_documents).toBe(3);
  });

  it('takes filters, sort, offset and any max', async () => {
    const at = async (query: string) =>
      rowsOf(await ctx.api.get(`${streams}?format=csv&${query}`)).map((row) => row.at);
    expect(await at('at_from=2')).toEqual(['2', '3']);
    expect(await at('sort=at&order=-1&offset=1')).toEqual(['2', '1']);
    expect(await at('max=2')).toEqual(['1', '2']);
    expect(await at('max=9007199254740991')).toEqual(['1', '2', '3']);
    expect(rowsOf(await ctx.api.get('/devices/?format=csv&sort=status')).map(({ status }) => status)).toEqual([
      'disconnected',
      'no_status',
    ]);
    for (const value of ['0', '1001', 'x']) {
      expect((await ctx.api.get(`/devices/?max=${value}`)).body.details).toEqual({
        max: 'must be an integer from 1 to 1000',
      });
    }
    expect(summarize(await ctx.api.get('/devices/?max=0&format=csv'))).toBe('4004 max');
  });
});

describe('CSV', () => {
  it('reads back as it was, and executes nothing', async () => {
    const other = createFixtures(await ctx.service.client({ account: 'hostile' }));
    const api = await ctx.service.client({ account: 'hostile' });
    for (const description of hostile) await other.project({ description, id_customer: description });
    const rows = rowsOf(await api.get('/projects/?format=csv&sort=created_at'));
    for (const { description = '', id_customer = '' } of rows)
      expect([description[0], id_customer[0]]).not.toContain('=');
    const unguarded = (text = '') => (text.startsWith("'") ? text.slice(1) : text);
    expect(rows.map(({ description }) => unguarded(description))).toEqual(hostile);
    expect(rows.map(({ id_customer }) => unguarded(id_customer))).toEqual(hostile);
  });

  it('tells an empty text from an absent one', async () => {
    const id = await ctx.fixtures.model({ description: '' });
    const { text } = await ctx.api.get('/models/?format=csv&fields=id_developer,description');
    expect(text).toContain(`${id},""\r\n`);
    expect(text).toContain(`${model},\r\n`);
  });
});

describe('fields', () => {
  it('shows only these, in JSON, XML and NDJSON', async () => {
    const query = 'name=Pump&fields=name,networking.type,properties.a.b,properties.max_bar,lon,status';
    const pump = {
      name: 'Pump',
      networking: { type: 'ethernet' },
      properties: { max_bar: 6, 'a.b': [1, 'x'] },
      lon: -3.5,
      status: 'no_status',
    };
    expect((await ctx.api.get(`/devices/?${query}`)).body).toEqual({ total_documents: 1, result: [pump] });
    expect((await ctx.api.get(`/devices/?${query}&format=xml`)).text).toContain(
      '<result><device><name>Pump</name><networking><type>ethernet</type></networking><properties><max_bar>6</max_bar>' +
        '<a.b><item>1</item><item>x</item></a.b></properties><lon>-3.5</lon><status>no_status</status></device></result>',
    );
    const { text, body } = await ctx.api.get(`/devices/?${query}&format=ndjson`);
    expect(JSON.parse(text ?? String(body))).toEqual(pump);
  });

  it('orders the columns of CSV', async () => {
    const { text } = await ctx.api.get(
      '/devices/?format=csv&fields=version,properties.colour,properties.room,properties.none,networking,name',
    );
    expect(text.split('\r\n')).toEqual([
      'version,properties.colour,properties.room,properties.none,networking.type,networking.conn_address,' +
        'networking.sim_card,networking.telephone_number,networking.carrier,name',
      '0,,,,,,,,,Alarm',
      '0,,"A, 1",,ethernet,192.0.2.7,,,,Pump',
      '',
    ]);
  });

  it('selects members of data', async () => {
    const { text } = await ctx.api.get(
      `${streams}?format=csv&fields=at,data.bar,data.gps.lat,data.gps,data.text,data.x&max=1`,
    );
    expect(text).toBe(`at,data.bar,data.gps.lat,data.gps,data.text,data.x\r\n1,0.5,1,"{""lat"":1}",'-1,\r\n`);
    const { result } = (await ctx.api.get(`${streams}?fields=data.gps.lat,id_developer&max=1`)).body;
    expect(result).toEqual([{ data: { gps: { lat: 1 } }, id_developer: expect.stringMatching(/^[0-9a-f]{64}@acme$/) }]);
  });

  it('leaves out objects of which nothing is selected, and writes a lone empty cell as ""', async () => {
    expect((await ctx.api.get('/devices/?fields=properties.room')).body.result).toEqual([
      {},
      { properties: { room: 'A, 1' } },
    ]);
    expect((await ctx.api.get('/devices/?fields=sensor&format=csv')).text).toBe('sensor\r\n""\r\n""\r\n');
  });

  it.each([
    ['/devices/', 'nope'],
    ['/devices/', 'name,'],
    ['/devices/', 'name,name'],
    ['/devices/', 'networking.nope'],
    ['/devices/', 'properties.'],
    ['/devices/', `properties.${'x'.repeat(4000)}`],
    ['/devices/', Array.from({ length: 101 }, (_, index) => `properties.${index}`).join()],
    ['/devices/', '_id'],
    ['/devices/', 'location'],
    ['/devices/', 'id_developer.x'],
    ['/devices/', '__proto__'],
    ['/devices/', 'constructor'],
    ['/apikeys/', 'digest'],
    ['/groups/', 'properties'],
    ['/types/', 'name'],
  ])('refuses %s?fields=%s', async (path, fields) => {
    for (const format of ['json', 'csv'])
      expect(summarize(await ctx.api.get(`${path}?fields=${fields}&format=${format}`))).toBe('4004 fields');
  });
});
