import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { formatClusterTime, readClusterTime } from '../../../src/db/change-stream.js';
import { appendEvents } from '../../../src/events/store.js';
import { sendImport } from '../../support/import.js';
import { logEvents } from '../../support/logged-events.js';
import { type Api, createFixtures, pathOf, type Reply, startTestService } from '../../support/service.js';
import { createKey, follow } from '../../support/sse.js';

/** Accounts are isolated (reference/access.md#accounts): nothing of `acme` is visible to `globex`. */
const storage = '/external/local/user/alice/';
const webhookPath = '/webhooks/Alarms@acme/';
const rulePath = '/alarmrules/High@acme/';

const rule = { name: 'High', severity: 'info', conditions: [{ path: 'level', op: '>', value: 1e6 }] };

/** Identifiers of one resource of each type in an account. */
interface AccountIds {
  project: string;
  service: string;
  group: string;
  asset: string;
  model: string;
  device: string;
  key_id: string;
}

async function createAccount(api: Api): Promise<AccountIds> {
  const fixtures = createFixtures(api);
  const project = await fixtures.project({ name: 'weather' });
  const id_service = await fixtures.service({ name: 'stations', id_project: project });
  const group = await fixtures.group({ name: 'coast', id_service });
  const asset = await fixtures.asset({ name: 'mast', id_group: group });
  const model = await fixtures.model({ name: 'm-1', properties: { range: 40 } });
  const device = await fixtures.device({ name: 'pump', id_group: group, id_model: model });
  const issued = await api.post('/apikeys/', { username: 'bob', scope: 'read' });
  const belowDevice = [
    await api.post(pathOf('devices', device, 'deviceconfigs'), { name: 'boot', version: '1', file: 'eA==' }),
    await api.post(pathOf('devices', device, 'streams'), { data: { level: 3 } }),
    await api.post(pathOf('mqttdevices', device, 'credentials'), { username: device, password: 'not a secret' }),
    await api.post(pathOf('mqttdevices', device, 'topics'), { name: 'valves/#' }),
  ];
  expect(belowDevice.map(({ body }) => body.code)).toEqual([2001, 2001, 2001, 2001]);
  return { project, service: id_service, group, asset, model, device, key_id: issued.body.details.id };
}

/** Reads everything that a client sees of its own account. */
async function readAccount(api: Api, ids: AccountIds): Promise<unknown> {
  const paths = [
    ...[
      'projects',
      'services',
      'groups',
      'assets',
      'models',
      'devices',
      'apikeys',
      'streams',
      'webhooks',
      'alarmrules',
      'alarms',
      'filters',
    ].map((plural) => `/${plural}/`),
    pathOf('devices', ids.device, 'deviceconfigs'),
    pathOf('devices', ids.device, 'state'),
    pathOf('devices', ids.device, 'commands'),
    pathOf('mqttdevices', ids.device, 'topics'),
  ];
  return Promise.all(paths.map(async (path) => (await api.get(path)).body));
}

const folder = await mkdtemp(join(tmpdir(), 'isolation-'));
for (const account of ['acme', 'globex']) {
  await mkdir(join(folder, account));
  await writeFile(join(folder, account, `of ${account}.txt`), account);
}
const service = await startTestService({ filestore_local_root: folder });
const acme = await service.client();
const globexKey = await createKey(service, { account: 'globex', username: 'mallory' });
const globex = service.clientWith(globexKey.key);
const acmeIds = await createAccount(acme);
const command = await acme.post(pathOf('devices', acmeIds.device, 'commands'), { name: 'start' });
/** A command of a device of `acme`. */
const commandPath = pathOf('devices', acmeIds.device, 'commands', command.body.details.id);
expect((await acme.put(storage, { path: '.' })).body.code).toBe(2001);
expect((await acme.post('/alarmrules/', rule)).body.code).toBe(2001);
const high = { data: { level: 1e7 } };
expect((await acme.post(pathOf('devices', acmeIds.device, 'streams'), high)).body.code).toBe(2001);
const hook = { name: 'Alarms', url: 'http://127.0.0.1:1/', types: ['*'] };
expect((await acme.post('/filters/', { name: 'Pumps', query: 'type=pump' })).body.code).toBe(2001);
expect((await acme.post('/webhooks/', hook)).body.code).toBe(2001);
const connection = { client_id: 'pump-1', connection: 'c', instance: 'i', address: '192.0.2.7', connected_at: 1 };
const counts = { messages: 0, drops: 0 };
await service.db
  .collection('mqtt_connections')
  .insertOne({ _id: service.db.newId(), account: 'acme', ...connection, ...counts });
const globexIds = await createAccount(globex);
afterAll(async () => {
  await service.stop();
  await rm(folder, { recursive: true });
});

const expectNotFound = (reply: Reply) => expect([reply.status, reply.body.code]).toEqual([404, 4041]);
const expectMissingReference = (field: string) => (reply: Reply) =>
  expect([reply.status, reply.body]).toEqual([
    400,
    { code: 4003, message: 'validation error', details: { [field]: 'does not exist' } },
  ]);

/** The path of the alarm of `acme`. */
async function findAlarm(): Promise<string> {
  return pathOf('alarms', (await acme.get('/alarms/')).body.result[0].id);
}

/** The path of a stream of the client's account. */
async function findStreamOf(api: Api): Promise<string> {
  return pathOf('streams', (await api.get('/streams/?max=1')).body.result[0].id_developer);
}

let event_count = 0;
/** Appends an event of a device, after all others. */
async function appendEventOf(account: string, id_developer: string): Promise<void> {
  await service.db.collection('changes').insertOne({ _id: service.db.newId() });
  const time = formatClusterTime(await readClusterTime(service.db));
  const _id = `${time}${(event_count++ % 256).toString(16).padStart(2, '0')}`;
  await appendEvents(service.db, [{ _id, account, type: 'device.created', at: 1, resource: 'device', id_developer }]);
}

async function sendStreams(api: Api, device: string): Promise<void> {
  expect((await api.post(pathOf('devices', device, 'streams'), { at: 7, data: {} })).body.code).toBe(2001);
  // the account is to be as it was
  expect((await api.delete(`${pathOf('devices', device, 'streams')}?at=7`)).body.code).toBe(2004);
}

/** Asserts that `globex` sees only its own object, whatever the filter. */
function listsOnlyOwn(
  plural: string,
  key: 'id_developer' | 'id' | 'device',
  ownId: () => string,
  foreignId: () => string,
) {
  return async () => {
    const list = await globex.get(`/${plural}/`);
    expect([list.body.total_documents, list.body.result.map((object: Record<string, unknown>) => object[key])]).toEqual(
      [1, [ownId()]],
    );
    const filters = [`${key}=${encodeURIComponent(foreignId())}`, 'owner=alice', 'updater=alice'];
    for (const filter of plural === 'apikeys' ? [] : filters) {
      if (filter.startsWith('id_developer') && plural === 'models') continue;
      const found = await globex.get(`/${plural}/?${filter}`);
      expect([filter, found.body]).toEqual([filter, { total_documents: 0, result: [] }]);
    }
  };
}

/** Rows for children of a foreign parent, foreign children of an own parent, and own children of a foreign parent. */
function childRows(parent: keyof AccountIds, child: keyof AccountIds) {
  const [parents, children] = [`${parent}s`, `${child}s`];
  return {
    [`GET /${parents}/{${parent}_id_developer}/${children}/`]: async () =>
      expectNotFound(await globex.get(pathOf(parents, acmeIds[parent], children))),
    [`GET /${parents}/{${parent}_id_developer}/${children}/{${child}_id_developer}/`]: async () => {
      expectNotFound(await globex.get(pathOf(parents, acmeIds[parent], children, acmeIds[child])));
      expectNotFound(await globex.get(pathOf(parents, globexIds[parent], children, acmeIds[child])));
      expectNotFound(await globex.get(pathOf(parents, acmeIds[parent], children, globexIds[child])));
    },
  };
}

/** Rows that show, update and delete an object of the other account. */
function itemRows(type: keyof AccountIds, changes: object) {
  const path = () => pathOf(`${type}s`, acmeIds[type]);
  const route = `/${type}s/{${type}_id_developer}/`;
  return {
    [`GET ${route}`]: async () => {
      const { headers } = await acme.get(path());
      expectNotFound(await globex.get(path()));
      expectNotFound(await globex.get(path(), { 'If-None-Match': headers.etag ?? '' }));
    },
    [`PUT ${route}`]: async () => {
      for (const body of [{}, changes, { ...changes, version: 0 }, { name: 'taken over' }])
        expectNotFound(await globex.put(path(), body));
      expectNotFound(await globex.put(path(), changes, { 'If-Match': '*' }));
    },
    [`DELETE ${route}`]: async () => expectNotFound(await globex.delete(path())),
  };
}

/** Rows that count objects: of the own account, below objects of it. */
function countRows() {
  const types = ['project', 'service', 'group', 'asset', 'device', 'model'] as const;
  return Object.fromEntries(
    types.map((type) => [
      `GET /${type}s/counts/`,
      async () => {
        const path = `/${type}s/counts/?by=name`;
        const { total_documents } = (await globex.get(`/${type}s/?max=1`)).body;
        expect((await globex.get(path)).body.total_documents).toBe(total_documents);
        if (type === 'device')
          expect((await globex.get(`${path}&id_project=${acmeIds.project}`)).body.total_documents).toBe(0);
      },
    ]),
  );
}

/** Asserts that creating a resource under a parent of the other account, or moving it there, is rejected. */
function rejectsForeignParent(type: 'service' | 'group' | 'asset' | 'device', field: string, parent: keyof AccountIds) {
  return async () => {
    const fields = type === 'device' ? { type: 't' } : {};
    const body = { name: 'intruder', ...fields, [field]: acmeIds[parent] };
    expectMissingReference(field)(await globex.post(`/${type}s/`, body));
    expectMissingReference(field)(await globex.put(pathOf(`${type}s`, globexIds[type]), { [field]: acmeIds[parent] }));
  };
}

/** Calls each operation with identifiers of the other account and asserts the outcome. */
const rows: Record<string, () => Promise<unknown>> = {
  'POST /projects/': async () => {
    // a name that the other account uses is free in this one
    const reply = await globex.post('/projects/', { name: 'only at acme', id_customer: 'c' });
    expect([reply.body.code, reply.headers.location]).toEqual([2001, '/projects/only%20at%20acme%40globex/']);
    expect((await globex.delete('/projects/only%20at%20acme@globex/')).status).toBe(200);
  },
  'GET /projects/': listsOnlyOwn(
    'projects',
    'id_developer',
    () => globexIds.project,
    () => acmeIds.project,
  ),
  ...countRows(),
  ...itemRows('project', { description: 'x' }),
  ...childRows('project', 'service'),

  'POST /services/': rejectsForeignParent('service', 'id_project', 'project'),
  'GET /services/': listsOnlyOwn(
    'services',
    'id_developer',
    () => globexIds.service,
    () => acmeIds.service,
  ),
  ...itemRows('service', { description: 'x' }),
  ...childRows('service', 'group'),

  'POST /groups/': rejectsForeignParent('group', 'id_service', 'service'),
  'GET /groups/': listsOnlyOwn(
    'groups',
    'id_developer',
    () => globexIds.group,
    () => acmeIds.group,
  ),
  ...itemRows('group', { description: 'x' }),
  ...childRows('group', 'asset'),
  ...childRows('group', 'device'),

  'POST /assets/': rejectsForeignParent('asset', 'id_group', 'group'),
  'GET /assets/': listsOnlyOwn(
    'assets',
    'id_developer',
    () => globexIds.asset,
    () => acmeIds.asset,
  ),
  ...itemRows('asset', { properties: {} }),
  ...childRows('asset', 'device'),

  'POST /models/': async () => {
    const reply = await globex.post('/models/', { name: 'only at acme' });
    expect([reply.body.code, reply.headers.location]).toEqual([2001, '/models/only%20at%20acme%40globex/']);
    expect((await globex.delete('/models/only%20at%20acme@globex/')).status).toBe(200);
  },
  'GET /models/': listsOnlyOwn(
    'models',
    'id_developer',
    () => globexIds.model,
    () => acmeIds.model,
  ),
  ...itemRows('model', { properties: {} }),

  'POST /devices/': async () => {
    await rejectsForeignParent('device', 'id_group', 'group')();
    await rejectsForeignParent('device', 'id_asset', 'asset')();
    const body = { name: 'intruder', type: 't', id_group: globexIds.group, id_model: acmeIds.model };
    expectMissingReference('id_model')(await globex.post('/devices/', body));
    expectMissingReference('id_model')(
      await globex.put(pathOf('devices', globexIds.device), { id_model: acmeIds.model }),
    );
  },
  'GET /devices/': async () => {
    await listsOnlyOwn(
      'devices',
      'id_developer',
      () => globexIds.device,
      () => acmeIds.device,
    )();
    for (const [field, id] of [
      ['id_group', acmeIds.group],
      ['id_model', acmeIds.model],
    ] as const)
      expect((await globex.get(`/devices/?${field}=${encodeURIComponent(id)}`)).body.total_documents).toBe(0);
    expect((await globex.get('/devices/?sort=status&status=no_status')).body.total_documents).toBe(1);
    expect((await globex.get('/devices/?_t=str')).body.total_documents).toBe(1);
  },
  ...itemRows('device', { description: 'x' }),

  'POST /devices/{device_id_developer}/deviceconfigs/': async () =>
    expectNotFound(
      await globex.post(pathOf('devices', acmeIds.device, 'deviceconfigs'), { name: 'b', version: '1', file: 'eA==' }),
    ),
  'GET /devices/{device_id_developer}/deviceconfigs/': async () =>
    expectNotFound(await globex.get(pathOf('devices', acmeIds.device, 'deviceconfigs'))),
  'GET /devices/{device_id_developer}/deviceconfigs/{file_name}/': async () =>
    expectNotFound(await globex.get(pathOf('devices', acmeIds.device, 'deviceconfigs', 'boot'))),
  'PUT /devices/{device_id_developer}/deviceconfigs/{file_name}/desired/': async () =>
    expectNotFound(
      await globex.put(pathOf('devices', acmeIds.device, 'deviceconfigs', 'boot', 'desired'), { version: '1' }),
    ),
  'POST /devices/{device_id_developer}/commands/': async () =>
    expectNotFound(await globex.post(pathOf('devices', acmeIds.device, 'commands'), { name: 'stop' })),
  'POST /devices/deviceconfigs/': async () => {
    const query = `id_developer=${encodeURIComponent(acmeIds.device)}`;
    const reply = await globex.post(`/devices/deviceconfigs/?${query}`, { name: 'boot', version: '1', file: 'YQ==' });
    expect(reply.body).toMatchObject({ code: 2006, details: { matched: 0 } });
  },
  'PUT /devices/deviceconfigs/{file_name}/desired/': async () => {
    const query = `id_developer=${encodeURIComponent(acmeIds.device)}`;
    const reply = await globex.put(`/devices/deviceconfigs/boot/desired/?${query}`, { version: '1' });
    expect(reply.body).toMatchObject({ code: 2006, details: { matched: 0 } });
  },
  'POST /devices/commands/': async () => {
    const query = `id_developer=${encodeURIComponent(acmeIds.device)}`;
    const reply = await globex.post(`/devices/commands/?${query}`, { name: 'stop' });
    expect(reply.body).toMatchObject({ code: 2006, details: { matched: 0 } });
  },
  'GET /devices/{device_id_developer}/commands/': async () =>
    expectNotFound(await globex.get(pathOf('devices', acmeIds.device, 'commands'))),
  'GET /devices/{device_id_developer}/commands/live/': async () =>
    expectNotFound(await globex.get(pathOf('devices', acmeIds.device, 'commands', 'live'))),
  'GET /devices/{device_id_developer}/commands/{command}/': async () => expectNotFound(await globex.get(commandPath)),
  'DELETE /devices/{device_id_developer}/commands/{command}/': async () =>
    expectNotFound(await globex.delete(commandPath)),
  'POST /devices/{device_id_developer}/commands/{command}/result/': async () =>
    expectNotFound(await globex.post(`${commandPath}result/`, { status: 'done' })),
  'GET /devices/{device_id_developer}/state/': async () =>
    expectNotFound(await globex.get(pathOf('devices', acmeIds.device, 'state'))),
  'PATCH /devices/{device_id_developer}/state/': async () =>
    expectNotFound(await globex.patch(pathOf('devices', acmeIds.device, 'state'), { stolen: true })),
  'PATCH /devices/{device_id_developer}/state/reported/': async () =>
    expectNotFound(await globex.patch(pathOf('devices', acmeIds.device, 'state', 'reported'), { stolen: true })),
  'GET /devices/{device_id_developer}/deviceconfigs/{file_name}/{file_version}/': async () =>
    expectNotFound(await globex.get(pathOf('devices', acmeIds.device, 'deviceconfigs', 'boot', '1'))),

  'GET /mqtt/connections/': async () => {
    expect((await acme.get('/mqtt/connections/')).body.total_documents).toBe(1);
    expect((await globex.get('/mqtt/connections/')).body).toEqual({ total_documents: 0, result: [] });
  },
  'GET /streams/rate/': async () => {
    const at = Math.floor((service.now() - 3) / 60) * 60 - 60;
    const stored = { account: 'acme', [`m${(at / 60) % 64}`]: { at, count: 7 } };
    await service.db.collection('stream_rates').insertOne({ _id: 'acme', ...stored } as never);
    expect((await acme.get('/streams/rate/')).body.counts.at(-1)).toBe(7);
    expect((await globex.get('/streams/rate/')).body.counts.at(-1)).toBe(0);
  },
  'DELETE /mqtt/connections/{client_id}/': async () => expectNotFound(await globex.delete('/mqtt/connections/pump-1/')),

  'POST /devices/{device_id_developer}/streams/': async () =>
    expectNotFound(await globex.post(pathOf('devices', acmeIds.device, 'streams'), { data: { level: 9 } })),
  'GET /devices/{device_id_developer}/streams/': async () =>
    expectNotFound(await globex.get(pathOf('devices', acmeIds.device, 'streams'))),
  'DELETE /devices/{device_id_developer}/streams/': async () =>
    expectNotFound(await globex.delete(pathOf('devices', acmeIds.device, 'streams'))),
  ...Object.fromEntries(
    (['project', 'service', 'group', 'asset', 'device'] as const).map((name) => [
      `GET /${name}s/{${name}_id_developer}/series/`,
      async () => {
        const seriesOf = (id: string) => globex.get(`${pathOf(`${name}s`, id, 'series')}?fields=level&aggregate=count`);
        expectNotFound(await seriesOf(acmeIds[name]));
        const { result } = (await seriesOf(globexIds[name])).body;
        const ofDevice = name === 'asset' ? [] : [{ count: 1 }];
        expect(result.map(({ count }: { count: number }) => ({ count }))).toEqual(ofDevice);
      },
    ]),
  ),

  'GET /events/': async () => {
    await appendEventOf('acme', acmeIds.device);
    await appendEventOf('globex', globexIds.device);
    const listed = (await globex.get('/events/')).body;
    expect(listed.result.map(({ id_developer }: { id_developer: string }) => id_developer)).toEqual(
      Array(listed.total_documents).fill(globexIds.device),
    );
    expect(listed.total_documents).toBeGreaterThan(0);
    const filtered = await globex.get(`/events/?id_developer=${encodeURIComponent(acmeIds.device)}`);
    expect(filtered.body).toEqual({ total_documents: 0, result: [] });
  },
  'GET /events/live/': async () => {
    const feed = await follow(`${service.url}/events/live/?after=000000000000000000`, globexKey.headers);
    await appendEventOf('acme', acmeIds.device);
    await appendEventOf('globex', 'last@globex');
    await feed.contains('last@globex');
    expect(feed.text()).not.toContain('acme');
    await feed.close();
  },
  'GET /streams/live/': async () => {
    const { headers } = globexKey;
    const feed = await follow(`${service.url}/streams/live/`, headers);
    const foreign = await follow(`${service.url}/streams/live/?id_group=${encodeURIComponent(acmeIds.group)}`, headers);
    await sendStreams(acme, acmeIds.device);
    await sendStreams(globex, globexIds.device);
    await feed.contains(globexIds.device);
    expect(feed.text() + foreign.text()).not.toContain('acme');
    expect(foreign.messages).toEqual([]);
    await feed.close();
    await foreign.close();
  },
  'GET /devices/{device_id_developer}/streams/live/': async () =>
    expectNotFound(await globex.get(`${pathOf('devices', acmeIds.device, 'streams')}live/`)),

  'POST /streams/': async () =>
    expectMissingReference('device')(await globex.post('/streams/', { device: acmeIds.device, data: {} })),
  'POST /status/': async () =>
    expectMissingReference('device')(await globex.post('/status/', { device: acmeIds.device, data: {} })),
  'GET /streams/': listsOnlyOwn(
    'streams',
    'device',
    () => globexIds.device,
    () => acmeIds.device,
  ),

  'GET /streams/{stream_id_developer}/': async () => expectNotFound(await globex.get(await findStreamOf(acme))),
  'DELETE /streams/{stream_id_developer}/': async () => expectNotFound(await globex.delete(await findStreamOf(acme))),

  ...Object.fromEntries(
    ['projects', 'services', 'groups', 'assets', 'models', 'devices'].flatMap((plural) => [
      [
        `PATCH /${plural}/`,
        async () => {
          const { body } = await globex.patch(`/${plural}/?owner=alice&confirm=0`, { enabled: false });
          expect(body).toMatchObject({ code: 2005, details: { matched: 0, changed: 0 } });
          expect((await globex.patch(`/${plural}/?enabled=true`, {})).body.details).toEqual({ matched: 1 });
        },
      ],
      [
        `DELETE /${plural}/`,
        async () => {
          const { body } = await globex.delete(`/${plural}/?owner=alice&confirm=0`);
          expect(body).toMatchObject({ code: 2004, details: { matched: 0, changed: 0 } });
          expect((await globex.delete(`/${plural}/?enabled=true`)).body.details).toEqual({ matched: 1 });
        },
      ],
    ]),
  ),

  'POST /import/': async () => {
    const project = { resource: 'project', name: 'weather', id_customer: 'c-2', id_developer: acmeIds.project };
    const device = { resource: 'device', name: 'x', type: 't', id_group: acmeIds.group };
    for (const query of ['', '?on_conflict=update', '?dry_run=1']) {
      const { lines } = await sendImport(globex, [project, device], query);
      expect(lines).toEqual([
        { line: 1, code: 4003, details: { id_developer: 'must be an identifier of the account globex' } },
        { line: 2, code: 4003, details: { id_group: 'does not exist' } },
      ]);
    }
  },

  'POST /mqttdevices/{device_id_developer}/credentials/': async () => {
    const login = { username: 'intruder', password: 'not a secret' };
    expectNotFound(await globex.post(pathOf('mqttdevices', acmeIds.device, 'credentials'), login));
  },
  'PUT /mqttdevices/{device_id_developer}/credentials/': async () => {
    const login = { username: acmeIds.device, password: 'taken over' };
    expectNotFound(await globex.put(pathOf('mqttdevices', acmeIds.device, 'credentials'), login));
  },
  'DELETE /mqttdevices/{device_id_developer}/': async () =>
    expectNotFound(await globex.delete(pathOf('mqttdevices', acmeIds.device))),
  'POST /mqttdevices/{device_id_developer}/topics/': async () =>
    expectNotFound(await globex.post(pathOf('mqttdevices', acmeIds.device, 'topics'), { name: 'a' })),
  'GET /mqttdevices/{device_id_developer}/topics/': async () =>
    expectNotFound(await globex.get(pathOf('mqttdevices', acmeIds.device, 'topics'))),
  'DELETE /mqttdevices/{device_id_developer}/topics/': async () =>
    expectNotFound(await globex.delete(pathOf('mqttdevices', acmeIds.device, 'topics'), { name: 'valves/#' })),

  'POST /apikeys/': async () => {
    const issued = await globex.post('/apikeys/', { username: 'alice', scope: 'admin' });
    const { id, key } = issued.body.details;
    const listed = await service.clientWith(key).get('/projects/');
    expect(listed.body.result.map((project: { id_developer: string }) => project.id_developer)).toEqual([
      globexIds.project,
    ]);
    expect((await globex.delete(pathOf('apikeys', id))).status).toBe(200);
    // the account is that of the key and cannot be chosen
    for (const field of ['account', 'id_account'])
      expect((await globex.post('/apikeys/', { username: 'x', scope: 'read', [field]: 'acme' })).body.details).toEqual({
        [field]: 'unknown field',
      });
  },
  'GET /apikeys/': async () => {
    const { body } = await globex.get('/apikeys/');
    expect(body.result.map((key: { username: string }) => key.username).sort()).toEqual(['bob', 'mallory']);
    expect(body.result.map((key: { id: string }) => key.id)).not.toContain(acmeIds.key_id);
    expect((await globex.get('/apikeys/?username=alice')).body).toEqual({ total_documents: 0, result: [] });
  },
  'GET /self/': async () => {
    expect((await globex.get('/self/')).body).toEqual({
      account: 'globex',
      username: 'mallory',
      scope: 'admin',
      id: globexKey.id,
    });
  },
  'DELETE /apikeys/{id}/': async () => expectNotFound(await globex.delete(pathOf('apikeys', acmeIds.key_id))),

  'PUT /external/{provider}/user/{username}/': async () => {
    expect((await globex.put(storage, { path: '.' })).body.code).toBe(2001);
    expect(await namesIn(acme)).toEqual(['of acme.txt']);
    expect(await namesIn(globex)).toEqual(['of globex.txt']);
    expect((await globex.delete(storage)).body.code).toBe(2004);
  },
  'GET /external/{provider}/user/{username}/': async () => {
    const reply = await globex.get(`${storage}?op=all`);
    expect([reply.status, reply.body.code]).toEqual([401, 4011]);
  },
  'DELETE /external/{provider}/user/{username}/': async () => {
    expectNotFound(await globex.delete(storage));
    expect(await namesIn(acme)).toEqual(['of acme.txt']);
  },

  'POST /filters/': async () => {
    expect((await globex.post('/filters/', { name: 'Pumps', query: 'type=pump' })).body.code).toBe(2001);
    expect((await globex.delete('/filters/Pumps@globex/')).body.code).toBe(2004);
  },
  'GET /filters/': async () => {
    expect((await globex.get('/filters/')).body).toEqual({ total_documents: 0, result: [] });
    expect((await globex.get('/devices/?filter=Pumps@acme')).body.code).toBe(4004);
    expect((await globex.get('/events/live/?filter=Pumps@acme')).body.code).toBe(4004);
  },
  'GET /filters/{filter_id_developer}/': async () => expectNotFound(await globex.get('/filters/Pumps@acme/')),
  'PUT /filters/{filter_id_developer}/': async () =>
    expectNotFound(await globex.put('/filters/Pumps@acme/', { query: 'type=x' })),
  'DELETE /filters/{filter_id_developer}/': async () => expectNotFound(await globex.delete('/filters/Pumps@acme/')),
  'GET /devices/series/': async () => {
    const { body } = await globex.get('/devices/series/?filter=Pumps@acme&fields=level');
    expect(body).toMatchObject({ code: 4004, details: { filter: 'does not exist' } });
  },
  'POST /webhooks/': async () => {
    const body = { name: 'Alarms', url: 'https://hooks.example/', types: ['*'] };
    for (const [field, id] of [
      ['id_project', acmeIds.project],
      ['id_service', acmeIds.service],
      ['id_group', acmeIds.group],
      ['id_asset', acmeIds.asset],
    ] as const)
      expectMissingReference(field)(await globex.post('/webhooks/', { ...body, [field]: id }));
    expect((await globex.post('/webhooks/', body)).body.code).toBe(2001);
    expect((await globex.delete('/webhooks/Alarms@globex/')).body.code).toBe(2004);
  },
  'POST /alarmrules/': async () => {
    const references = { id_model: acmeIds.model, id_project: acmeIds.project, id_device: acmeIds.device };
    for (const [field, id] of Object.entries(references))
      expectMissingReference(field)(await globex.post('/alarmrules/', { ...rule, [field]: id }));
    expect((await globex.post('/alarmrules/', rule)).body.code).toBe(2001);
    expect((await globex.delete('/alarmrules/High@globex/')).body.code).toBe(2004);
  },
  'GET /alarmrules/': async () => {
    expect((await globex.get('/alarmrules/')).body).toEqual({ total_documents: 0, result: [] });
    expect((await globex.get('/alarmrules/?id_developer=High%40acme')).body.total_documents).toBe(0);
  },
  'GET /alarmrules/{alarmrule_id_developer}/': async () => expectNotFound(await globex.get(rulePath)),
  'PUT /alarmrules/{alarmrule_id_developer}/': async () =>
    expectNotFound(await globex.put(rulePath, { severity: 'critical' })),
  'DELETE /alarmrules/{alarmrule_id_developer}/': async () => expectNotFound(await globex.delete(rulePath)),
  'GET /alarms/': async () => {
    expect((await acme.get('/alarms/')).body.total_documents).toBe(1);
    expect((await globex.get('/alarms/')).body).toEqual({ total_documents: 0, result: [] });
    const filter = `device=${encodeURIComponent(acmeIds.device)}&id_project=${encodeURIComponent(acmeIds.project)}`;
    expect((await globex.get(`/alarms/?${filter}`)).body.total_documents).toBe(0);
  },
  'GET /alarms/counts/': async () =>
    expect((await globex.get('/alarms/counts/?by=state')).body).toEqual({ total_documents: 0, result: [] }),
  // config-fleet.test.ts has files in another account
  'GET /devices/deviceconfigs/counts/': async () =>
    expect((await globex.get('/devices/deviceconfigs/counts/')).body).toEqual({ total_documents: 0, result: [] }),
  'GET /devices/{device_id_developer}/alarms/': async () =>
    expectNotFound(await globex.get(pathOf('devices', acmeIds.device, 'alarms'))),
  'GET /alarms/{alarm_id}/': async () => expectNotFound(await globex.get(await findAlarm())),
  'PUT /alarms/{alarm_id}/': async () => expectNotFound(await globex.put(await findAlarm(), { state: 'closed' })),
  'PATCH /alarms/': async () => {
    const changed = await globex.patch('/alarms/?state=active&confirm=0', { state: 'closed' });
    expect(changed.body.details).toEqual({ matched: 0, changed: 0 });
    expect((await acme.get('/alarms/?state=active')).body.total_documents).toBe(1);
  },
  'GET /webhooks/': async () => {
    expect((await globex.get('/webhooks/')).body).toEqual({ total_documents: 0, result: [] });
    expect((await globex.get('/webhooks/?id_developer=Alarms%40acme')).body.total_documents).toBe(0);
  },
  'GET /webhooks/{webhook_id_developer}/': async () => expectNotFound(await globex.get(webhookPath)),
  'PUT /webhooks/{webhook_id_developer}/': async () =>
    expectNotFound(await globex.put(webhookPath, { url: 'https://mallory.example/' })),
  'DELETE /webhooks/{webhook_id_developer}/': async () => expectNotFound(await globex.delete(webhookPath)),
  'POST /webhooks/{webhook_id_developer}/secret/': async () =>
    expectNotFound(await globex.post(`${webhookPath}secret/`)),
  'GET /webhooks/{webhook_id_developer}/deliveries/': async () =>
    expectNotFound(await globex.get(`${webhookPath}deliveries/`)),
  'POST /webhooks/{webhook_id_developer}/test/': async () => expectNotFound(await globex.post(`${webhookPath}test/`)),
  'POST /webhooks/{webhook_id_developer}/deliveries/{event}/retry/': async () => {
    const [event] = await logEvents(service, [{ type: 'device.created' }]);
    expectNotFound(await globex.post(`${webhookPath}deliveries/${event}/retry/`));
    const own = { name: 'Own', url: 'https://hooks.example/', types: ['*'] };
    await globex.post('/webhooks/', own);
    expectNotFound(await globex.post(`/webhooks/Own@globex/deliveries/${event}/retry/`));
    await globex.delete('/webhooks/Own@globex/');
  },
  'GET /events/{event}/text/': async () => {
    const [event] = await logEvents(service, [{ type: 'device.created' }]);
    expectNotFound(await globex.get(`/events/${event}/text/`));
  },

  'GET /types/': () => expectSameForAll('/types/'),
  'GET /sensors/': () => expectSameForAll('/sensors/'),
  'GET /time_zones/': () => expectSameForAll('/time_zones/'),
  'GET /locales/': () => expectSameForAll('/locales/'),
};

async function namesIn(api: Api): Promise<string[]> {
  const { body } = await api.get(`${storage}?op=all`);
  return body.result.map(({ name }: { name: string }) => name);
}

async function expectSameForAll(path: string): Promise<void> {
  expect((await globex.get(path)).text).toBe((await acme.get(path)).text);
}

it('has a row for every operation, and no others', () => {
  const served = service.operations.map(({ method, path }) => `${method.toUpperCase()} ${path}`);
  expect(Object.keys(rows).sort()).toEqual(served.sort());
});

describe('objects of another account are invisible', () => {
  let before: unknown;

  beforeAll(async () => {
    before = await Promise.all([readAccount(acme, acmeIds), readAccount(globex, globexIds)]);
  });

  it.each(Object.entries(rows))('%s', async (_operation, row) => {
    await row();
    expect(await Promise.all([readAccount(acme, acmeIds), readAccount(globex, globexIds)])).toEqual(before);
  });
});

it('lets each account use every name', async () => {
  for (const plural of ['projects', 'services', 'groups', 'assets', 'models', 'devices']) {
    const namesAndIds = async (api: Api) => {
      const { result } = (await api.get(`/${plural}/`)).body;
      return result.map(({ name, id_developer }: { name: string; id_developer: string }) => [name, id_developer]);
    };
    const [globexNames, acmeNames] = [await namesAndIds(globex), await namesAndIds(acme)];
    expect(globexNames).toEqual(acmeNames.map(([name]: [string]) => [name, `${name}@globex`]));
  }
});

it('does not confuse accounts with similar names', async () => {
  const [a, b] = [await service.client({ account: 'ac' }), await service.client({ account: 'ac-2' })];
  const id = await createFixtures(a).project({ name: 'x' });
  // the name contains the identifier of the other account's project
  const misleading = await createFixtures(b).project({ name: 'x@ac' });
  expect([id, misleading]).toEqual(['x@ac', 'x@ac@ac-2']);
  expectNotFound(await b.get(pathOf('projects', 'x@ac')));
  expectNotFound(await a.get(pathOf('projects', 'x@ac@ac-2')));
  expect((await a.get('/projects/')).body.total_documents).toBe(1);
  expectMissingReference('id_project')(await b.post('/services/', { name: 's', id_project: 'x@ac' }));
});

it('keeps accounts apart when their streams share a batch', async () => {
  const path = pathOf('devices', acmeIds.device, 'streams');
  const before = (await acme.get(path)).body.total_documents;
  const replies = await Promise.all(
    Array.from({ length: 20 }, async (_, n) => [
      await Promise.all([acme.post(path, { data: { n } }), globex.post(path, { data: { n } })]),
      await Promise.all([
        acme.post('/streams/', { device: acmeIds.device, data: { n } }),
        globex.post('/streams/', { device: acmeIds.device, data: { n } }),
      ]),
    ]),
  );
  for (const [posted, legacy] of replies) {
    expect(posted?.map(({ status }) => status)).toEqual([200, 404]);
    expect(legacy?.map(({ status, body }) => [status, body.code])).toEqual([
      [200, undefined],
      [400, 4003],
    ]);
  }
  const { body } = await acme.get(path);
  expect(body.total_documents).toBe(before + 40);
  expect(body.result.map(({ owner }: { owner: string }) => owner)).not.toContain('mallory');
});

it('leaves other accounts untouched when one deletes everything', async () => {
  const before = await readAccount(acme, acmeIds);
  expect((await globex.delete(pathOf('projects', globexIds.project))).status).toBe(200);
  expect((await globex.delete(pathOf('models', globexIds.model))).status).toBe(200);
  expect((await globex.get('/devices/')).body.total_documents).toBe(0);
  expect(await readAccount(acme, acmeIds)).toEqual(before);
});
