import { beforeAll, describe, expect, it, jest } from '@jest/globals';
import { XMLParser } from 'fast-xml-parser';
import { summarize, useTestService } from '../support/expect-status.js';
import { type Api, type Reply, startTestService } from '../support/service.js';

const ctx = await useTestService();
const mebibyte = 1024 * 1024;
const tooLarge = '{'.padEnd(mebibyte + 1);
const anonymous = () => ctx.service.clientWith(undefined);

const reader = await ctx.service.client({ scope: 'read' });
const { fixtures } = ctx;
await fixtures.project({ name: 'P' });
await fixtures.project({ name: 'taken' });
await fixtures.service({ name: 'S', id_project: 'P@acme' });
await fixtures.service({ name: 'taken', id_project: 'P@acme' });
await fixtures.group({ name: 'G', id_service: 'S@acme' });
await fixtures.asset({ name: 'A', id_group: 'G@acme' });
await fixtures.device({ name: 'D', id_group: 'G@acme' });
await fixtures.model({ name: 'M' });

describe('codes of reference/errors.md', () => {
  const config = { name: 'f', version: '1', file: 'YQ==' };
  const refusals = {
    4003: [4003, 400, 'validation error'],
    4004: [4004, 400, 'format parameter invalid'],
    4005: [4005, 400, 'concurrency error'],
  } as const;
  /** Each code with an operation that answers it; texts of field messages are not fixed. */
  const table: [
    code: number,
    status: number,
    message: string,
    method: string,
    path: string,
    body: unknown,
    details: unknown,
  ][] = [
    [2001, 200, 'Project created', 'POST', '/projects/', { name: 'P', id_customer: 'c' }, {}],
    [
      2001,
      201,
      'Device_config created',
      'POST',
      '/devices/D@ACCOUNT/deviceconfigs/',
      config,
      expect.objectContaining(config),
    ],
    [2001, 200, 'model persisted', 'POST', '/models/', { name: 'M' }, {}],
    [2005, 200, 'Group updated', 'PUT', '/groups/G@ACCOUNT/', {}, expect.objectContaining({ name: 'G', version: 1 })],
    [4001, 400, 'Json bad formed', 'POST', '/groups/', '{"name"', {}],
    [4001, 400, 'nonexistent file', 'PUT', '/groups/G@ACCOUNT/', '{"name"', {}],
    [...refusals[4003], 'POST', '/groups/', { name: '' }, { name: expect.any(String), id_service: expect.any(String) }],
    [...refusals[4003], 'PUT', '/groups/G@ACCOUNT/', { enabled: 'on' }, { enabled: expect.any(String) }],
    [...refusals[4003], 'PUT', '/groups/G@ACCOUNT/', { id_service: 'nobody@acme' }, { id_service: 'does not exist' }],
    [...refusals[4003], 'PUT', '/groups/G@ACCOUNT/', { color: 1 }, { color: 'unknown field' }],
    [...refusals[4004], 'GET', '/groups/noat/', undefined, { group_id_developer: expect.any(String) }],
    [...refusals[4004], 'GET', '/groups/?max=0', undefined, { max: expect.any(String) }],
    [...refusals[4005], 'PUT', '/projects/P@ACCOUNT/', { version: 7 }, { version: 0 }],
    [...refusals[4005], 'PUT', '/services/S@ACCOUNT/', { version: 7 }, { version: 0 }],
    [...refusals[4005], 'PUT', '/devices/D@ACCOUNT/', { version: 7 }, { version: 0 }],
    [...refusals[4005], 'PUT', '/models/M@ACCOUNT/', { version: 7 }, { version: 0 }],
    [...refusals[4005], 'PUT', '/groups/G@ACCOUNT/', { version: 7 }, { version: expect.stringMatching(/\D/) }],
    [...refusals[4005], 'PUT', '/assets/A@ACCOUNT/', { version: 7 }, { version: expect.stringMatching(/\D/) }],
    [2004, 200, 'Device deleted', 'DELETE', '/devices/D@ACCOUNT/', undefined, {}],
    [4041, 404, 'not found', 'DELETE', '/devices/D@ACCOUNT/', undefined, {}],
  ];
  const accounts: Record<string, Record<string, string>> = { json: {}, xml: { Accept: 'application/xml' } };

  describe.each(Object.keys(accounts))('in %s', (account) => {
    let api: Api;
    beforeAll(async () => {
      api = await ctx.service.client({ account });
      for (const [plural, body] of [
        ['projects', { name: 'above', id_customer: 'c' }],
        ['services', { name: 'S', id_project: `above@${account}` }],
        ['groups', { name: 'G', id_service: `S@${account}` }],
        ['assets', { name: 'A', id_group: `G@${account}` }],
        ['devices', { name: 'D', type: 't', id_group: `G@${account}` }],
      ] as const)
        expect(summarize(await api.post(`/${plural}/`, body))).toBe('2001');
    });

    it.each(table)('%i (%i, %s): %s %s %j', async (code, status, message, method, path, body, details) => {
      const text = typeof body === 'object' ? JSON.stringify(body) : (body as string | undefined);
      const reply = await api.send(method, path.replace('ACCOUNT', account), accounts[account], text);
      expect(reply.status).toBe(status);
      if (account === 'json') expect(reply.body).toEqual({ code, message, details });
      else expect(bodyOf(reply)).toMatchObject({ code, message });
    });
  });

  const bodyOf = ({ text }: Reply) => new XMLParser().parse(text, true).response;

  it('5031 (503, BD error) with empty details if the database does not answer', async () => {
    const logged = jest.spyOn(console, 'error').mockImplementation(() => undefined);
    const disconnected = await startTestService({ uri: 'mongodb://127.0.0.1:1/nothing' });
    const expected = { code: 5031, message: 'BD error', details: {} };
    for (const [method, path] of [
      ['GET', '/projects/'],
      ['POST', '/devices/'],
      ['PUT', '/models/M@acme/'],
      ['DELETE', '/groups/G@acme/'],
    ] as const) {
      const reply = await disconnected.clientWith('any').send(method, path);
      expect([reply.status, reply.body]).toEqual([503, expected]);
    }
    expect(bodyOf(await disconnected.clientWith('any').get('/types/', { Accept: 'text/xml' }))).toEqual({
      code: 5031,
      message: 'BD error',
      details: '',
    });
    expect((await disconnected.clientWith(undefined).get('/projects/')).status).toBe(401);
    expect([
      (await disconnected.clientWith(undefined).get('/healthz')).status,
      (await disconnected.clientWith(undefined).get('/readyz')).status,
    ]).toEqual([200, 503]);
    expect(logged).toHaveBeenCalled();
    await disconnected.stop();
    logged.mockRestore();
  });

  it('5032 (503, exception) with a message without internal details', async () => {
    const logged = jest.spyOn(console, 'error').mockImplementation(() => undefined);
    const api = await ctx.service.client({ username: 'broken' });
    // a scope that the service never writes
    await ctx.service.db.collection('apikeys').updateOne({ username: 'broken' }, { $set: { scope: 'unheard of' } });
    const reply = await api.get('/projects/');
    expect([reply.status, reply.body]).toEqual([
      503,
      { code: 5032, message: 'exception', details: { message: expect.stringMatching(/^[^\n]{5,100}$/) } },
    ]);
    expect(reply.text).not.toMatch(/TypeError|undefined|\.ts|\.js|unheard|at /);
    expect(logged).toHaveBeenCalled();
    logged.mockRestore();
  });
});

/** Requests that break two rules, and the one that is reported (reference/requests.md#order-of-checks). */
describe('the order of checks', () => {
  it.each<[string, () => Promise<Reply>, string]>([
    ['401 before 404 of an unknown route', () => anonymous().get('/nothing/'), '4011 service.apikey'],
    ['401 before 405', () => anonymous().send('PUT', '/projects/'), '4011 service.apikey'],
    ['401 before 413', () => anonymous().send('POST', '/projects/', {}, tooLarge), '4011 service.apikey'],
    ['401 before 4001', () => anonymous().send('POST', '/projects/', {}, '{'), '4011 service.apikey'],
    ['401 before 4004 of the path', () => anonymous().get('/projects/noat/'), '4011 service.apikey'],
    ['401 before 4004 of the encoding', () => anonymous().get('/projects/%zz/'), '4011 service.apikey'],
    ['401 before 4004 of the query', () => anonymous().get('/projects/?max=0'), '4011 service.apikey'],
    ['401 before 4003', () => anonymous().post('/projects/', {}), '4011 service.apikey'],
    ['401 before 404', () => anonymous().get('/projects/nobody@acme/'), '4011 service.apikey'],
    ['405 before 403', () => reader.send('PUT', '/projects/'), '4051'],
    ['405 before 4004 of the encoding', () => ctx.api.send('PATCH', '/projects/%zz/'), '4051'],
    ['403 before 4004 of the encoding', () => reader.delete('/projects/%zz/'), '4031'],
    ['4001 before 4004 of the encoding', () => ctx.api.send('PUT', '/projects/%zz/', {}, '{'), '4001'],
    ['405 before 413', () => ctx.api.send('PUT', '/projects/', {}, tooLarge), '4051'],
    ['405 before 4001', () => ctx.api.send('PUT', '/projects/', {}, '{'), '4051'],
    ['405 before 4004 of the path', () => ctx.api.send('POST', '/projects/noat/', {}, '{}'), '4051'],
    ['405 before 4004 of the query', () => ctx.api.send('PUT', '/projects/?max=0'), '4051'],
    ['404 of an unknown route before 403', () => reader.post('/nothing/', {}), '4041'],
    ['404 of an unknown route before 413', () => ctx.api.send('POST', '/nothing/', {}, tooLarge), '4041'],
    ['404 of an unknown route before 4001', () => ctx.api.send('POST', '/nothing/', {}, '{'), '4041'],
    ['404 of an unknown route before 4004', () => ctx.api.get('/nothing/?max=0'), '4041'],
    ['403 before 413', () => reader.send('POST', '/projects/', {}, tooLarge), '4031'],
    ['403 before 4001', () => reader.send('POST', '/projects/', {}, '{'), '4031'],
    ['403 before 4004 of the path', () => reader.put('/projects/noat/', {}), '4031'],
    ['403 before 4004 of the query', () => reader.post('/projects/?x=1', {}), '4031'],
    ['403 before 4003', () => reader.post('/projects/', {}), '4031'],
    ['403 before 404', () => reader.delete('/projects/nobody@acme/'), '4031'],
    ['403 before 4005', () => reader.put('/projects/P@acme/', { version: 7 }), '4031'],
    ['413 before 4001', () => ctx.api.send('POST', '/projects/', {}, tooLarge), '4131'],
    ['413 before 4004 of the path', () => ctx.api.send('PUT', '/projects/noat/', {}, tooLarge), '4131'],
    ['413 before 4004 of the query', () => ctx.api.send('POST', '/projects/?x=1', {}, tooLarge), '4131'],
    ['413 before 404', () => ctx.api.send('PUT', '/projects/nobody@acme/', {}, tooLarge), '4131'],
    ['4001 before 4004 of the path', () => ctx.api.send('PUT', '/projects/noat/', {}, '{'), '4001'],
    ['4001 before 4004 of the query', () => ctx.api.send('POST', '/projects/?x=1', {}, '{'), '4001'],
    ['4001 before 404', () => ctx.api.send('PUT', '/projects/nobody@acme/', {}, '[]'), '4001'],
    ['4001 before 4005', () => ctx.api.send('PUT', '/projects/P@acme/', { 'If-Match': '"7"' }, '{'), '4001'],
    ['4004 of the path before 4003', () => ctx.api.put('/projects/noat/', { name: '' }), '4004 project_id_developer'],
    ['4004 of the query before 4003', () => ctx.api.post('/projects/?x=1', {}), '4004 x'],
    ['4004 of the query before 404', () => ctx.api.get('/projects/nobody@acme/?x=1'), '4004 x'],
    [
      '4004 of the query before 404 of a parent',
      () => ctx.api.get('/projects/nobody@acme/services/?max=0'),
      '4004 max',
    ],
    ['4004 of the query before 404 of an identifier without @', () => ctx.api.delete('/projects/noat/?x=1'), '4004 x'],
    ['4004 of the query before 404 of a key', () => ctx.api.delete('/apikeys/nope/?x=1'), '4004 x'],
    [
      '4004 of If-Match before 4003',
      () => ctx.api.put('/projects/P@acme/', { name: '' }, { 'If-Match': '7' }),
      '4004 If-Match',
    ],
    ['4004 of the query before 4005', () => ctx.api.put('/projects/P@acme/?x=1', { version: 7 }), '4004 x'],
    ['4003 of the body before 404', () => ctx.api.put('/projects/nobody@acme/', { name: '' }), '4003 name'],
    [
      '4003 of the body before 404 of a device',
      () => ctx.api.post('/devices/nobody@acme/deviceconfigs/', {}),
      '4003 file name version',
    ],
    [
      '4003 of the body before 4003 of a parent',
      () => ctx.api.post('/services/', { name: '', id_project: 'nobody@acme' }),
      '4003 name',
    ],
    ['4003 of the body before 4003 of a name', () => ctx.api.post('/projects/', { name: 'taken' }), '4003 id_customer'],
    ['4003 of the body before 4005', () => ctx.api.put('/projects/P@acme/', { name: '', version: 7 }), '4003 name'],
    [
      '4003 of the body before 4005 of If-Match',
      () => ctx.api.put('/projects/P@acme/', { name: '' }, { 'If-Match': '"7"' }),
      '4003 name',
    ],
    ['404 before 4003 of a parent', () => ctx.api.put('/services/nobody@acme/', { id_project: 'nobody@acme' }), '4041'],
    ['404 before 4003 of a name', () => ctx.api.put('/projects/nobody@acme/', { name: 'taken' }), '4041'],
    ['404 before 4005', () => ctx.api.put('/projects/nobody@acme/', { version: 7 }), '4041'],
    [
      '4003 of a parent before 4005',
      () => ctx.api.put('/services/S@acme/', { id_project: 'nobody@acme', version: 7 }),
      '4003 id_project',
    ],
    ['4003 of a name before 4005', () => ctx.api.put('/projects/P@acme/', { name: 'taken', version: 7 }), '4003 name'],
    [
      '4003 of a name before 4005 of If-Match',
      () => ctx.api.put('/projects/P@acme/', { name: 'taken' }, { 'If-Match': '"7"' }),
      '4003 name',
    ],
    [
      '4003 of parent and name together, before 4005',
      () => ctx.api.put('/services/S@acme/', { id_project: 'nobody@acme', name: 'taken', version: 7 }),
      '4003 id_project name',
    ],
    [
      '4003 of parent and name together on POST',
      () => ctx.api.post('/services/', { id_project: 'nobody@acme', name: 'taken' }),
      '4003 id_project name',
    ],
    ['4003 of a location before 4005', () => ctx.api.put('/devices/D@acme/', { lon: 1, version: 7 }), '4003 lat'],
  ])('reports %s', async (_, send, expected) => {
    expect(summarize(await send())).toBe(expected);
    for (const path of ['/projects/P@acme/', '/services/S@acme/', '/devices/D@acme/'])
      expect((await ctx.api.get(path)).body.version).toBe(0);
  });
});

it.each([
  ['/projects/noat/', '4041'],
  ['/services/noat/', '4041'],
  ['/groups/noat/', '4041'],
  ['/assets/noat/', '4041'],
  ['/models/noat/', '4041'],
  ['/apikeys/noat/', '4041'],
  ['/devices/noat/', '4004 device_id_developer'],
])('answers DELETE %s (identifier without @) with %s', async (path, expected) => {
  expect(summarize(await ctx.api.delete(path))).toBe(expected);
});

it.each([
  ['GET', '/projects/noat/', 'project_id_developer'],
  ['GET', '/services/noat/', 'service_id_developer'],
  ['GET', '/groups/noat/', 'group_id_developer'],
  ['GET', '/assets/noat/', 'asset_id_developer'],
  ['GET', '/devices/noat/', 'device_id_developer'],
  ['GET', '/models/noat/', 'model_id_developer'],
  ['PUT', '/projects/noat/', 'project_id_developer'],
  ['PUT', '/devices/noat/', 'device_id_developer'],
  ['PUT', '/models/noat/', 'model_id_developer'],
  ['GET', '/projects/noat/services/', 'project_id_developer'],
  ['GET', '/projects/P@acme/services/noat/', 'service_id_developer'],
  ['GET', '/services/noat/groups/', 'service_id_developer'],
  ['GET', '/groups/noat/assets/', 'group_id_developer'],
  ['GET', '/groups/noat/devices/', 'group_id_developer'],
  ['GET', '/groups/G@acme/devices/noat/', 'device_id_developer'],
  ['GET', '/assets/noat/devices/', 'asset_id_developer'],
  ['GET', '/devices/noat/deviceconfigs/', 'device_id_developer'],
  ['GET', '/devices/noat/deviceconfigs/f/1/', 'device_id_developer'],
])('answers %s %s (identifier without @) with 4004 {%s}', async (method, path, field) => {
  expect(summarize(await ctx.api.send(method, path, {}, method === 'PUT' ? '{}' : undefined))).toBe(`4004 ${field}`);
});
