import { connect } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { AppError } from '../../../src/errors.js';
import { parseQuery } from '../../../src/schema/query.js';
import { openSandbox, sendRequest } from '../../support/process.js';
import { createFixtures, pathOf, startTestService } from '../../support/service.js';
import { wordsOf } from '../../support/words.js';

/** Common classes of weakness, each with the rule of docs/reference or RFC 9110 that excludes it. */

const service = await startTestService();
const api = await service.client();
const fixtures = createFixtures(api);
const project = await fixtures.project();
const id_service = await fixtures.service({ id_project: project });
const group = await fixtures.group({ id_service });
const asset = await fixtures.asset({ id_group: group });
const model = await fixtures.model();
const ids = { project, service: id_service, group, asset, model, device: await fixtures.device({ id_group: group }) };
await api.post('/alarmrules/', { name: 'r', severity: 'info', conditions: [{ path: 'a', op: '=', value: 1 }] });
await api.post('/webhooks/', { name: 'w', url: 'https://hooks.example/', types: ['*'] });
afterAll(() => service.stop());

type JsonObject = Record<string, unknown>;

/** A valid body for each operation that takes one, written by hand. */
function validBodies(): [method: 'post' | 'put' | 'patch', path: string, body: JsonObject][] {
  const networking = { type: 'gprs', sim_card: 's'.repeat(18), telephone_number: '1', carrier: 'c' };
  const device = {
    ...{ type: 't', name: 'n', description: 'd', sensor: 's', firmware: 'f', checksum: 'c'.repeat(40), enabled: true },
    ...{ time_zone: 'UTC', frequency_status: 1, frequency_stream: 1, lon: 1, lat: 1, properties: {}, networking },
  };
  const common = { name: 'n', description: 'd', enabled: true };
  const file = { name: 'n', version: '1', file: 'eA==', date_deployed: 1 };
  const above = { id_project: ids.project, id_service: ids.service, id_group: ids.group, id_asset: ids.asset };
  const rule = {
    ...{ ...common, severity: 'info', match: 'any', for: 1, id_device: ids.device },
    conditions: [{ path: 'a', op: '>', value: 1, clear: 0 }],
  };
  const webhook = { ...common, ...above, url: 'https://hooks.example/', types: ['*'] };
  return [
    ['post', '/projects/', { ...common, id_customer: 'c' }],
    ['put', pathOf('projects', ids.project), { ...common, id_customer: 'c', version: 0 }],
    ['post', '/services/', { ...common, id_project: ids.project }],
    ['patch', '/projects/?owner=alice', { description: 'd', enabled: true, id_customer: 'c' }],
    ['patch', '/services/?owner=alice', { description: 'd', enabled: true, id_project: ids.project }],
    ['patch', '/groups/?owner=alice', { description: 'd', enabled: true, id_service: ids.service }],
    ['patch', '/assets/?owner=alice', { description: 'd', enabled: true, id_group: ids.group, properties: {} }],
    ['patch', '/models/?owner=alice', { description: 'd', enabled: true, properties: {} }],
    ['patch', '/devices/?owner=alice', { ...device, name: undefined, id_group: ids.group, id_model: ids.model }],
    ['put', pathOf('services', ids.service), { ...common, id_project: ids.project, version: 0 }],
    ['post', '/groups/', { ...common, id_service: ids.service }],
    ['put', pathOf('groups', ids.group), { ...common, id_service: ids.service, version: 0 }],
    ['post', '/assets/', { ...common, id_group: ids.group, properties: {} }],
    ['put', pathOf('assets', ids.asset), { ...common, id_group: ids.group, properties: {}, version: 0 }],
    ['post', '/models/', { ...common, properties: {} }],
    ['put', pathOf('models', ids.model), { ...common, properties: {}, version: 0 }],
    ['post', '/devices/', { ...device, id_group: ids.group, id_model: ids.model }],
    ['put', pathOf('devices', ids.device), { ...device, id_group: ids.group, id_model: ids.model, version: 0 }],
    ['post', pathOf('devices', ids.device, 'deviceconfigs'), file],
    ['post', pathOf('devices', ids.device, 'commands'), { name: 'n', data: {}, expires_in: 60 }],
    ['post', '/devices/deviceconfigs/?type=pump', file],
    ['put', '/devices/deviceconfigs/f/desired/?type=pump', { version: '1' }],
    ['post', '/devices/commands/?type=pump', { name: 'n', data: {}, expires_in: 60 }],
    ['post', pathOf('devices', ids.device, 'commands', 'c', 'result'), { id: 'c', status: 'done', data: {} }],
    ['put', pathOf('devices', ids.device, 'deviceconfigs', 'f', 'desired'), { version: '1' }],
    ['post', pathOf('devices', ids.device, 'streams'), { data: {}, at: 1, protocol: 'p', _t: 'str', checksum: 'c' }],
    ['post', '/streams/', { device: ids.device, data: {}, at: 1, protocol: 'p', _t: 'str', checksum: 'c' }],
    ['post', '/status/', { device: ids.device, data: {}, at: 1, protocol: 'p', _t: 'sta', checksum: 'c' }],
    ['put', pathOf('alarms', 'an@alarm'), { state: 'acknowledged', note: 'n' }],
    ['patch', '/alarms/?state=active', { state: 'acknowledged', note: 'n' }],
    ['post', '/alarmrules/', rule],
    ['put', pathOf('alarmrules', 'r@acme'), { ...rule, version: 0 }],
    ['post', '/filters/', { name: 'f', description: 'd', query: 'type=pump' }],
    ['put', pathOf('filters', 'f@acme'), { name: 'f', description: 'd', query: 'type=pump', version: 0 }],
    ['post', '/webhooks/', webhook],
    ['put', pathOf('webhooks', 'w@acme'), { ...webhook, version: 0 }],
    ['post', '/apikeys/', { username: 'u', scope: 'read', description: 'd', expires_at: 4e9 }],
    ['post', pathOf('mqttdevices', ids.device, 'credentials'), { username: 'u', password: 'not a secret' }],
    ['put', pathOf('mqttdevices', ids.device, 'credentials'), { username: 'u', password: 'not a secret' }],
    ['post', pathOf('mqttdevices', ids.device, 'topics'), { name: 't' }],
    ['put', '/external/webdav/user/alice/', { url: 'https://dav.example/', username: 'u', password: 'not a secret' }],
  ];
}

const topLevelLists = [
  ...[
    'projects',
    'services',
    'groups',
    'assets',
    'models',
    'devices',
    'apikeys',
    'streams',
    'events',
    'webhooks',
    'alarmrules',
    'alarms',
    'filters',
    'mqtt/connections',
  ].map((plural) => `/${plural}/`),
  ...['/types/', '/sensors/', '/time_zones/', '/locales/'],
];
const allLists = () => [
  ...topLevelLists,
  pathOf('projects', ids.project, 'services'),
  pathOf('services', ids.service, 'groups'),
  pathOf('groups', ids.group, 'assets'),
  pathOf('groups', ids.group, 'devices'),
  pathOf('assets', ids.asset, 'devices'),
  pathOf('devices', ids.device, 'deviceconfigs'),
  pathOf('devices', ids.device, 'commands'),
  pathOf('devices', ids.device, 'alarms'),
  pathOf('devices', ids.device, 'streams'),
  pathOf('mqttdevices', ids.device, 'topics'),
  pathOf('webhooks', 'w@acme', 'deliveries'),
];

it('covers every operation that takes a body or lists', () => {
  const pattern = (path: string) => path.replaceAll(/\{\w+\}/g, '*');
  const patternOfPath = (path: string) =>
    decodeURIComponent(path)
      .split('/')
      .map((part) =>
        part.includes('@') || part === 'webdav' || part === 'alice' || part === 'f' || part === 'c' ? '*' : part,
      )
      .join('/');
  const withBody = new Set([
    ...validBodies().map(([method, path]) => `${method} ${patternOfPath(path.split('?')[0] ?? '')}`),
    // patches have any members: tested in device-state.test.ts
    ...['patch /devices/*/state/', 'patch /devices/*/state/reported/'],
  ]);
  // lists with other parameters are tested in linked-storage, series, counts and config-fleet
  const series = ['device', 'group', 'asset', 'service', 'project'] as const;
  const others = [
    '/external/webdav/user/alice/',
    '/devices/series/',
    '/devices/deviceconfigs/counts/',
    ...series.map((name) => pathOf(`${name}s`, ids[name], 'series')),
    ...['projects', 'services', 'groups', 'assets', 'models', 'devices', 'alarms'].map(
      (plural) => `/${plural}/counts/`,
    ),
  ];
  const listed = new Set([...allLists(), ...others].map(patternOfPath));
  for (const { method, path, body, result } of service.operations) {
    if (body !== undefined && method !== 'delete') expect(withBody).toContain(`${method} ${pattern(path)}`);
    if (result.kind === 'list') expect(listed).toContain(pattern(path));
  }
});

describe('operator injection', () => {
  const operators = [{ $gt: '' }, { $where: 'sleep(1000)' }, [{ $gt: '' }]];

  it('is rejected as the value of any field', async () => {
    for (const [method, path, body] of validBodies()) {
      for (const field of Object.keys(body)) {
        for (const operator of operators) {
          // free-form fields accept any object; tested below
          if ((field === 'properties' || field === 'data') && !Array.isArray(operator)) continue;
          const reply = await api[method](path, { ...body, [field]: operator });
          const request = `${method} ${path} ${field} ${JSON.stringify(operator)}`;
          expect([request, reply.status, reply.body.code]).toEqual([request, 400, 4003]);
          const faults = Object.keys(reply.body.details);
          expect(faults.some((fault) => fault === field || fault.startsWith(`${field}.`))).toBe(true);
        }
      }
    }
  });

  it('is rejected in a query', async () => {
    for (const path of allLists()) {
      for (const query of ['name[$gt]=', 'name[$ne]=x', '$where=1', 'owner[]=x', 'created_at[$gt]=0', 'where={}']) {
        const reply = await api.get(`${path}?${query}`);
        expect([path, query, reply.status, reply.body.code]).toEqual([path, query, 400, 4004]);
      }
    }
    const text = encodeURIComponent('{"$gt":""}');
    for (const plural of ['projects', 'devices', 'models']) {
      const reply = await api.get(`/${plural}/?name=${text}&owner=${text}`);
      expect([reply.status, reply.body]).toEqual([200, { total_documents: 0, result: [] }]);
    }
  });

  it('matches nothing as an identifier or a key', async () => {
    for (const id of ['{"$gt":""}@acme', '[$ne]@acme', '.*@acme', '$where@acme'])
      expect((await api.get(pathOf('projects', id))).status).toBe(404);
    for (const key of ['{"$gt":""}', '[object Object]', '*', 'null', 'undefined', '0'])
      expect((await service.clientWith(key).get('/projects/')).body.code).toBe(4011);
  });
});

describe('prototype pollution', () => {
  const names = ['__proto__', 'constructor', 'prototype', 'toString', 'hasOwnProperty', '__defineGetter__'];
  const expectCleanPrototype = () => {
    expect(Object.keys(Object.prototype)).toEqual([]);
    expect(({} as JsonObject).polluted).toBeUndefined();
  };

  it('fails through fields of a body', async () => {
    for (const [method, path, body] of validBodies()) {
      for (const name of names) {
        const text = `{${JSON.stringify(name)}:{"polluted":true},${JSON.stringify(body).slice(1)}`;
        const reply = await api[method](path, text);
        expect([method, path, reply.body.code]).toEqual([method, path, 4003]);
        expect(JSON.parse(reply.text, (_key, value) => value).code).toBe(4003);
        expect(Object.entries(reply.body.details)).toContainEqual([name, 'unknown field']);
      }
    }
    const nested = '{"networking":{"type":"wifi","__proto__":{"polluted":true}}}';
    const reply = await api.put(pathOf('devices', ids.device), nested);
    expect(reply.body.details).toEqual({ 'networking.__proto__': 'unknown field' });
    expectCleanPrototype();
  });

  it('fails through a query, a sort or a path', async () => {
    for (const path of allLists()) {
      for (const name of names) {
        for (const query of [`${name}=1`, `sort=${name}`, `${name}[polluted]=1`]) {
          const reply = await api.get(`${path}?${query}`);
          expect([path, query, reply.status, reply.body.code]).toEqual([path, query, 400, 4004]);
        }
      }
    }
    for (const name of names) {
      expect((await api.get(`/${name}/`)).status).toBe(404);
      expect((await api.get(pathOf('devices', `${name}@acme`))).status).toBe(404);
    }
    expectCleanPrototype();
  });

  it('does not prevent such names of resources', async () => {
    for (const name of names) {
      expect((await api.post('/models/', { name })).body.code).toBe(2001);
      expect((await api.get(pathOf('models', `${name}@acme`))).body.name).toBe(name);
    }
    expectCleanPrototype();
  });
});

describe('mass assignment', () => {
  const internalFields = {
    ...{ _id: 'x', __v: 7, account: 'globex', id_account: 'globex', parent: 'x', digest: 'x', key: 'x', hash: 'x' },
    ...{ location: { type: 'Point', coordinates: [0, 0] }, size: 1, removed: true, root: 'x' },
  };
  /** Read-only fields: accepted and ignored, so that clients can send back objects (reference/requests.md#body-fields). */
  const readOnlyFields: Record<string, string[]> = { '/deviceconfigs/': ['size'] };

  it('of internal fields is rejected as an unknown field', async () => {
    for (const [method, path, body] of validBodies()) {
      const exempt = Object.entries(readOnlyFields).flatMap(([end, fields]) =>
        path.split('?')[0]?.endsWith(end) ? fields : [],
      );
      const sent = Object.entries(internalFields).filter(([field]) => !(field in body) && !exempt.includes(field));
      const reply = await api[method](path, { ...body, ...Object.fromEntries(sent) });
      expect([path, reply.status, reply.body.code]).toEqual([path, 400, 4003]);
      expect(reply.body.details).toMatchObject(Object.fromEntries(sent.map(([field]) => [field, 'unknown field'])));
    }
  });
});

it('an API key has the identifier and time that the service gives it', async () => {
  const issued = await api.post('/apikeys/', { username: 'bob', scope: 'read', id: 'mine', created_at: 1 });
  const keys = (await api.get('/apikeys/?username=bob')).body.result;
  expect(keys).toMatchObject([{ id: issued.body.details.id, created_at: service.now() }]);
  expect(issued.body.details.id).not.toBe('mine');
});

describe('hidden fields', () => {
  const fields = wordsOf('_id __v account parent digest key hash location location.coordinates root');

  it('neither filter nor sort a list', async () => {
    for (const path of allLists()) {
      for (const query of fields.flatMap((field) => [`sort=${field}`, `${field}=x`, `${field}_from=1`])) {
        const reply = await api.get(`${path}?${query}`);
        expect([path, query, reply.status, reply.body.code]).toEqual([path, query, 400, 4004]);
      }
    }
    expect((await api.get(`${pathOf('devices', ids.device, 'deviceconfigs')}?sort=file`)).body.code).toBe(4004);
    for (const query of ['sort=properties.a', 'sort=networking', 'properties=x', 'sort=$natural', 'sort=-name'])
      expect((await api.get(`/devices/?${query}`)).body.code).toBe(4004);
  });

  it('are shown nowhere', async () => {
    for (const path of [...allLists(), ...Object.entries(ids).map(([type, id]) => pathOf(`${type}s`, id))]) {
      for (const Accept of ['application/json', 'application/xml']) {
        const { status, text } = await api.get(path, { Accept });
        expect([path, status]).toEqual([path, 200]);
        expect(text).not.toMatch(/["<](?:_id|__v|account|parent|digest|hash|location)[">]/);
      }
    }
  });
});

describe('limits', () => {
  const longId = `${'x'.repeat(200)}@acme`;

  it('hold for the body of every operation', async () => {
    for (const [method, path] of validBodies()) {
      const limit = path.includes('deviceconfigs') ? 16 * 1024 * 1024 : 1024 * 1024;
      const big = `{"name":"${'x'.repeat(limit)}"}`;
      const reply = await api[method](path, big);
      expect([path, reply.status, reply.body.code]).toEqual([path, 413, 4131]);
      // the limit applies after decompression
      const packed = { 'Content-Encoding': 'gzip', 'Content-Type': 'application/octet-stream' };
      const inflated = await api.send(method.toUpperCase(), path, packed, gzipSync(big));
      expect([path, inflated.status, inflated.body.code]).toEqual([path, 413, 4131]);
    }
  });

  it('hold for the identifier in every path and every parameter of a list', async () => {
    for (const { method, path, body } of service.operations) {
      if (!path.includes('_id_developer}')) continue;
      const called = path.replaceAll(/\{\w*id_developer\}/g, encodeURIComponent(longId)).replaceAll(/\{\w+\}/g, 'x');
      const reply = await api.send(method.toUpperCase(), called, {}, body && '{}');
      expect([method, path, reply.status, reply.body.code]).toEqual([method, path, 400, 4004]);
    }
    for (const path of allLists()) {
      for (const query of wordsOf('max=0 max=1001 max=1e3 max=-1 offset=-1 offset=1e400 order=0 order=2')) {
        const reply = await api.get(`${path}?${query}`);
        expect([path, query, reply.status, reply.body.code]).toEqual([path, query, 400, 4004]);
      }
      expect((await api.get(`${path}?offset=999999999999999`)).body.result).toEqual([]);
    }
  });

  it('hold for nesting, before recursive code reads the body', async () => {
    for (const [method, path] of validBodies()) {
      for (const text of ['{"a":'.repeat(100_000), `{"name":${'['.repeat(33)}${']'.repeat(33)}}`]) {
        const reply = await api[method](path, text);
        expect([path, reply.status, reply.body.code]).toEqual([path, 400, 4001]);
      }
    }
  });
});

describe('regular expressions with catastrophic backtracking', () => {
  const texts = (length: number) => [
    ...['a', '0', '-', ':', '0:', '%', '@', '.', ' ', '\t', '"', '\\'].map((part) => part.repeat(length / part.length)),
    `${'0'.repeat(length)}!`,
    `${'a.'.repeat(length / 2)}!`,
    `${'::'.repeat(length / 2)}g`,
  ];

  // of this process, which has the service in it: the time by the clock is shared with other programs
  async function expectCheap<T>(work: () => Promise<T>): Promise<T> {
    const before = process.cpuUsage();
    const result = await work();
    expect(process.cpuUsage(before).user).toBeLessThan(5_000_000);
    return result;
  }

  it('are not reachable through a query', async () => {
    const lists = service.operations.filter(({ method, path }) => method === 'get' && topLevelLists.includes(path));
    for (const { path, query = new Map() } of lists) {
      const isRefused = (parameter: string, text: string) => {
        try {
          parseQuery([[parameter, text]], query);
          return false;
        } catch (error) {
          return error instanceof AppError;
        }
      };
      for (const [number, parameter] of [...query.keys()].entries()) {
        const hostile = texts(2000);
        const reply = await expectCheap(() => {
          // all of them for the reader of the parameter, one on the whole way
          expect(hostile.filter((text) => !isRefused(parameter, text))).toEqual([]);
          return api.get(`${path}?${parameter}=${encodeURIComponent(hostile[number % hostile.length] ?? '')}`);
        });
        expect([path, parameter, reply.status]).toEqual([path, parameter, reply.status === 431 ? 431 : 400]);
      }
    }
  });

  it('are not reachable through a body', async () => {
    const fields = ['name', 'description', 'checksum', 'time_zone', 'networking', 'id_group', 'type', 'sensor'];
    for (const text of texts(70_000)) {
      const longFields = Object.fromEntries(fields.slice(0, 4).map((field) => [field, text]));
      const body = { ...longFields, networking: { type: 'wifi', conn_address: text }, id_group: text };
      const reply = await expectCheap(() => api.put(pathOf('devices', ids.device), body));
      expect(reply.body.code).toBe(4003);
    }
  });

  it('are not reachable through a header', async () => {
    for (const header of ['Accept', 'If-Match', 'If-None-Match', 'Range', 'Origin', 'Content-Encoding', 'User-Agent']) {
      for (const text of texts(6000).filter((text) => !text.includes('\t'))) {
        const { status } = await expectCheap(() =>
          api.put(pathOf('groups', ids.group), { description: 'x' }, { [header]: text }),
        );
        expect([200, 304, 400]).toContain(status);
      }
    }
  });
});

describe('header injection', () => {
  it('fails through names of files', async () => {
    const file = 'eA==';
    const configsPath = pathOf('devices', ids.device, 'deviceconfigs');
    for (const name of ['a\r\nX-Evil: 1', 'a\nb', 'a\0b', 'a/../b', '..', 'a\u0085b'])
      expect((await api.post(configsPath, { name, version: '1', file })).body.code).toBe(4003);
    for (const name of ['a"; filename="evil.exe', "it's; x=y", 'ü€😀', '%0d%0aX-Evil: 1', 'a\u2028b', '\\"x']) {
      const version = name.includes('\\') ? undefined : '1';
      const created = await api.post(configsPath, { name, version: '1', file });
      if (version === undefined) {
        expect(created.body.code).toBe(4003);
        continue;
      }
      expect(created.status).toBe(201);
      const location = created.headers.location ?? '';
      expect(location).toBe(`/devices/${encodeURIComponent(ids.device)}/deviceconfigs/${encodeURIComponent(name)}/1/`);
      const { status, headers } = await api.get(location, { Accept: '*/*' });
      expect([status, headers['x-evil']]).toEqual([200, undefined]);
      const disposition = headers['content-disposition'] ?? '';
      expect(disposition).toMatch(/^attachment; filename="(?:[^"\\]|\\.)*"(?:; filename\*=UTF-8''[\w!#$&+.^`|~%-]+)?$/);
      expect(disposition).toMatch(/^[\x20-\x7e]*$/);
    }
  });

  it('fails through names of resources or paths', async () => {
    for (const name of ['a\r\nX-Evil: 1', 'a\u0000', 'a\u009bb'])
      expect((await api.post('/models/', { name })).body.code).toBe(4003);
    const created = await api.post('/models/', { name: 'ü "€" <😀>\u2028/..%0d%0a' });
    expect(created.headers.location).toBe(
      '/models/%C3%BC%20%22%E2%82%AC%22%20%3C%F0%9F%98%80%3E%E2%80%A8%2F..%250d%250a%40acme/',
    );
    expect((await api.get(created.headers.location ?? '')).status).toBe(200);
    for (const path of ['/models/a%0d%0aX-Evil:%201@acme/', '/projects/?name=a%0d%0aX-Evil:%201']) {
      const { headers, status } = await api.get(path);
      expect([status < 500, headers['x-evil']]).toEqual([true, undefined]);
    }
  });
});

/** The service as its own process, to read its output. */
describe('the output of the process', () => {
  const bootstrap = 'a-key-that-must-not-be-seen';
  const hostile = [
    ['/x%0d%0a127.0.0.1%20-%20admin', 'plain'],
    ['/x', 'a" 200 5 "-" "forged'],
    ['/x', 'tab\tand \u0085 \u009b31m'],
    ['/x?"a"\\=b', '\\'],
    ['/%1b[31m', 'x'.repeat(5000)],
    ['/\u00e9', 'ÿ'],
  ] as const;
  let hidden: readonly string[];
  let output: string;
  let accessLog: string[];

  beforeAll(async () => {
    const sandbox = await openSandbox();
    try {
      const uri = new URL(process.env.TEST_MONGODB_URI ?? '');
      uri.pathname = `/test-written-${process.pid}-${Date.now()}`;
      const running = await sandbox.service({
        ...{ MONGODB_URI: uri.href, SECRET_KEY: 'only for this test, secret', BOOTSTRAP_API_KEY: bootstrap },
        ...{ LOG_FORMAT: 'combined', LOG_LEVEL: 'trace' },
      });
      const before = running.out().length;
      hidden = await useSecrets(running.url);
      for (const [path, agent] of hostile) await sendHostile(Number(new URL(running.url).port), path, agent);
      running.kill('SIGTERM');
      await running.ended;
      await sandbox.database(uri.href).dropDatabase();
      accessLog = running.out().slice(before).split('\n').filter(Boolean);
      output = running.out() + running.err();
    } finally {
      await sandbox.close();
    }
  });

  /** Makes and uses secrets in `requests`. @returns what must be seen nowhere */
  async function useSecrets(url: string): Promise<readonly string[]> {
    const headers = { 'service.apikey': bootstrap };
    const send = (method: string, path: string, body?: unknown, more = {}) =>
      sendRequest(method, url + path, body, { ...headers, ...more });
    const issued = await send('POST', '/apikeys/', { username: 'bob', scope: 'write' });
    await send('POST', '/projects/', { name: 'p', id_customer: 'c' });
    await send('POST', '/services/', { name: 's', id_project: 'p@demo' });
    await send('POST', '/groups/', { name: 'g', id_service: 's@demo' });
    await send('POST', '/devices/', { name: 'd', type: 't', id_group: 'g@demo' });
    const login = { username: 'u', password: 'the password of d' };
    const created = await send('POST', '/mqttdevices/d@demo/credentials/', login);
    const replies = [
      created,
      await send('PUT', '/mqttdevices/d@demo/credentials/', login),
      await send('GET', '/apikeys/'),
      await send('GET', '/devices/d@demo/'),
      await send('GET', '/apikeys/', undefined, { accept: 'application/xml' }),
      await send('GET', '/projects/', undefined, { 'service.apikey': `${issued.body.details.key}x` }),
      await send('POST', '/apikeys/', { username: 'bob', scope: 'nonsense', key: issued.body.details.key }),
      await send('GET', '/metrics'),
    ];
    expect(created.body.code).toBe(2001);
    const secrets = [issued.body.details.key, bootstrap, login.password, 'only for this test, secret'];
    for (const { text } of replies) for (const secret of secrets) expect(text).not.toContain(secret);
    for (const { text } of replies) expect(text).not.toMatch(/[\da-f]{64}/);
    return secrets;
  }

  const sendHostile = (port: number, path: string, agent: string) =>
    new Promise<void>((resolve, reject) => {
      const socket = connect(port, '127.0.0.1');
      socket
        .on('error', reject)
        .on('close', () => resolve())
        .resume();
      const head = `GET ${path} HTTP/1.1\r\nHost: x\r\nUser-Agent: ${agent}\r\nReferer: ${agent}\r\n`;
      socket.write(Buffer.from(`${head}Connection: close\r\n\r\n`, 'latin1'));
    });

  it('contains no key, password or digest', () => {
    for (const secret of hidden) expect(output).not.toContain(secret);
    expect(output).not.toMatch(/\b[\da-f]{64}\b/);
  });

  it('has one access-log line per request, whatever a client sends', () => {
    const lines = accessLog.filter((line) => !line.includes('/readyz'));
    for (const line of lines) {
      // no control characters, not even those of Latin-1, and quotes sent by the client are escaped
      expect(line).toMatch(/^[^\p{Cc}\u2028\u2029]*$/u);
      expect(line).toMatch(
        /^\S+ - \S+ \[[^\]]*\] "(?:[^"\\]|\\.)*" \d{3} \S+ "(?:[^"\\]|\\.)*" "(?:[^"\\]|\\.)*" (?:\d{4}|-) \S+ ms [\da-f-]{36}$/,
      );
      expect(line.length).toBeLessThan(8000);
    }
    expect(lines.join('\n')).toContain(String.raw`"GET /x?\"a\"\\=*** HTTP/1.1" 401`);
    // 13 requests with secrets; Node itself refuses one of the hostile ones
    expect(lines.length).toBeGreaterThanOrEqual(13 + hostile.length - 1);
    expect(lines.length).toBeLessThanOrEqual(13 + hostile.length);
  });
});
