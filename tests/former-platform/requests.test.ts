import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { useTestService } from '../support/expect-status.js';
import { pathOf } from '../support/service.js';
import { openRawClient, type RawAnswer, type RawClient } from './raw-client.js';

/**
 * Requests as programs of the former platform write them, byte by byte, and the answers that they rely on
 * (reference/access.md#former-clients, reference/streams.md#legacy-endpoints).
 */
const ctx = await useTestService({
  api_key_headers: ['service.apikey', 'carriots.apikey', 'carriots-apikey', 'apikey'],
});
const ok = '{ "response": "OK" }';
const unauthorized = '{"response": "Not authorized: apikey not found"}';
let key = '';
let id_group = '';
let device = '';
let streams = '';
let raw: RawClient;

key = (await ctx.api.post('/apikeys/', { username: 'user', scope: 'write' })).body.details.key;
id_group = await ctx.fixtures.group();
beforeEach(async () => {
  device = await ctx.fixtures.device({ id_group });
  streams = pathOf('devices', device, 'streams');
  raw = openRawClient(ctx.service.url);
});
afterEach(() => raw.destroy());

const stored = async () => (await ctx.api.get(`${streams}?sort=at`)).body.result;
/** Status line, type and body of an answer. */
const essence = ({ status, headers, body }: RawAnswer) => [status, headers['content-type'], body];
const json = (status: string, body: string) => [`HTTP/1.1 ${status}`, 'application/json; charset=utf-8', body];

/** Lines of a request that end with CRLF, an empty line, and the body. */
const request = (lines: readonly string[], body = '') => `${lines.join('\r\n')}\r\n\r\n${body}`;
const lengthOf = (body: string) => `Content-Length: ${Buffer.byteLength(body)}`;

/** Sends one request with the former key header and reads its answer. */
async function call(method: string, path: string, body = '', more: readonly string[] = []): Promise<RawAnswer> {
  const head = [`${method} ${path} HTTP/1.1`, 'Host: api.example', `carriots.apikey: ${key}`, lengthOf(body), ...more];
  raw.write(request(head, body));
  return raw.answer();
}

describe('a device sends a stream', () => {
  it('without the closing slash, as a form, at the time now', async () => {
    const body = `{"protocol":"v2","device":"${device}","at":"now","data":{"temp":"21.5"},"checksum":""}`;
    raw.write(
      `POST /streams HTTP/1.1\r\nHost: api.example\r\nAccept: */*\r\nUser-Agent: Arduino\r\ncarriots.apikey: ${key}\r\n` +
        `Content-Type: application/x-www-form-urlencoded\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`,
    );
    const answer = await raw.answer();
    expect(essence(answer)).toEqual(json('200 OK', ok));
    expect(answer.headers).toMatchObject({ 'content-length': String(ok.length), connection: 'close' });
    expect(await raw.closed()).toBe('');
    expect(await stored()).toMatchObject([
      { _t: 'str', protocol: 'v2', at: ctx.service.now(), data: { temp: '21.5' } },
    ]);
  });

  it.each(['service.apikey', 'carriots.apikey', 'carriots-apikey', 'apikey', 'Carriots.ApiKey', 'APIKEY'])(
    'with the key in %s',
    async (header) => {
      const body = `{"protocol":"v1","device":"${device}","at":"1000.5","data":{"n":"1"},"checksum":"${'z'.repeat(64)}"}`;
      raw.write(request(['POST /status HTTP/1.1', 'Host: x', `${header}:${key}`, lengthOf(body)], body));
      expect(essence(await raw.answer())).toEqual(json('200 OK', ok));
      expect(await stored()).toMatchObject([{ _t: 'sta', protocol: 'v1', at: 1000.5, data: { n: '1' } }]);
    },
  );

  it('with HTTP/1.0 and no Host', async () => {
    const body = `{"protocol":"v2","device":"${device}","at":1000,"data":{"n":1}}`;
    raw.write(`POST /streams/ HTTP/1.0\r\napikey: ${key}\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    expect(essence(await raw.answer())).toEqual(json('200 OK', ok));
    expect(await raw.closed()).toBe('');
    expect(await stored()).toHaveLength(1);
  });

  it('under types that are not those of the body', async () => {
    const types = [
      'application/vnd.former.api.v2+json;q=7',
      'application/x-www-form-urlencoded; charset=UTF-8;q=7',
      'application/json;q=7',
      'multipart/form-data',
      '',
    ];
    for (const type of types) {
      const body = `{"protocol":"v2","device":"${device}","at":"now","data":{"type":"${type}"}}`;
      const headers = [`Content-Type: ${type}`, `Accept: ${type || 'application/json;q=7'}`];
      expect(essence(await call('POST', '/streams', body, headers))).toEqual(json('200 OK', ok));
    }
    expect((await stored()).map(({ data }: { data: { type: string } }) => data.type).sort()).toEqual(types.sort());
  });

  it('after it was told to continue', async () => {
    const body = `{"protocol":"v2","device":"${device}","at":"now","data":{}}`;
    raw.write(
      request(['POST /streams HTTP/1.1', 'Host: x', `apikey: ${key}`, lengthOf(body), 'Expect: 100-continue'], ''),
    );
    expect(await raw.answer()).toEqual({ status: 'HTTP/1.1 100 Continue', headers: {}, body: '' });
    expect(await stored()).toHaveLength(0);
    raw.write(body);
    expect(essence(await raw.answer())).toEqual(json('200 OK', ok));
    expect(await stored()).toHaveLength(1);
  });

  it('again and again on one connection, with a stray line end after each body', async () => {
    for (const n of [1, 2, 3]) {
      const body = `{"protocol":"v2","device":"${device}","at":${n},"data":{}}`;
      raw.write(
        `${request(['POST /streams/ HTTP/1.1', 'Host: x', `apikey: ${key}`, lengthOf(body)], body)}${'\r\n'.repeat(n)}`,
      );
      expect(essence(await raw.answer())).toEqual(json('200 OK', ok));
    }
    expect((await stored()).map(({ at }: { at: number }) => at)).toEqual([1, 2, 3]);
  });

  it('in chunks, byte by byte', async () => {
    const body = `{"protocol":"v2","device":"${device}","at":"now","data":{"ü":"é"}}`;
    raw.write(request(['POST /streams HTTP/1.1', 'Host: x', `apikey: ${key}`, 'Transfer-Encoding: chunked']));
    for (const character of body) raw.write(`${Buffer.byteLength(character).toString(16)}\r\n${character}\r\n`);
    raw.write('0\r\n\r\n');
    expect(essence(await raw.answer())).toEqual(json('200 OK', ok));
    expect((await stored())[0].data).toEqual({ ü: 'é' });
  });

  it('as XML', async () => {
    const body = `<?xml version="1.0" encoding="UTF-8"?>\r\n<stream>\r\n  <protocol>v2</protocol>\r\n  <device>${device}</device>\r\n  <at>now</at>\r\n  <data><temp>21</temp></data>\r\n  <checksum></checksum>\r\n</stream>\r\n`;
    const asXml = await call('POST', '/streams', body, ['Content-Type: application/xml', 'Accept: application/xml']);
    expect(essence(asXml)).toEqual([
      'HTTP/1.1 200 OK',
      'application/xml; charset=utf-8',
      '<?xml version="1.0" encoding="UTF-8"?><response><response>OK</response></response>',
    ]);
    expect(essence(await call('POST', '/status/', body, ['Content-Type: text/xml']))).toEqual(json('200 OK', ok));
    expect(await stored()).toMatchObject([
      { _t: 'str', data: { temp: '21' } },
      { _t: 'sta', data: { temp: '21' } },
    ]);
  });

  it('with a key that is missing or wrong', async () => {
    for (const header of ['X-Nothing: x', 'apikey: ', 'apikey: wrong', `Authorization: Basic ${key}`]) {
      raw.write(request(['POST /streams HTTP/1.1', 'Host: x', header, 'Content-Length: 2'], '{}'));
      expect(essence(await raw.answer())).toEqual(json('401 Unauthorized', unauthorized));
    }
  });

  it('that is wrong', async () => {
    const answers = [
      ['{', '{"code":4001,"message":"Json bad formed","details":{}}'],
      [
        `{"protocol":"v3","device":"${device}","at":"tomorrow","data":{}}`,
        '{"code":4003,"message":"validation error","details":{"at":"must be in seconds since 1970, up to 1000000000000, or RFC 3339 with an offset"}}',
      ],
      [
        '{"protocol":"v2","device":"nothing@acme","at":"now","data":{}}',
        '{"code":4003,"message":"validation error","details":{"device":"does not exist"}}',
      ],
    ];
    for (const [body, expected = ''] of answers)
      expect(essence(await call('POST', '/streams', body))).toEqual(json('400 Bad Request', expected));
    expect(await stored()).toHaveLength(0);
  });
});

describe('a program manages its objects', () => {
  it('creates a device from a form with blank references', async () => {
    const body = `{"name":"former","type":"gateway","id_group":"${id_group}","id_asset":"","id_assets":"","id_model":""}`;
    const created = await call('POST', '/devices', body, ['Content-Type: application/x-www-form-urlencoded']);
    expect(essence(created)).toEqual(json('200 OK', '{"code":2001,"message":"Device created","details":{}}'));
    const shown = await call('GET', created.headers.location ?? '');
    expect(JSON.parse(shown.body)).toMatchObject({ id_group, id_asset: null, id_assets: null, id_model: null });
  });

  it('sends whole objects back as they were shown', async () => {
    const { fixtures } = ctx;
    const id_asset = await fixtures.asset({ id_group, properties: { 'a.b': [1, null] } });
    const id_model = await fixtures.model({ properties: { range: 40 } });
    const fields = {
      id_model,
      lon: 2,
      lat: 41.5,
      networking: { type: 'gprs', carrier: 'c' },
      checksum: 'k'.repeat(40),
    };
    const ofAsset = await fixtures.device({ id_asset, ...fields, properties: { own: true } });
    expect((await ctx.api.post(pathOf('devices', ofAsset, 'streams'), { data: {} })).body.code).toBe(2001);
    const objects = [
      ['projects', await fixtures.project({ description: '' }), 'Project updated'],
      ['services', await fixtures.service(), 'Service updated'],
      ['groups', id_group, 'Group updated'],
      ['assets', id_asset, 'Asset updated'],
      ['models', id_model, 'model updated'],
      ['devices', ofAsset, 'Device updated'],
      ['devices', device, 'Device updated'],
    ] as const;
    for (const [plural, id, message] of objects) {
      const path = pathOf(plural, id).slice(0, -1);
      const shown = await call('GET', path);
      expect(shown.status).toBe('HTTP/1.1 200 OK');
      const changed = await call('PUT', path, shown.body, ['Content-Type: application/x-www-form-urlencoded']);
      expect([path, changed.status]).toEqual([path, 'HTTP/1.1 200 OK']);
      const before = JSON.parse(shown.body);
      const details = { ...before, version: before.version + 1, updater: 'user', updated_at: ctx.service.now() };
      expect(JSON.parse(changed.body)).toEqual({ code: 2005, message, details });
      expect(JSON.parse((await call('GET', path)).body)).toEqual(details);
    }
  });

  it('moves a device by the other name of its asset', async () => {
    const id_asset = await ctx.fixtures.asset({ id_group });
    const shown = JSON.parse((await call('GET', pathOf('devices', device))).body);
    const body = JSON.stringify({ ...shown, id_group: '', id_asset, id_assets: id_asset });
    const { details } = JSON.parse((await call('PUT', pathOf('devices', device), body)).body);
    expect(details).toMatchObject({ id_group: null, id_asset, id_assets: id_asset });
  });

  it('reads, finds and deletes streams by their identifiers', async () => {
    for (const at of [1, 2])
      expect((await call('POST', '/streams', `{"device":"${device}","at":${at},"data":{"n":${at}}}`)).body).toBe(ok);
    const list = JSON.parse((await call('GET', `${streams.slice(0, -1)}?sort=at&max=1`)).body);
    expect(list).toMatchObject({ total_documents: 2, result: [{ at: 1, data: { n: 1 } }] });
    const [stream] = list.result;
    const path = `/streams/${encodeURIComponent(stream.id_developer)}`;
    expect(JSON.parse((await call('GET', path)).body)).toEqual(stream);
    const deleted = '{"code":2004,"message":"stream deleted","details":{}}';
    expect(essence(await call('DELETE', path))).toEqual(json('200 OK', deleted));
    const missing = '{"code":4041,"message":"not found","details":{}}';
    expect(essence(await call('GET', path))).toEqual(json('404 Not Found', missing));
    expect((await stored()).map(({ at }: { at: number }) => at)).toEqual([2]);
  });

  it('deletes with filters in a JSON body', async () => {
    for (const at of [1, 2, 3]) await call('POST', '/status', `{"device":"${device}","at":${at},"data":{}}`);
    const body = '{"at_from":"2","_t":"sta","max":1}';
    const answer = await call('DELETE', streams.slice(0, -1), body, [
      'Content-Type: application/x-www-form-urlencoded',
    ]);
    expect(essence(answer)).toEqual(json('200 OK', '{"code":2004,"message":"stream deleted","details":{}}'));
    expect((await stored()).map(({ at }: { at: number }) => at)).toEqual([1, 3]);
    await ctx.api.post(pathOf('mqttdevices', device, 'topics'), { name: 'a/b' });
    const topic = await call('DELETE', `${pathOf('mqttdevices', device)}topics`, '{"name":"a/b"}');
    expect(essence(topic)).toEqual(json('200 OK', '{"code":2004,"message":"topic deleted","details":{}}'));
  });

  it('is told what is wrong with its key', async () => {
    const missing = '{"code":4011,"message":"unauthorized","details":{"service.apikey":"is missing"}}';
    raw.write('GET /devices HTTP/1.1\r\nHost: x\r\n\r\n');
    expect(essence(await raw.answer())).toEqual(json('401 Unauthorized', missing));
    const wrong = '{"code":4011,"message":"unauthorized","details":{"service.apikey":"is not valid"}}';
    raw.write('GET /devices HTTP/1.1\r\nHost: x\r\ncarriots.apikey: wrong\r\n\r\n');
    expect(essence(await raw.answer())).toEqual(json('401 Unauthorized', wrong));
  });
});
