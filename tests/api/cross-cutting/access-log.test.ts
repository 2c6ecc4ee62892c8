import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { Config } from '../../../src/config.js';
import {
  type Api,
  createFixtures,
  pathOf,
  type Reply,
  startTestService,
  type TestService,
} from '../../support/service.js';

const lines: string[] = [];
const logged: { fields: Record<string, unknown>; message: string }[] = [];
let service: TestService;
let api: Api;

async function start(log_format: Config['log_format'], trusted_proxies: Config['trusted_proxies'] = []): Promise<void> {
  await service?.stop();
  lines.length = 0;
  const log = (fields: object, message: string) => logged.push({ fields: { ...fields }, message });
  service = await startTestService({
    ...{ log_format, trusted_proxies },
    writeLine: (text) => lines.push(...text.split('\n').filter(Boolean)),
    log: { debug: log, info: () => undefined, warn: log, error: log },
  });
  api = await service.client();
}

/** The line of the request with this id. */
async function lineOf(request_id: string | undefined): Promise<string> {
  for (;;) {
    const found = lines.find((line) => line.includes(String(request_id)));
    if (found !== undefined) return found;
    await new Promise(setImmediate);
  }
}

beforeAll(() => start('combined'));
afterAll(() => service.stop());

it('ends a line of the combined format with code, time and id', async () => {
  const reply = await api.get('/devices/none@acme/', { referer: 'https://app.example/"' });
  const line =
    /^127\.0\.0\.1 - alice@acme \[[^\]]+ \+0000\] "GET \/devices\/none@acme\/ HTTP\/1\.1" 404 \d+ "https:\/\/app\.example\/\\"" "[^"]*" 4041 [\d.]+ ms [\da-f-]{36}$/;
  expect(await lineOf(reply.headers['x-request-id'])).toMatch(line);
  const listed = await api.get('/devices/');
  expect(await lineOf(listed.headers['x-request-id'])).toMatch(/ - [\d.]+ ms [\da-f-]{36}$/);
});

it('has the names of all parameters, and values only of those that shape the answer', async () => {
  const query = (pin: string, key: string) =>
    `max=5&sort=name&properties.pin=${pin}&fields=name&%61pikey=${key}&q=&flag&order=-1&=x=y`;
  const referer = `https://app.example/?${query('4711', 'KEY')}`;
  const reply = await api.get(`/devices/?${query('4711', 'KEY')}`, { referer });
  const line = await lineOf(reply.headers['x-request-id']);
  const shown = query('***', '***').replace('q=', 'q=***').replace('=x=y', '=***');
  expect(line).toContain(`"GET /devices/?${shown} HTTP/1.1" 400`);
  expect(line).toContain(`"https://app.example/?${shown}"`);
  const signedIn = await api.get('/console/?state=abc&code=s3cret&iss=x');
  const expected = '"GET /console/?state=***&code=***&iss=*** HTTP/1.1" 404';
  expect(await lineOf(signedIn.headers['x-request-id'])).toContain(expected);
});

it('writes one JSON object per request', async () => {
  await start('json');
  const reply = await api.get('/devices/none@acme/?x="1"');
  const line = JSON.parse(await lineOf(reply.headers['x-request-id']));
  expect(line).toEqual({
    time: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
    method: 'GET',
    path: '/devices/none@acme/?x=***',
    status: 400,
    code: 4004,
    bytes: Buffer.byteLength(reply.text),
    took_ms: expect.any(Number),
    account: 'acme',
    user: 'alice',
    request_id: reply.headers['x-request-id'],
    fields: ['x'],
  });
});

it('names the wrong fields in JSON, without values, at most 20 of 100 characters', async () => {
  const sent = { name: ['secret'], ['k'.repeat(500)]: 'secret', 'a"\nb': 'secret' };
  const refused = await api.post('/projects/', sent);
  expect(refused.body.code).toBe(4003);
  const line = await lineOf(refused.headers['x-request-id']);
  expect(JSON.parse(line).fields).toEqual(['k'.repeat(100), 'a"\nb', 'name', 'id_customer']);
  expect(line).not.toContain('secret');
  const many = Object.fromEntries(Array.from({ length: 30 }, (_, n) => [`field_${n}`, 'secret']));
  const flooded = await api.post('/projects/', many);
  const { fields } = JSON.parse(await lineOf(flooded.headers['x-request-id']));
  expect(fields).toEqual(Array.from({ length: 20 }, (_, n) => `field_${n}`));
  const missing = await api.get('/devices/none@acme/');
  expect(JSON.parse(await lineOf(missing.headers['x-request-id']))).not.toHaveProperty('fields');
});

it('has what was sent and stored in the line of a conflict', async () => {
  const id = await createFixtures(api).project();
  const conflict = await api.put(pathOf('projects', id), { version: 7 });
  const line = JSON.parse(await lineOf(conflict.headers['x-request-id']));
  expect(line).toMatchObject({ code: 4005, sent: [7], stored: 0 });
  const many = await api.delete(`/projects/?id_developer=${encodeURIComponent(id)}&confirm=5`);
  const lineOfMany = JSON.parse(await lineOf(many.headers['x-request-id']));
  expect(lineOfMany).toMatchObject({ code: 4005, sent: 5, stored: 1 });
});

it('logs the sent and the stored version of a conflict at debug level, under the request id', async () => {
  const id = await createFixtures(api).project();
  await api.put(pathOf('projects', id), { description: 'first' });
  const reply = await api.put(pathOf('projects', id), { version: 7 });
  expect(reply.body.code).toBe(4005);
  const request_id = reply.headers['x-request-id'];
  expect(logged.filter(({ fields }) => fields.request_id === request_id)).toEqual([
    {
      fields: { request_id, code: 4005, method: 'PUT', path: pathOf('projects', id), sent: [7], stored: 1 },
      message: 'concurrency error',
    },
  ]);
});

it('counts answers by application code', async () => {
  await api.get('/devices/none@acme/');
  const metrics = (await api.get('/metrics')).text;
  expect(metrics).toMatch(
    /http_request_duration_seconds_count\{method="GET",route="\/devices\/\{device_id_developer\}\/",status="404",code="4041"\} [1-9]/,
  );
});

it('names key, account, path and reason of refused requests, in the log and the access line', async () => {
  const ip = '127.0.0.1';
  const linesOfRefusals = () =>
    logged
      .splice(0)
      .map(({ fields: { count: _, request_id, ...fields }, message }) => ({ request_id, message, ...fields }));
  logged.length = 0;
  const { body } = await api.post('/apikeys/', { username: 'bob', scope: 'read', expires_at: service.now() + 60 });
  const { id: key_id, key } = body.details;
  const bob = service.clientWith(key);
  const forbidden = await bob.post('/projects/', { name: 'x' });
  const names = { key_id, account: 'acme', user: 'bob', scope: 'read' };
  const requestIdOf = ({ headers }: Reply) => headers['x-request-id'];
  expect(linesOfRefusals()).toEqual([
    {
      ...{ message: 'request refused: forbidden', reason: 'scope', ...names, request_id: requestIdOf(forbidden) },
      ...{ code: 4031, method: 'POST', path: '/projects/', ip },
    },
  ]);
  expect(JSON.parse(await lineOf(requestIdOf(forbidden)))).toMatchObject({ reason: 'scope', ...names });
  service.advance(120);
  const expired = await bob.get('/projects/?q=x');
  const unknown = await service.clientWith('no-such-key').get('/devices/');
  const missing = await service.clientWith(undefined).get('/devices/');
  const unauthorized = { message: 'request refused: unauthorized', code: 4011, method: 'GET', ip };
  const [first, second, third] = linesOfRefusals();
  const ofKey = { reason: 'has expired', key_id, account: 'acme', path: '/projects/' };
  expect(first).toEqual({ ...unauthorized, ...ofKey, request_id: requestIdOf(expired) });
  const ofNone = { ...unauthorized, path: '/devices/' };
  expect(second).toEqual({ ...ofNone, reason: 'is not valid', request_id: requestIdOf(unknown) });
  // at the level debug: a second one of an address within the minute
  expect(third).toEqual({ ...ofNone, reason: 'is missing', request_id: requestIdOf(missing) });
  expect(JSON.stringify(lines)).not.toContain('no-such-key');
});

it('shows the client that a trusted proxy names, and no other', async () => {
  const headers = { 'x-forwarded-for': '203.0.113.9, 192.0.2.7' };
  const ask = async () => lineOf((await api.get('/devices/', headers)).headers['x-request-id']);
  await start('combined', ['127.0.0.0/8']);
  expect(await ask()).toMatch(/^192\.0\.2\.7 - alice@acme /);
  await start('combined', ['10.0.0.0/8']);
  expect(await ask()).toMatch(/^127\.0\.0\.1 - alice@acme /);
  await start('json', ['127.0.0.0/8']);
  expect(JSON.parse(await ask()).address).toBe('192.0.2.7');
  await service.clientWith('unknown').get('/devices/', headers);
  expect(logged.at(-1)?.fields).toMatchObject({ code: 4011, ip: '192.0.2.7' });
});
