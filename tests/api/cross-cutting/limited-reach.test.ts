import { beforeAll, describe, expect, it } from '@jest/globals';
import { summarize, useTestService } from '../../support/expect-status.js';
import { sendImport } from '../../support/import.js';
import { type Api, pathOf, type Reply } from '../../support/service.js';

/** Changes that limited keys can make, and those that they cannot (reference/access.md#limited-keys). */
const ctx = await useTestService();
const encode = encodeURIComponent;

const { fixtures } = ctx;
for (const side of ['a', 'b']) {
  const id_project = await fixtures.project({ name: `p${side}` });
  const id_service = await fixtures.service({ name: `s${side}`, id_project });
  await fixtures.service({ name: `s${side}2`, id_project });
  const id_group = await fixtures.group({ name: `g${side}`, id_service });
  await fixtures.group({ name: `g${side}2`, id_service });
  const id_asset = await fixtures.asset({ name: `a${side}`, id_group });
  await fixtures.device({ name: `d${side}`, id_asset });
  await fixtures.device({ name: `e${side}`, id_group });
}
await fixtures.model({ name: 'm', properties: { colour: 'red' } });

async function keyOf(field: string, name: string, scope = 'write'): Promise<Api> {
  const { details } = (await ctx.api.post('/apikeys/', { username: 'bob', scope, [field]: `${name}@acme` })).body;
  return ctx.service.clientWith(details.key);
}
const faultsOf = ({ body }: Reply) => [body.code, body.details];
const show = async (plural: string, name: string) => (await ctx.api.get(pathOf(plural, `${name}@acme`))).body;
const missing = (field: string) => [4003, { [field]: 'does not exist' }];

describe('the object that a key names', () => {
  it('can be changed, and put back as it was read', async () => {
    const api = await keyOf('id_group', 'ga');
    const before = (await api.get('/groups/ga@acme/')).body;
    expect(before.id_service).toBe('sa@acme');
    const { body } = await api.put('/groups/ga@acme/', { ...before, description: 'changed' });
    expect(body).toMatchObject({ code: 2005, details: { id_service: 'sa@acme', version: 1, updater: 'bob' } });
    expect(await show('groups', 'ga')).toMatchObject({ id_service: 'sa@acme', description: 'changed', version: 1 });
    const stale = await api.put('/groups/ga@acme/', { ...before, description: 'again' });
    expect(stale.body.code).toBe(4005);
  });

  it.each([
    ['id_service', 'services', 'sa', { id_project: 'pb@acme' }],
    ['id_service', 'services', 'sa', { id_project: 'nowhere@acme' }],
    ['id_group', 'groups', 'ga', { id_service: 'sa2@acme' }],
    ['id_asset', 'assets', 'aa', { id_group: 'ga2@acme' }],
  ])('with %s: /%s/%s/ cannot be moved by %j', async (field, plural, name, body) => {
    const api = await keyOf(field, name);
    const before = await show(plural, name);
    expect(summarize(await api.put(pathOf(plural, `${name}@acme`), body))).toBe('4031');
    for (const confirm of ['', '&confirm=1'])
      expect(summarize(await api.patch(`/${plural}/?enabled=true${confirm}`, body))).toBe('4031');
    expect(await show(plural, name)).toEqual(before);
  });

  it('takes its own parent in a bulk change, and changes the rest', async () => {
    const api = await keyOf('id_asset', 'aa');
    const reply = await api.patch('/assets/?enabled=true&confirm=1', { id_group: 'ga@acme', description: 'bulk' });
    expect(reply.body).toMatchObject({ code: 2005, details: { matched: 1, changed: 1 } });
    expect(await show('assets', 'aa')).toMatchObject({ id_group: 'ga@acme', description: 'bulk' });
  });

  it('cannot be deleted, in a preview and in a bulk change neither', async () => {
    const api = await keyOf('id_project', 'pa');
    for (const path of [
      '/projects/pa@acme/',
      '/projects/pa@acme/?dry_run=1',
      '/projects/?enabled=true',
      '/projects/?enabled=true&confirm=1',
    ])
      expect([path, summarize(await api.delete(path))]).toEqual([path, '4031']);
    expect((await api.delete('/projects/?name=nothing')).body.details).toEqual({ matched: 0 });
    expect((await api.delete('/projects/?name=nothing&confirm=0')).body.details).toEqual({ matched: 0, changed: 0 });
    expect((await show('projects', 'pa')).version).toBe(0);
  });
});

describe('what is beside or above', () => {
  it('is no parent, and nothing moves out or in', async () => {
    const api = await keyOf('id_service', 'sa');
    const device = { name: 'x', type: 't' };
    expect(faultsOf(await api.post('/services/', { name: 'x', id_project: 'pa@acme' }))).toEqual(missing('id_project'));
    expect(faultsOf(await api.post('/groups/', { name: 'x', id_service: 'sb@acme' }))).toEqual(missing('id_service'));
    expect(faultsOf(await api.post('/devices/', { ...device, id_group: 'gb@acme' }))).toEqual(missing('id_group'));
    expect(faultsOf(await api.put('/groups/ga@acme/', { id_service: 'sb@acme' }))).toEqual(missing('id_service'));
    expect(faultsOf(await api.put('/devices/da@acme/', { id_group: 'gb@acme' }))).toEqual(missing('id_group'));
    expect(faultsOf(await api.put('/devices/da@acme/', { id_group: null, id_asset: 'ab@acme' }))).toEqual(
      missing('id_asset'),
    );
    expect(summarize(await api.put('/groups/gb@acme/', { id_service: 'sa@acme' }))).toBe('4041');
    for (const confirm of ['', '&confirm=2'])
      expect(faultsOf(await api.patch(`/devices/?enabled=true${confirm}`, { id_group: 'gb@acme' }))).toEqual(
        missing('id_group'),
      );
    expect(await show('groups', 'ga')).toMatchObject({ id_service: 'sa@acme' });
    expect(await show('devices', 'da')).toMatchObject({ id_asset: 'aa@acme' });
  });

  it('has names that are taken, as those within reach are', async () => {
    const api = await keyOf('id_service', 'sa');
    for (const name of ['ga', 'gb'])
      expect(faultsOf(await api.post('/groups/', { name, id_service: 'sa@acme' }))).toEqual([
        4003,
        { name: 'is taken' },
      ]);
    for (const name of ['ga2', 'gb2'])
      expect(faultsOf(await api.put('/groups/ga@acme/', { name }))).toEqual([4003, { name: 'is taken' }]);
    for (const name of ['ga', 'gb'])
      expect(faultsOf(await api.post('/groups/', { name, id_service: 'nowhere@acme' }))).toEqual([
        4003,
        { name: 'is taken', id_service: 'does not exist' },
      ]);
    const created = await api.post('/devices/', { name: 'db', type: 't', id_group: 'ga@acme' });
    expect(created.headers.location).toBe('/devices/db-2%40acme/');
    expect((await api.delete('/devices/db-2@acme/')).body.code).toBe(2004);
  });

  it('matches nothing, and an object above no more than the part', async () => {
    const api = await keyOf('id_group', 'ga');
    const devices = async (query: string) => {
      const { total_documents, result } = (await api.get(`/devices/?${query}`)).body;
      return [total_documents, result.map(({ id_developer }: { id_developer: string }) => id_developer)];
    };
    const part = [2, ['da@acme', 'ea@acme']];
    for (const query of ['', 'id_project=pa@acme', 'id_service=sa@acme', 'id_group=ga@acme', 'sort=created_at'])
      expect([query, await devices(query)]).toEqual([query, part]);
    for (const query of ['id_project=pb@acme', 'id_service=sa2@acme', 'id_group=ga2@acme', 'id_asset=ab@acme'])
      expect([query, await devices(query)]).toEqual([query, [0, []]]);
    expect(await devices('id_asset=aa@acme&id_project=pa@acme')).toEqual([1, ['da@acme']]);
    expect((await api.get('/services/')).body).toEqual({ total_documents: 0, result: [] });
    expect((await api.get('/groups/?id_project=pa@acme')).body.total_documents).toBe(1);
    for (const path of ['/services/sa@acme/groups/', '/services/sa@acme/groups/ga@acme/', '/projects/pa@acme/series/'])
      expect((await api.get(`${path}${path.includes('series') ? '?fields=x' : ''}`)).status).toBe(404);
  });
});

it('leaves models and their devices alone, but lets devices have a model', async () => {
  const api = await keyOf('id_group', 'ga');
  expect((await api.get('/models/m@acme/')).body.properties).toEqual({ colour: 'red' });
  expect((await api.get('/models/counts/?by=name')).body.total_documents).toBe(1);
  expect(summarize(await api.put('/models/m@acme/', { name: 'n' }))).toBe('4031');
  expect(summarize(await api.patch('/models/?name=m&confirm=1', { enabled: false }))).toBe('4031');
  expect((await api.put('/devices/ea@acme/', { id_model: 'm@acme' })).body.details).toMatchObject({
    id_model: 'm@acme',
    properties: { colour: 'red' },
  });
});

describe('deleting', () => {
  it('counts and removes what is below, and no more', async () => {
    const { fixtures } = ctx;
    const id_project = await fixtures.project({ name: 'pc' });
    const id_service = await fixtures.service({ name: 'sc', id_project });
    const id_group = await fixtures.group({ name: 'gc', id_service });
    const id_device = await fixtures.device({ name: 'dc', id_group });
    const hidden = await ctx.api.post('/apikeys/', { username: 'carol', scope: 'device', id_device });
    const api = await keyOf('id_service', 'sc');
    expect((await ctx.api.delete('/groups/gc@acme/?dry_run=1')).body.details).toEqual({
      group: 1,
      device: 1,
      apikey: 1,
    });
    expect((await api.delete('/groups/gc@acme/?dry_run=1')).body.details).toEqual({ group: 1, device: 1 });
    expect((await api.delete('/groups/?enabled=true&confirm=1')).body.details).toEqual({ matched: 1, changed: 1 });
    expect((await ctx.api.get('/devices/dc@acme/')).status).toBe(404);
    expect((await ctx.api.get('/services/sc@acme/')).status).toBe(200);
    const { result } = (await ctx.api.get('/apikeys/?username=carol')).body;
    expect(result.map(({ id }: { id: string }) => id)).not.toContain(hidden.body.details.id);
  });
});

describe('an import', () => {
  const lines = [
    { resource: 'project', name: 'new', id_customer: 'c' },
    { resource: 'model', name: 'new' },
    { resource: 'group', name: 'gi', id_service: 'sa@acme' },
    { resource: 'group', name: 'gj', id_service: 'sb@acme' },
    { resource: 'group', name: 'gb', id_service: 'sa@acme' },
    { resource: 'service', name: 'sa', id_project: 'pa@acme', description: 'imported' },
    { resource: 'device', id_developer: 'db@acme', name: 'db', type: 't', id_group: 'gi@acme' },
    { resource: 'device', name: 'di', type: 't', id_group: 'gi@acme' },
    { resource: 'model', name: 'm', description: 'imported' },
    { resource: 'project', name: '' },
    { resource: 'model', name: 'm', unknown: 1 },
  ];
  const outcomes = [
    [1, 4031, {}],
    [2, 4031, {}],
    [3, 2001, undefined],
    [4, 4003, { id_service: 'does not exist' }],
    [5, 4003, { name: 'is taken' }],
    [6, 2005, undefined],
    [7, 4003, { name: 'makes an identifier that is taken' }],
    [8, 2001, undefined],
    [9, 4031, {}],
    // as for a single request, before its body
    [10, 4031, {}],
    [11, 4031, {}],
  ];

  it.each(['&dry_run=1', ''])('does what single requests would, with %s', async (query) => {
    const api = await keyOf('id_service', 'sa');
    const answer = await sendImport(api, lines, `?on_conflict=update${query}`);
    expect(answer.lines.map(({ line, code, details }) => [line, code, details])).toEqual(outcomes);
    expect((await ctx.api.get('/devices/di@acme/')).status).toBe(query === '' ? 200 : 404);
  });

  it('skips what is within reach, and finds the rest taken', async () => {
    const api = await keyOf('id_service', 'sa');
    const { lines: answers } = await sendImport(api, [
      { resource: 'group', name: 'ga', id_service: 'sa@acme' },
      { resource: 'model', name: 'm' },
      { resource: 'group', name: 'gb', id_service: 'sa@acme' },
    ]);
    expect(answers.map(({ code }) => code)).toEqual([2007, 2007, 4003]);
  });
});

describe('streams', () => {
  beforeAll(async () => {
    for (const device of ['da', 'db']) await ctx.api.post('/streams/', { device: `${device}@acme`, data: { n: 1 } });
  });
  const streamOf = async (device: string) =>
    (await ctx.api.get(`/streams/?device=${device}@acme`)).body.result[0].id_developer;

  it('are listed for a device within reach', async () => {
    const api = await keyOf('id_group', 'ga', 'read');
    for (const path of ['/streams/', '/streams/?_t=str', '/streams/?bogus=1', '/streams/?format=csv'])
      expect(summarize(await api.get(path))).toBe('4031');
    expect((await api.get('/streams/?device=da@acme')).body.total_documents).toBe(1);
    expect((await api.get('/streams/?device=db@acme')).body).toEqual({ total_documents: 0, result: [] });
    expect((await api.get('/streams/?device=db@acme&format=ndjson')).text).toBe('');
    expect((await api.get(pathOf('streams', await streamOf('da')))).status).toBe(200);
    expect((await api.get(pathOf('streams', await streamOf('db')))).status).toBe(404);
  });

  it('of a device are all that its key lists', async () => {
    const api = await keyOf('id_device', 'da', 'read');
    const { total_documents, result } = (await api.get('/streams/')).body;
    expect([total_documents, result[0].device]).toEqual([1, 'da@acme']);
    expect((await api.get('/streams/?device=db@acme')).body.total_documents).toBe(0);
    expect((await api.get('/streams/?after=0&max=1')).body.total_documents).toBe(1);
    expect((await api.get('/devices/')).body.result.map(({ name }: { name: string }) => name)).toEqual(['da']);
  });

  it('are refused as those of an unknown device', async () => {
    const api = await keyOf('id_device', 'da', 'device');
    const send = (...devices: string[]) =>
      api.post(
        '/streams/',
        devices.map((device) => ({ device: `${device}@acme`, data: {} })),
      );
    expect((await send('da', 'da')).text).toBe('{ "response": "OK" }');
    expect(faultsOf(await send('da', 'db'))).toEqual([4003, { '1.device': 'does not exist' }]);
    expect((await api.post('/status/', { device: 'da@acme', data: {} })).text).toBe('{ "response": "OK" }');
    expect((await ctx.api.get('/devices/db@acme/')).body).not.toHaveProperty('last_status_at');
  });
});

it('lets a device download its configuration with its own key', async () => {
  const file = { name: 'boot.json', version: '1', file: Buffer.from('{"speed":1}').toString('base64') };
  for (const device of ['da', 'db']) await ctx.api.post(pathOf('devices', `${device}@acme`, 'deviceconfigs'), file);
  const api = await keyOf('id_device', 'da', 'device');
  const configs = '/devices/da@acme/deviceconfigs/';
  expect((await api.get('/devices/da@acme/')).body.name).toBe('da');
  expect((await api.get(configs)).body.total_documents).toBe(1);
  for (const path of [`${configs}boot.json/`, `${configs}boot.json/1/`]) {
    const { body, headers } = await api.get(path);
    expect([String(body), headers['content-type']]).toEqual(['{"speed":1}', 'application/octet-stream']);
  }
  expect((await api.get('/devices/db@acme/deviceconfigs/boot.json/')).status).toBe(404);
  expect(summarize(await api.post(configs, file))).toBe('4031');
});

it('follows the object when it is moved', async () => {
  const api = await keyOf('id_asset', 'ab', 'read');
  const above = await keyOf('id_project', 'pa', 'read');
  const count = async (key: Api) => (await key.get('/devices/?name=db')).body.total_documents;
  expect([await count(api), await count(above)]).toEqual([1, 0]);
  await ctx.api.put('/assets/ab@acme/', { id_group: 'ga@acme' });
  expect([await count(api), await count(above)]).toEqual([1, 1]);
  expect((await api.get('/self/')).body.id_asset).toBe('ab@acme');
  await ctx.api.put('/assets/ab@acme/', { id_group: 'gb@acme' });
  expect([await count(api), await count(above)]).toEqual([1, 0]);
});

it('does not confuse objects of different types with one identifier', async () => {
  const { fixtures } = ctx;
  const id_group = await fixtures.group({ name: 'same' });
  await fixtures.device({ name: 'same', id_group });
  const api = await keyOf('id_group', 'same');
  expect((await api.put('/devices/same@acme/', { id_group: 'same@acme', firmware: '2' })).body.code).toBe(2005);
  expect((await api.delete('/devices/same@acme/')).body.code).toBe(2004);
  expect(encode((await api.get('/groups/')).body.result[0].id_developer)).toBe('same%40acme');
});
