import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { issueKey } from '../../../src/repositories/api-keys.js';
import { givenBy, startTestService, type TestService } from '../../support/service.js';

interface Asked {
  method?: string;
  path: string;
  headers?: Record<string, string>;
  body?: string;
}

let service: TestService;
let routers: Server;
let keys: { write: string; stream: string };
let group = '';
let device = '';

beforeAll(async () => {
  service = await startTestService({ base_path: '/api', cors_origins: ['https://a.example'] });
  routers = createServer(service.express).listen(0, '127.0.0.1');
  await once(routers, 'listening');
  const issue = async (scope: 'write' | 'stream') =>
    (await issueKey(service.db, { account: 'acme', username: 'alice', scope }, 0)).key;
  keys = { write: await issue('write'), stream: await issue('stream') };
  const api = service.clientWith(keys.write);
  const post: typeof api.post = (path, body) => api.post(`/api${path}`, body);
  const given = givenBy({ ...api, post });
  group = await given.group({ name: 'hall' });
  device = await given.device({ name: 'meter', id_group: group });
});
afterAll(async () => {
  routers.closeAllConnections();
  routers.close();
  await service.stop();
});

interface Answered {
  status: number | undefined;
  headers: IncomingHttpHeaders;
  text: string;
}

/** The very bytes of the path, which clients of a higher level would tidy up. */
async function ask(port: number, { method = 'GET', path, headers = {}, body }: Asked): Promise<Answered> {
  const sent = request({
    host: '127.0.0.1',
    port,
    method,
    path,
    headers: { 'service.apikey': keys.write, ...headers },
  });
  sent.end(body);
  const [answer] = await once(sent, 'response');
  let text = '';
  for await (const chunk of answer.setEncoding('utf8')) text += chunk;
  const { 'x-request-id': id, date, ...others } = answer.headers;
  expect(id).toMatch(/^[\da-f-]{36}$/);
  expect(date).toBeDefined();
  return { status: answer.statusCode, headers: others, text };
}

/** Versions and names count on from one to the other. */
function comparable({ status, headers, text }: Answered): object {
  const plain = (value: unknown) => JSON.stringify(value).replaceAll(/\d+/g, '0');
  return { status, headers: plain(headers), text: plain(text) };
}

const json = (value: unknown) => ({ body: JSON.stringify(value), headers: { 'Content-Type': 'application/json' } });

describe('an operation that is answered ahead of the routers is answered as they do', () => {
  const at = (id: string) => encodeURIComponent(id);
  it.each<[string, number, () => Asked]>([
    ['an object', 200, () => ({ path: `/api/devices/${device}/` })],
    ['percent-encoded', 200, () => ({ path: `/api/devices/${at(device)}/` })],
    ['without the last slash', 200, () => ({ path: `/api/groups/${group}` })],
    ['as XML', 200, () => ({ path: `/api/groups/${group}/`, headers: { Accept: 'application/xml' } })],
    [
      'an object that did not change',
      304,
      () => ({ path: `/api/groups/${group}/`, headers: { 'If-None-Match': '*' } }),
    ],
    ['of another origin', 200, () => ({ path: `/api/groups/${group}/`, headers: { Origin: 'https://a.example' } })],
    [
      'of an origin that may not',
      200,
      () => ({ path: `/api/groups/${group}/`, headers: { Origin: 'https://b.example' } }),
    ],
    ['the head of an object', 200, () => ({ method: 'HEAD', path: `/api/devices/${device}/` })],
    ['what is not there', 404, () => ({ path: '/api/devices/none@acme/' })],
    ['what cannot be there', 400, () => ({ path: `/api/devices/${'x'.repeat(200)}/` })],
    ['an identifier without @', 400, () => ({ path: '/api/groups/none/' })],
    ['a query that is not known', 400, () => ({ path: `/api/groups/${group}/?max=1` })],
    ['an empty query', 200, () => ({ path: `/api/groups/${group}/?` })],
    ['a path that is no UTF-8', 400, () => ({ path: '/api/groups/%ff@acme/' })],
    ['a path that is not encoded', 400, () => ({ path: '/api/groups/50%@acme/' })],
    ['a slash in an identifier', 404, () => ({ path: '/api/groups/a%2Fb@acme/' })],
    ['an empty identifier', 404, () => ({ path: '/api/groups//' })],
    ['two slashes at the end', 404, () => ({ path: `/api/groups/${group}//` })],
    ['two slashes at the beginning', 404, () => ({ path: `//api/groups/${group}/` })],
    ['another case', 404, () => ({ path: `/api/Groups/${group}/` })],
    ['outside of the base', 404, () => ({ path: `/groups/${group}/` })],
    ['no key', 401, () => ({ path: `/api/groups/${group}/`, headers: { 'service.apikey': '' } })],
    ['an unknown key', 401, () => ({ path: '/api/groups/%ff@acme/', headers: { 'service.apikey': 'unknown' } })],
    [
      'a key of another scope',
      403,
      () => ({ path: `/api/groups/${group}/`, headers: { 'service.apikey': keys.stream } }),
    ],
    ['no method of the path', 405, () => ({ method: 'POST', path: `/api/groups/${group}/`, ...json({}) })],
    ['a method that nothing takes', 405, () => ({ method: 'PATCH', path: `/api/groups/${group}/`, ...json({}) })],
    ['what methods there are', 204, () => ({ method: 'OPTIONS', path: `/api/groups/${group}/` })],
    ['a change', 200, () => ({ method: 'PUT', path: `/api/groups/${group}/`, ...json({ description: 'b' }) })],
    ['a conflict', 400, () => ({ method: 'PUT', path: `/api/groups/${group}/`, ...json({ version: 99 }) })],
    ['no change', 400, () => ({ method: 'PUT', path: `/api/groups/${group}/` })],
    [
      'a new device',
      200,
      () => ({ method: 'POST', path: '/api/devices/', ...json({ name: 'meter', type: 't', id_group: group }) }),
    ],
    [
      'a new device of nothing',
      400,
      () => ({ method: 'POST', path: '/api/devices/', ...json({ id_group: 'x@acme' }) }),
    ],
    ['no JSON', 400, () => ({ method: 'POST', path: '/api/devices/', body: '{' })],
    ['a body that is too large', 413, () => ({ method: 'POST', path: '/api/devices/', body: ' '.repeat(3_000_000) })],
    ['a stream', 200, () => ({ method: 'POST', path: `/api/devices/${device}/streams/`, ...json({ data: {} }) })],
    ['no stream', 400, () => ({ method: 'POST', path: `/api/devices/${device}/streams/`, ...json({ data: 5 }) })],
    [
      'a stream of nothing',
      404,
      () => ({ method: 'POST', path: '/api/devices/x@acme/streams/', ...json({ data: {} }) }),
    ],
  ])('%s: %d', async (_name, status, asked) => {
    const [ahead, routed] = [
      await ask(Number(new URL(service.url).port), asked()),
      await ask((routers.address() as AddressInfo).port, asked()),
    ];
    expect(ahead.status).toBe(status);
    expect(comparable(ahead)).toEqual(comparable(routed));
  });

  it('and the service says of each that it is often asked for', () => {
    const often = service.operations.filter((one) => one.often).map(({ method, path }) => `${method} ${path}`);
    expect(often).toEqual(
      expect.arrayContaining(['get /devices/{device_id_developer}/', 'put /groups/{group_id_developer}/']),
    );
    for (const operation of often) expect(operation.match(/\{/g)?.length ?? 0).toBeLessThanOrEqual(1);
  });
});
