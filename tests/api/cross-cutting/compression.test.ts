import { once } from 'node:events';
import { type IncomingMessage, request as openRequest } from 'node:http';
import { brotliDecompressSync, gunzipSync, inflateSync } from 'node:zlib';
import { expect, it } from '@jest/globals';
import { issueKey } from '../../../src/objects/api-keys.js';
import { useTestService } from '../../support/expect-status.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService();

const { key } = await issueKey(ctx.service.db, { account: 'acme', username: 'alice', scope: 'admin' }, 0);
const id = await ctx.fixtures.device({ name: 'Pump', properties: { text: 'abc '.repeat(500) } });
const device = pathOf('devices', id);
const config = { name: 'text.json', version: '1', file: Buffer.from('x'.repeat(5000)).toString('base64') };
const file = `${device}deviceconfigs/text.json/`;
expect((await ctx.api.post(`${device}deviceconfigs/`, config)).status).toBe(201);

interface Answer {
  status: number | undefined;
  headers: IncomingMessage['headers'];
  body: Buffer;
}

/** Sends a request with exactly these headers, and returns the bytes of the answer. */
async function send(path: string, headers: Record<string, string> = {}, method = 'GET'): Promise<Answer> {
  // a connection of its own: the service may close an idle one at that moment
  const options = { method, agent: false, headers: { 'service.apikey': key, ...headers } };
  const request = openRequest(ctx.service.url + path, options);
  request.end();
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  const parts: Buffer[] = [];
  for await (const part of response) parts.push(part as Buffer);
  return { status: response.statusCode, headers: response.headers, body: Buffer.concat(parts) };
}

it.each([
  ['gzip', 'gzip', gunzipSync],
  ['br', 'br', brotliDecompressSync],
  ['deflate', 'deflate', inflateSync],
  ['gzip, deflate, br', 'br', brotliDecompressSync],
  ['br;q=0.5, gzip;q=0.8', 'gzip', gunzipSync],
  ['*', 'br', brotliDecompressSync],
])('answers Accept-Encoding: %s with %s', async (accepted, encoding, decode) => {
  const plain = await send(device);
  const compressed = await send(device, { 'Accept-Encoding': accepted });
  expect([plain.headers['content-encoding'], compressed.headers['content-encoding']]).toEqual([undefined, encoding]);
  expect(compressed.body.length).toBeLessThan(plain.body.length / 2);
  expect(decode(compressed.body)).toEqual(plain.body);
  for (const { headers } of [plain, compressed]) expect(headers.vary).toBe('Accept, Accept-Encoding');
  expect(compressed.headers.etag).toBe(plain.headers.etag);
});

it.each(['identity', 'zstd', 'gzip;q=0, br;q=0', 'identity, *;q=0'])(
  'sends Accept-Encoding: %s as it is',
  async (accepted) => {
    const { headers, body } = await send(device, { 'Accept-Encoding': accepted });
    expect(headers['content-encoding']).toBeUndefined();
    expect(Number(headers['content-length'])).toBe(body.length);
  },
);

it('compresses what has more than 1 KiB', async () => {
  const encodingOf = async (length: number) => {
    const path = pathOf('models', await ctx.fixtures.model({ name: `m${length}`, description: 'd' }));
    const { properties: _, ...shown } = (await ctx.api.get(path)).body;
    const empty = JSON.stringify({ ...shown, properties: { t: '' }, version: 1 }).length;
    expect((await ctx.api.put(path, { properties: { t: 'x'.repeat(length - empty) } })).body.code).toBe(2005);
    const plain = await send(path);
    expect(plain.body.length).toBe(length);
    return (await send(path, { 'Accept-Encoding': 'gzip' })).headers['content-encoding'];
  };
  expect([await encodingOf(1024), await encodingOf(1025)]).toEqual([undefined, 'gzip']);
});

it.each([
  '/devices/',
  '/devices/?format=csv',
  '/devices/?format=ndjson',
  '/devices/?format=xml',
  '/time_zones/',
  '/openapi.json',
  '/docs/swagger-ui.css',
])('compresses %s', async (path) => {
  const plain = await send(path);
  const { headers, body } = await send(path, { 'Accept-Encoding': 'gzip' });
  expect(headers['content-encoding']).toBe('gzip');
  expect(headers.vary).toContain('Accept-Encoding');
  expect(gunzipSync(body)).toEqual(plain.body);
});

it('compresses the description once, and sends a client what it accepts', async () => {
  const path = '/docs/swagger-ui-bundle.js';
  const plain = await send(path);
  for (const [accepted, encoding, decode] of [
    ['gzip, deflate, br', 'br', brotliDecompressSync],
    ['gzip', 'gzip', gunzipSync],
    ['deflate', 'deflate', inflateSync],
  ] as const) {
    const [first, second] = [
      await send(path, { 'Accept-Encoding': accepted }),
      await send(path, { 'Accept-Encoding': accepted }),
    ];
    expect(first.headers['content-encoding']).toBe(encoding);
    expect(decode(first.body).equals(plain.body)).toBe(true);
    expect(second.body.equals(first.body)).toBe(true);
    expect([first.headers.etag, first.headers.vary]).toEqual([plain.headers.etag, 'Accept-Encoding']);
  }
  const head = await send(path, { 'Accept-Encoding': 'br' }, 'HEAD');
  expect([head.status, head.body.length, head.headers['content-encoding']]).toEqual([200, 0, 'br']);
});

it('compresses an error', async () => {
  const path = `/devices/?${Array.from({ length: 60 }, (_, index) => `unknown${index}=1`).join('&')}`;
  const { status, headers, body } = await send(path, { 'Accept-Encoding': 'gzip' });
  expect([status, headers['content-encoding']]).toEqual([400, 'gzip']);
  expect(Object.keys(JSON.parse(gunzipSync(body).toString()).details).length).toBe(60);
});

it('sends downloads and ranges of them as they are', async () => {
  const whole = await send(file, { 'Accept-Encoding': 'gzip, br' });
  expect([whole.status, whole.headers['content-encoding'], whole.body.toString()]).toEqual([
    200,
    undefined,
    'x'.repeat(5000),
  ]);
  const part = await send(file, { 'Accept-Encoding': 'gzip', Range: 'bytes=0-3' });
  expect([part.status, part.headers['content-encoding'], part.body.toString()]).toEqual([206, undefined, 'xxxx']);
});

it('answers 304 and HEAD without a body', async () => {
  const { headers } = await send(device, { 'Accept-Encoding': 'gzip' });
  const unchanged = await send(device, { 'Accept-Encoding': 'gzip', 'If-None-Match': String(headers.etag) });
  expect([unchanged.status, unchanged.body.length, unchanged.headers['content-encoding']]).toEqual([304, 0, undefined]);
  const head = await send(device, { 'Accept-Encoding': 'gzip' }, 'HEAD');
  expect([head.status, head.body.length, head.headers.etag]).toEqual([200, 0, headers.etag]);
  // the length of the compressed body is not known before
  expect(head.headers['content-length']).toBeUndefined();
  expect(Number((await send(device, {}, 'HEAD')).headers['content-length'])).toBeGreaterThan(1024);
});

it('updates on condition of the tag of a compressed answer', async () => {
  const path = pathOf('models', await ctx.fixtures.model({ properties: { text: 'abc '.repeat(500) } }));
  const { headers } = await send(path, { 'Accept-Encoding': 'gzip' });
  expect((await ctx.api.put(path, { description: 'new' }, { 'If-Match': String(headers.etag) })).body.code).toBe(2005);
});
