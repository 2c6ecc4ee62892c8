import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import {
  type Api,
  createFixtures,
  pathOf,
  type Reply,
  startTestService,
  type TestService,
} from '../../support/service.js';

/** Accounts are islands (contract 2): whatever `globex` asks for of `acme` is not there. */
let service: TestService;
let acme: Api;
let globex: Api;
let theirs: Held;
let ours: Held;
let folder: string;
const storage = '/external/local/user/alice/';

/** What an account has: one resource of each type, in one another, and what lies beneath its device. */
interface Held {
  project: string;
  service: string;
  group: string;
  asset: string;
  model: string;
  device: string;
  key_id: string;
}

async function settle(api: Api): Promise<Held> {
  const fixtures = createFixtures(api);
  const project = await fixtures.project({ name: 'weather' });
  const id_service = await fixtures.service({ name: 'stations', id_project: project });
  const group = await fixtures.group({ name: 'coast', id_service });
  const asset = await fixtures.asset({ name: 'mast', id_group: group });
  const model = await fixtures.model({ name: 'm-1', properties: { range: 40 } });
  const device = await fixtures.device({ name: 'pump', id_group: group, id_model: model });
  const issued = await api.post('/apikeys/', { username: 'bob', scope: 'read' });
  const beneath = [
    await api.post(pathOf('devices', device, 'deviceconfigs'), { name: 'boot', version: '1', file: 'eA==' }),
    await api.post(pathOf('devices', device, 'streams'), { data: { level: 3 } }),
    await api.post(pathOf('mqttdevices', device, 'credentials'), { username: device, password: 'not a secret' }),
    await api.post(pathOf('mqttdevices', device, 'topics'), { name: 'valves/#' }),
  ];
  expect(beneath.map(({ body }) => body.code)).toEqual([2001, 2001, 2001, 2001]);
  return { project, service: id_service, group, asset, model, device, key_id: issued.body.details.id };
}

/** All that `acme` can see of its own. */
async function everything(api: Api, held: Held): Promise<unknown> {
  const paths = [
    ...['projects', 'services', 'groups', 'assets', 'models', 'devices', 'apikeys', 'streams'].map((all) => `/${all}/`),
    pathOf('devices', held.device, 'deviceconfigs'),
    pathOf('mqttdevices', held.device, 'topics'),
  ];
  return Promise.all(paths.map(async (path) => (await api.get(path)).body));
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'isolation-'));
  for (const account of ['acme', 'globex']) {
    await mkdir(join(folder, account));
    await writeFile(join(folder, account, `of ${account}.txt`), account);
  }
  service = await startTestService({ filestore_local_root: folder });
  acme = await service.client();
  globex = await service.client({ account: 'globex', username: 'mallory' });
  theirs = await settle(acme);
  expect((await acme.put(storage, { path: 'acme' })).body.code).toBe(2001);
  ours = await settle(globex);
});
afterAll(async () => {
  await service.stop();
  await rm(folder, { recursive: true });
});

const notFound = (reply: Reply) => expect([reply.status, reply.body.code]).toEqual([404, 4041]);
const noSuch = (field: string) => (reply: Reply) =>
  expect([reply.status, reply.body]).toEqual([
    400,
    { code: 4003, message: 'validation error', details: { [field]: 'does not exist' } },
  ]);

/** `globex` sees its own one only, whichever filter it tries. */
function ownOnly(plural: string, key: 'id_developer' | 'id' | 'device', mine: () => string, other: () => string) {
  return async () => {
    const all = await globex.get(`/${plural}/`);
    expect([all.body.total_documents, all.body.result.map((one: Record<string, unknown>) => one[key])]).toEqual([
      1,
      [mine()],
    ]);
    const filters = [`${key}=${encodeURIComponent(other())}`, 'owner=alice', 'updater=alice'];
    for (const filter of plural === 'apikeys' ? [] : filters) {
      if (filter.startsWith('id_developer') && plural === 'models') continue;
      const found = await globex.get(`/${plural}/?${filter}`);
      expect([filter, found.body]).toEqual([filter, { total_documents: 0, result: [] }]);
    }
  };
}

/** Children of a foreign parent, of an own parent under a foreign name, and the reverse. */
function children(upper: keyof Held, lower: keyof Held) {
  const [above, beneath] = [`${upper}s`, `${lower}s`];
  return {
    [`GET /${above}/{${upper}_id_developer}/${beneath}/`]: async () =>
      notFound(await globex.get(pathOf(above, theirs[upper], beneath))),
    [`GET /${above}/{${upper}_id_developer}/${beneath}/{${lower}_id_developer}/`]: async () => {
      notFound(await globex.get(pathOf(above, theirs[upper], beneath, theirs[lower])));
      notFound(await globex.get(pathOf(above, ours[upper], beneath, theirs[lower])));
      notFound(await globex.get(pathOf(above, theirs[upper], beneath, ours[lower])));
    },
  };
}

/** Show, update and delete of one that is another's. */
function single(type: keyof Held, changes: object) {
  const path = () => pathOf(`${type}s`, theirs[type]);
  const route = `/${type}s/{${type}_id_developer}/`;
  return {
    [`GET ${route}`]: async () => {
      const { headers } = await acme.get(path());
      notFound(await globex.get(path()));
      notFound(await globex.get(path(), { 'If-None-Match': headers.etag ?? '' }));
    },
    [`PUT ${route}`]: async () => {
      for (const body of [{}, changes, { ...changes, version: 0 }, { name: 'taken over' }])
        notFound(await globex.put(path(), body));
      notFound(await globex.put(path(), changes, { 'If-Match': '*' }));
    },
    [`DELETE ${route}`]: async () => notFound(await globex.delete(path())),
  };
}

/** A create beneath a parent of another, and a move there. */
function beneath(type: 'service' | 'group' | 'asset' | 'device', field: string, upper: keyof Held) {
  return async () => {
    const fields = type === 'device' ? { type: 't' } : {};
    const body = { name: 'intruder', ...fields, [field]: theirs[upper] };
    noSuch(field)(await globex.post(`/${type}s/`, body));
    noSuch(field)(await globex.put(pathOf(`${type}s`, ours[type]), { [field]: theirs[upper] }));
  };
}

/** How each operation is called with what is another's, and what must come of it. */
const rows: Record<string, () => Promise<unknown>> = {
  'POST /projects/': async () => {
    // the name is free here although the other account has it
    const reply = await globex.post('/projects/', { name: 'only at acme', id_customer: 'c' });
    expect([reply.body.code, reply.headers.location]).toEqual([2001, '/projects/only%20at%20acme%40globex/']);
    expect((await globex.delete('/projects/only%20at%20acme@globex/')).status).toBe(200);
  },
  'GET /projects/': ownOnly(
    'projects',
    'id_developer',
    () => ours.project,
    () => theirs.project,
  ),
  ...single('project', { description: 'x' }),
  ...children('project', 'service'),

  'POST /services/': beneath('service', 'id_project', 'project'),
  'GET /services/': ownOnly(
    'services',
    'id_developer',
    () => ours.service,
    () => theirs.service,
  ),
  ...single('service', { description: 'x' }),
  ...children('service', 'group'),

  'POST /groups/': beneath('group', 'id_service', 'service'),
  'GET /groups/': ownOnly(
    'groups',
    'id_developer',
    () => ours.group,
    () => theirs.group,
  ),
  ...single('group', { description: 'x' }),
  ...children('group', 'asset'),
  ...children('group', 'device'),

  'POST /assets/': beneath('asset', 'id_group', 'group'),
  'GET /assets/': ownOnly(
    'assets',
    'id_developer',
    () => ours.asset,
    () => theirs.asset,
  ),
  ...single('asset', { properties: {} }),
  ...children('asset', 'device'),

  'POST /models/': async () => {
    const reply = await globex.post('/models/', { name: 'only at acme' });
    expect([reply.body.code, reply.headers.location]).toEqual([2001, '/models/only%20at%20acme%40globex/']);
    expect((await globex.delete('/models/only%20at%20acme@globex/')).status).toBe(200);
  },
  'GET /models/': ownOnly(
    'models',
    'id_developer',
    () => ours.model,
    () => theirs.model,
  ),
  ...single('model', { properties: {} }),

  'POST /devices/': async () => {
    await beneath('device', 'id_group', 'group')();
    await beneath('device', 'id_asset', 'asset')();
    const body = { name: 'intruder', type: 't', id_group: ours.group, id_model: theirs.model };
    noSuch('id_model')(await globex.post('/devices/', body));
    noSuch('id_model')(await globex.put(pathOf('devices', ours.device), { id_model: theirs.model }));
  },
  'GET /devices/': async () => {
    await ownOnly(
      'devices',
      'id_developer',
      () => ours.device,
      () => theirs.device,
    )();
    for (const [field, id] of [
      ['id_group', theirs.group],
      ['id_model', theirs.model],
    ] as const)
      expect((await globex.get(`/devices/?${field}=${encodeURIComponent(id)}`)).body.total_documents).toBe(0);
    expect((await globex.get('/devices/?sort=status&status=no_status')).body.total_documents).toBe(1);
    expect((await globex.get('/devices/?_t=str')).body.total_documents).toBe(1);
  },
  ...single('device', { description: 'x' }),

  'POST /devices/{device_id_developer}/deviceconfigs/': async () =>
    notFound(
      await globex.post(pathOf('devices', theirs.device, 'deviceconfigs'), { name: 'b', version: '1', file: 'eA==' }),
    ),
  'GET /devices/{device_id_developer}/deviceconfigs/': async () =>
    notFound(await globex.get(pathOf('devices', theirs.device, 'deviceconfigs'))),
  'GET /devices/{device_id_developer}/deviceconfigs/{file_name}/': async () =>
    notFound(await globex.get(pathOf('devices', theirs.device, 'deviceconfigs', 'boot'))),
  'GET /devices/{device_id_developer}/deviceconfigs/{file_name}/{file_version}/': async () =>
    notFound(await globex.get(pathOf('devices', theirs.device, 'deviceconfigs', 'boot', '1'))),

  'POST /devices/{device_id_developer}/streams/': async () =>
    notFound(await globex.post(pathOf('devices', theirs.device, 'streams'), { data: { level: 9 } })),
  'GET /devices/{device_id_developer}/streams/': async () =>
    notFound(await globex.get(pathOf('devices', theirs.device, 'streams'))),
  'DELETE /devices/{device_id_developer}/streams/': async () =>
    notFound(await globex.delete(pathOf('devices', theirs.device, 'streams'))),
  'POST /streams/': async () => noSuch('device')(await globex.post('/streams/', { device: theirs.device, data: {} })),
  'POST /status/': async () => noSuch('device')(await globex.post('/status/', { device: theirs.device, data: {} })),
  'GET /streams/': ownOnly(
    'streams',
    'device',
    () => ours.device,
    () => theirs.device,
  ),

  'POST /mqttdevices/{device_id_developer}/credentials/': async () => {
    const login = { username: 'intruder', password: 'not a secret' };
    notFound(await globex.post(pathOf('mqttdevices', theirs.device, 'credentials'), login));
  },
  'PUT /mqttdevices/{device_id_developer}/credentials/': async () => {
    const login = { username: theirs.device, password: 'taken over' };
    notFound(await globex.put(pathOf('mqttdevices', theirs.device, 'credentials'), login));
  },
  'DELETE /mqttdevices/{device_id_developer}/': async () =>
    notFound(await globex.delete(pathOf('mqttdevices', theirs.device))),
  'POST /mqttdevices/{device_id_developer}/topics/': async () =>
    notFound(await globex.post(pathOf('mqttdevices', theirs.device, 'topics'), { name: 'a' })),
  'GET /mqttdevices/{device_id_developer}/topics/': async () =>
    notFound(await globex.get(pathOf('mqttdevices', theirs.device, 'topics'))),
  'DELETE /mqttdevices/{device_id_developer}/topics/': async () =>
    notFound(await globex.delete(pathOf('mqttdevices', theirs.device, 'topics'), { name: 'valves/#' })),

  'POST /apikeys/': async () => {
    const issued = await globex.post('/apikeys/', { username: 'alice', scope: 'admin' });
    const { id, key } = issued.body.details;
    const listed = await service.clientWith(key).get('/projects/');
    expect(listed.body.result.map((one: { id_developer: string }) => one.id_developer)).toEqual([ours.project]);
    expect((await globex.delete(pathOf('apikeys', id))).status).toBe(200);
    // nobody says which account: it is that of the key
    for (const field of ['account', 'id_account'])
      expect((await globex.post('/apikeys/', { username: 'x', scope: 'read', [field]: 'acme' })).body.details).toEqual({
        [field]: 'unknown field',
      });
  },
  'GET /apikeys/': async () => {
    const { body } = await globex.get('/apikeys/');
    expect(body.result.map((key: { username: string }) => key.username).sort()).toEqual(['bob', 'mallory']);
    expect(body.result.map((key: { id: string }) => key.id)).not.toContain(theirs.key_id);
    expect((await globex.get('/apikeys/?username=alice')).body).toEqual({ total_documents: 0, result: [] });
  },
  'DELETE /apikeys/{id}/': async () => notFound(await globex.delete(pathOf('apikeys', theirs.key_id))),

  'PUT /external/{provider}/user/{username}/': async () => {
    expect((await globex.put(storage, { path: 'globex' })).body.code).toBe(2001);
    expect(await namesIn(acme)).toEqual(['of acme.txt']);
    expect(await namesIn(globex)).toEqual(['of globex.txt']);
    expect((await globex.delete(storage)).body.code).toBe(2004);
  },
  'GET /external/{provider}/user/{username}/': async () => {
    const reply = await globex.get(`${storage}?op=all`);
    expect([reply.status, reply.body.code]).toEqual([401, 4011]);
  },
  'DELETE /external/{provider}/user/{username}/': async () => {
    notFound(await globex.delete(storage));
    expect(await namesIn(acme)).toEqual(['of acme.txt']);
  },

  'GET /types/': () => sameForAll('/types/'),
  'GET /sensors/': () => sameForAll('/sensors/'),
  'GET /time_zones/': () => sameForAll('/time_zones/'),
};

async function namesIn(api: Api): Promise<string[]> {
  const { body } = await api.get(`${storage}?op=all`);
  return body.result.map(({ name }: { name: string }) => name);
}

async function sameForAll(path: string): Promise<void> {
  expect((await globex.get(path)).text).toBe((await acme.get(path)).text);
}

it('has a row for every operation, and none for what is no operation', () => {
  const served = service.operations.map(({ method, path }) => `${method.toUpperCase()} ${path}`);
  expect(Object.keys(rows).sort()).toEqual(served.sort());
});

describe('what is of another account is not there', () => {
  let untouched: unknown;

  beforeAll(async () => {
    untouched = await Promise.all([everything(acme, theirs), everything(globex, ours)]);
  });

  it.each(Object.entries(rows))('%s', async (_operation, row) => {
    await row();
    expect(await Promise.all([everything(acme, theirs), everything(globex, ours)])).toEqual(untouched);
  });
});

it('lets each account have every name and identifier', async () => {
  for (const plural of ['projects', 'services', 'groups', 'assets', 'models', 'devices']) {
    const named = async (api: Api) => {
      const { result } = (await api.get(`/${plural}/`)).body;
      return result.map(({ name, id_developer }: { name: string; id_developer: string }) => [name, id_developer]);
    };
    const [mine, other] = [await named(globex), await named(acme)];
    expect(mine).toEqual(other.map(([name]: [string]) => [name, `${name}@globex`]));
  }
});

it('does not take one account for another whose name it resembles', async () => {
  const [a, b] = [await service.client({ account: 'ac' }), await service.client({ account: 'ac-2' })];
  const id = await createFixtures(a).project({ name: 'x' });
  // an identifier that ends like one of the other account, but belongs to this one
  const tricky = await createFixtures(b).project({ name: 'x@ac' });
  expect([id, tricky]).toEqual(['x@ac', 'x@ac@ac-2']);
  notFound(await b.get(pathOf('projects', 'x@ac')));
  notFound(await a.get(pathOf('projects', 'x@ac@ac-2')));
  expect((await a.get('/projects/')).body.total_documents).toBe(1);
  noSuch('id_project')(await b.post('/services/', { name: 's', id_project: 'x@ac' }));
});

it('keeps accounts apart whose streams are stored in one batch', async () => {
  const path = pathOf('devices', theirs.device, 'streams');
  const before = (await acme.get(path)).body.total_documents;
  const replies = await Promise.all(
    Array.from({ length: 20 }, async (_, n) => [
      await Promise.all([acme.post(path, { data: { n } }), globex.post(path, { data: { n } })]),
      await Promise.all([
        acme.post('/streams/', { device: theirs.device, data: { n } }),
        globex.post('/streams/', { device: theirs.device, data: { n } }),
      ]),
    ]),
  );
  for (const [shown, former] of replies) {
    expect(shown?.map(({ status }) => status)).toEqual([200, 404]);
    expect(former?.map(({ status, body }) => [status, body.code])).toEqual([
      [200, undefined],
      [400, 4003],
    ]);
  }
  const { body } = await acme.get(path);
  expect(body.total_documents).toBe(before + 40);
  expect(body.result.map(({ owner }: { owner: string }) => owner)).not.toContain('mallory');
});

it('leaves the other account whole when everything of one is deleted', async () => {
  const before = await everything(acme, theirs);
  expect((await globex.delete(pathOf('projects', ours.project))).status).toBe(200);
  expect((await globex.delete(pathOf('models', ours.model))).status).toBe(200);
  expect((await globex.get('/devices/')).body.total_documents).toBe(0);
  expect(await everything(acme, theirs)).toEqual(before);
});
