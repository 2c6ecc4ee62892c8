import { once } from 'node:events';
import { type IncomingHttpHeaders, request } from 'node:http';
import { afterAll, describe, expect, it } from '@jest/globals';
import type { Endpoint } from '../../../src/http/context.js';
import { createRouter } from '../../../src/http/router.js';
import { issueKey } from '../../../src/objects/api-keys.js';
import { createFixtures, startTestService } from '../../support/service.js';

interface RawRequest {
  method?: string;
  path: string;
  headers?: Record<string, string>;
}

let group = '';
let device = '';

const service = await startTestService({ base_path: '/api', cors_origins: ['https://a.example'] });
const { key } = await issueKey(service.db, { account: 'acme', username: 'alice', scope: 'write' }, 0);
const api = service.clientWith(key);
const post: typeof api.post = (path, body) => api.post(`/api${path}`, body);
const fixtures = createFixtures({ ...api, post });
group = await fixtures.group({ name: 'hall' });
device = await fixtures.device({ name: 'meter', id_group: group });
afterAll(() => service.stop());

interface RawResponse {
  status: number | undefined;
  headers: IncomingHttpHeaders;
  code: unknown;
}

/** Sends the path byte for byte; other clients would normalise it. */
async function send({ method = 'GET', path, headers = {} }: RawRequest): Promise<RawResponse> {
  const { port } = new URL(service.url);
  const sent = request({ host: '127.0.0.1', port, method, path, headers: { 'service.apikey': key, ...headers } });
  sent.end();
  const [answer] = await once(sent, 'response');
  let text = '';
  for await (const chunk of answer.setEncoding('utf8')) text += chunk;
  expect(answer.headers['x-request-id']).toMatch(/^[\da-f-]{36}$/);
  const code = text.startsWith('{') ? JSON.parse(text).code : undefined;
  return { status: answer.statusCode, headers: answer.headers, code };
}

const encode = (id: string) => encodeURIComponent(id);

describe('a request finds its endpoint', () => {
  it.each<[string, number, number | undefined, () => RawRequest]>([
    ['an object', 200, undefined, () => ({ path: `/api/devices/${device}/` })],
    ['an object, percent-encoded', 200, undefined, () => ({ path: `/api/devices/${encode(device)}/` })],
    ['an object, without the closing slash', 200, undefined, () => ({ path: `/api/groups/${group}` })],
    ['an address with scheme and host', 200, undefined, () => ({ path: `${service.url}/api/groups/${group}/` })],
    ['a child of its parent', 200, undefined, () => ({ path: `/api/groups/${group}/devices/${encode(device)}/` })],
    ['an unknown object', 404, 4041, () => ({ path: '/api/devices/none@acme/' })],
    ['an identifier that is too long', 400, 4004, () => ({ path: `/api/devices/${'x'.repeat(200)}/` })],
    ['an identifier without @', 400, 4004, () => ({ path: '/api/groups/none/' })],
    ['DELETE of a group without @', 404, 4041, () => ({ method: 'DELETE', path: '/api/groups/none/' })],
    ['DELETE of a device without @', 400, 4004, () => ({ method: 'DELETE', path: '/api/devices/none/' })],
    ['an empty query', 200, undefined, () => ({ path: `/api/groups/${group}/?` })],
    ['a path that is not UTF-8', 400, 4004, () => ({ path: '/api/groups/%ff@acme/' })],
    ['a path that is not percent-encoded', 400, 4004, () => ({ path: '/api/groups/50%@acme/' })],
    ['a slash in an identifier', 404, 4041, () => ({ path: '/api/groups/a%2Fb@acme/' })],
    ['an empty identifier', 404, 4041, () => ({ path: '/api/groups//' })],
    ['two closing slashes', 404, 4041, () => ({ path: `/api/groups/${group}//` })],
    ['two opening slashes', 404, 4041, () => ({ path: `//api/groups/${group}/` })],
    ['an encoded literal', 404, 4041, () => ({ path: `/api/%67roups/${group}/` })],
    ['another case', 404, 4041, () => ({ path: `/api/Groups/${group}/` })],
    ['a path outside of the base', 404, 4041, () => ({ path: `/groups/${group}/` })],
    ['no key', 401, 4011, () => ({ path: `/api/groups/${group}/`, headers: { 'service.apikey': '' } })],
    ['an unknown path without a key', 401, 4011, () => ({ path: '/api/none/', headers: { 'service.apikey': '' } })],
    ['a bad path without a key', 401, 4011, () => ({ path: '/api/groups/%ff/', headers: { 'service.apikey': 'no' } })],
    ['a bad path of another method', 405, 4051, () => ({ method: 'POST', path: '/api/groups/%ff/' })],
  ])('%s: %d', async (_name, status, code, build) => {
    const answer = await send(build());
    expect([answer.status, answer.code]).toEqual([status, code]);
  });
});

describe('the route table', () => {
  const endpoint = (method: 'get' | 'put', path: string): Endpoint => ({
    method,
    path,
    operationId: 'getThing',
    tag: 'things',
    summary: 'Show a thing',
    scope: 'read',
    result: { kind: 'plain', schema: {} },
    handle: () => ({}),
  });

  it('rejects two endpoints for one method and path', () => {
    expect(() => createRouter([endpoint('get', '/things/{id}/'), endpoint('get', '/things/{id}/')])).toThrow(
      'two endpoints for GET /things/{id}/',
    );
  });

  it('rejects two names for one parameter', () => {
    expect(() => createRouter([endpoint('get', '/things/{id}/'), endpoint('put', '/things/{name}/')])).toThrow(
      '/things/{name}/: {name} is {id} elsewhere',
    );
  });

  it('prefers a literal to a parameter', () => {
    const match = createRouter([endpoint('get', '/things/{id}/'), endpoint('get', '/things/live/')]);
    expect(match('GET', '/things/live/')?.endpoint?.path).toBe('/things/live/');
    expect(match('GET', '/things/1')).toMatchObject({ params: { id: '1' }, allow: 'GET, HEAD, OPTIONS' });
  });
});
