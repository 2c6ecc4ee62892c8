import { describe, expect, it } from '@jest/globals';
import { useTestService } from '../../support/expect-status.js';
import { findOrphans } from '../../support/orphans.js';
import { waitUntil } from '../../support/process.js';
import { type Api, createFixtures, pathOf, type Reply } from '../../support/service.js';

/** Changes and deletions of many objects (reference/bulk.md), and previews of deletions (reference/resources.md#delete). */
const ctx = await useTestService();
let accounts = 0;

async function openAccount() {
  const api = await ctx.service.client({ account: `bulk-${++accounts}` });
  const fixtures = createFixtures(api);
  const id_group = await fixtures.group();
  return { api, fixtures, id_group };
}

const answerOf = ({ status, body }: Reply) => [status, body];
const done = (code: number, message: string, matched: number, changed = matched) => [
  200,
  { code, message, details: { matched, changed } },
];
const preview = (details: object) => [200, { code: 2006, message: 'would change', details }];
const failed = (code: number, details: object) => [400, expect.objectContaining({ code, details })];
const inGroup = (id: string) => `?id_group=${encodeURIComponent(id)}`;

async function createDevices(api: Api, count: number, fields: object): Promise<string[]> {
  const replies = await Promise.all(
    Array.from({ length: count }, (_, n) => api.post('/devices/', { name: `D ${n}`, type: 't', ...fields })),
  );
  return replies.map(({ headers }) => decodeURIComponent(headers.location?.split('/').at(-2) ?? ''));
}

async function listAll(api: Api, plural: string, query = '') {
  return (await api.get(`/${plural}/${query}`)).body.result as Record<string, unknown>[];
}

describe('PATCH of many objects', () => {
  it('changes nothing without confirm, then exactly those that were confirmed', async () => {
    const { api, fixtures, id_group } = await openAccount();
    await createDevices(api, 5, { id_group });
    const other = await fixtures.device();
    const before = await listAll(api, 'devices');
    const path = `/devices/${inGroup(id_group)}`;
    expect(answerOf(await api.patch(path, { enabled: false }))).toEqual(preview({ matched: 5 }));
    expect(answerOf(await api.patch(`${path}&confirm=4`, { enabled: false }))).toEqual(failed(4005, { matched: 5 }));
    expect(answerOf(await api.patch(`${path}&confirm=6`, { enabled: false }))).toEqual(failed(4005, { matched: 5 }));
    expect(await listAll(api, 'devices')).toEqual(before);
    ctx.service.advance(10);
    const bob = await ctx.service.client({ account: `bulk-${accounts}`, username: 'bob' });
    const reply = await bob.patch(`${path}&confirm=5`, { enabled: false, sensor: 'wind' });
    expect(answerOf(reply)).toEqual(done(2005, 'Device updated', 5));
    const after = await listAll(api, 'devices');
    const now = ctx.service.now();
    const changed = { enabled: false, sensor: 'wind', updater: 'bob', updated_at: now, version: 1 };
    expect(after).toEqual(before.map((device) => (device.id_developer === other ? device : { ...device, ...changed })));
    const stored = await ctx.service.db.collection('devices').find({ id_group }).toArray();
    for (const { last_request_id } of stored) expect(last_request_id).toBe(reply.headers['x-request-id']);
  });

  it.each([
    ['projects', 'Project', 'project'],
    ['services', 'Service', 'service'],
    ['groups', 'Group', 'group'],
    ['assets', 'Asset', 'asset'],
    ['models', 'model', 'model'],
    ['devices', 'Device', 'device'],
  ] as const)('counts a version for each of the %s, even without a field', async (plural, label, name) => {
    const { api, fixtures } = await openAccount();
    const id = await fixtures[name]();
    const { name: ownName } = (await api.get(pathOf(plural, id))).body;
    const path = `/${plural}/?name=${encodeURIComponent(ownName)}&confirm=1`;
    expect(answerOf(await api.patch(path, {}))).toEqual(done(2005, `${label} updated`, 1));
    expect(answerOf(await api.patch(path, { description: 'new' }))).toEqual(done(2005, `${label} updated`, 1));
    expect((await api.get(pathOf(plural, id))).body).toMatchObject({ description: 'new', version: 2 });
  });

  it('changes fields that depend on each object, as a single update does', async () => {
    const { api, fixtures, id_group } = await openAccount();
    const id_model = await fixtures.model({ properties: { range: 40 } });
    const [first = '', second = ''] = await createDevices(api, 2, { id_group, id_model, lon: 1, lat: 2 });
    await api.post(pathOf('devices', first, 'streams'), { data: {} });
    const values = { lon: 5, frequency_stream: 2, properties: { range: 40, room: 'A' } };
    const path = `/devices/${inGroup(id_group)}&confirm=2`;
    expect(answerOf(await api.patch(path, values))).toEqual(done(2005, 'Device updated', 2));
    const device = (await api.get(pathOf('devices', first))).body;
    expect(device).toMatchObject({ lon: 5, lat: 2, version: 1, properties: { range: 40, room: 'A' } });
    expect(device.stream_due_at).toBe(device.last_stream_at + 120);
    expect((await api.get(pathOf('devices', second))).body).toMatchObject({ lon: 5, lat: 2, version: 1 });
    // the key that repeats the value of the model stays the model's
    await api.put(pathOf('models', id_model), { properties: { range: 50 } });
    expect((await api.get(pathOf('devices', second))).body.properties).toEqual({ range: 50, room: 'A' });
  });

  it('moves objects to another parent', async () => {
    const { api, fixtures, id_group } = await openAccount();
    const devices = await createDevices(api, 3, { id_group });
    const id_asset = await fixtures.asset();
    const path = `/devices/${inGroup(id_group)}&confirm=3`;
    expect(answerOf(await api.patch(path, { id_asset }))).toEqual(done(2005, 'Device updated', 3));
    const moved = await listAll(api, 'devices', `?id_asset=${encodeURIComponent(id_asset)}`);
    expect(moved.map(({ id_developer }) => id_developer).sort()).toEqual(devices.sort());
    for (const device of moved) expect(device).not.toHaveProperty('id_group');
    expect(await findOrphans((plural) => ctx.service.db.collection(plural))).toEqual([]);
    expect((await api.delete(pathOf('assets', id_asset))).body.code).toBe(2004);
    expect(await listAll(api, 'devices')).toEqual([]);
  });

  it('changes none if a field is invalid, or is for one of them', async () => {
    const { api, id_group } = await openAccount();
    await createDevices(api, 2, { id_group, lon: 1, lat: 2 });
    await api.post('/devices/', { name: 'nowhere', type: 't', id_group });
    const before = await listAll(api, 'devices');
    const path = `/devices/${inGroup(id_group)}&confirm=3`;
    const patched = async (body: object) => answerOf(await api.patch(path, body));
    expect(await patched({ name: 'x', version: 0, colour: 'red' })).toEqual(
      failed(4003, {
        name: 'cannot be changed for many at once',
        version: 'cannot be changed for many at once',
        colour: 'unknown field',
      }),
    );
    // also before the number is confirmed, and if it is wrong
    for (const confirm of ['', '&confirm=2', '&confirm=3'])
      for (const [body, details] of [
        [{ lon: 7 }, { lat: 'lon and lat come together' }],
        [{ id_group: null }, { id_group: 'exactly one of id_group and id_asset must be given' }],
        [{ id_model: 'none@acme' }, { id_model: 'does not exist' }],
      ])
        expect(answerOf(await api.patch(`/devices/${inGroup(id_group)}${confirm}`, body))).toEqual(
          failed(4003, details as object),
        );
    expect(answerOf(await api.patch(path, '[]'))).toEqual(failed(4001, {}));
    expect(await listAll(api, 'devices')).toEqual(before);
  });
});

describe('a large PATCH of many objects', () => {
  it('writes at most 64 MiB in all', async () => {
    const { api, id_group } = await openAccount();
    const [id = ''] = await createDevices(api, 75, { id_group });
    const path = `/devices/${inGroup(id_group)}`;
    const largest = Math.floor(67_108_864 / 75);
    const bodyOf = (bytes: number) => ({
      properties: { text: 'x'.repeat(bytes - '{"properties":{"text":""}}'.length) },
    });
    const refused = failed(4003, { body: `must be at most ${largest} bytes for 75 objects` });
    expect(answerOf(await api.patch(path, bodyOf(largest + 1)))).toEqual(refused);
    expect(answerOf(await api.patch(`${path}&confirm=75`, bodyOf(largest + 1)))).toEqual(refused);
    expect((await api.get(pathOf('devices', id))).body).toMatchObject({ version: 0 });
    expect(answerOf(await api.patch(path, bodyOf(largest)))).toEqual(preview({ matched: 75 }));
    const commands = `/devices/commands/${inGroup(id_group)}`;
    const command = { name: 'c', data: { text: 'x'.repeat(30_000) } };
    expect(answerOf(await api.post(`${commands}&confirm=2300`, command))).toEqual(
      failed(4003, { body: 'must be at most 29177 bytes for 2300 objects' }),
    );
  });

  it('reads and changes documents in batches of 512 KiB', async () => {
    const { api, id_group } = await openAccount();
    const { db } = ctx.service;
    await createDevices(api, 5, { id_group, properties: { old: 'x'.repeat(100_000) } });
    await db.command({ profile: 2 });
    const body = { properties: { text: 'x'.repeat(120_000) } };
    const reply = await api.patch(`/devices/${inGroup(id_group)}&confirm=5`, body);
    await db.command({ profile: 0 });
    expect(answerOf(reply)).toEqual(done(2005, 'Device updated', 5));
    const reads = { 'command.find': 'devices', 'command.filter._id.$in': { $exists: true } };
    const profiled = await db
      .collection('system.profile')
      .find(reads, { sort: { ts: 1 } })
      .toArray();
    expect(profiled.map(({ nreturned }) => nreturned)).toEqual([2, 2, 1]);
  });
});

describe('DELETE of many objects', () => {
  it('deletes exactly those that were confirmed, with everything below them', async () => {
    const { api, fixtures } = await openAccount();
    const id_service = await fixtures.service();
    for (let n = 0; n < 3; n++) {
      const id_group = await fixtures.group({ id_service });
      const device = await fixtures.device({ id_asset: await fixtures.asset({ id_group }) });
      await api.post(pathOf('devices', device, 'streams'), { data: {} });
      await api.post(pathOf('mqttdevices', device, 'topics'), { name: 'a' });
    }
    const other = await fixtures.device({ id_group: await fixtures.group() });
    const path = `/groups/?id_service=${encodeURIComponent(id_service)}`;
    expect(answerOf(await api.delete(path))).toEqual(preview({ matched: 3 }));
    expect(answerOf(await api.delete(`${path}&confirm=2`))).toEqual(failed(4005, { matched: 3 }));
    expect((await listAll(api, 'groups')).length).toBe(5);
    expect(answerOf(await api.delete(`${path}&confirm=3`))).toEqual(done(2004, 'Group deleted', 3));
    expect((await listAll(api, 'groups')).length).toBe(2);
    expect(await listAll(api, 'assets')).toEqual([]);
    expect((await listAll(api, 'devices')).map(({ id_developer }) => id_developer)).toEqual([other]);
    expect((await api.get('/streams/')).body.total_documents).toBe(0);
    const account = `bulk-${accounts}`;
    expect(await ctx.service.db.collection('mqtttopics').countDocuments({ account })).toBe(0);
    expect(await ctx.service.db.collection('removals').countDocuments({ account, done: false })).toBe(0);
    expect(answerOf(await api.delete(`${path}&confirm=0`))).toEqual(done(2004, 'Group deleted', 0));
  });

  it('leaves devices the properties of deleted models', async () => {
    const { api, fixtures } = await openAccount();
    const models = [await fixtures.model({ properties: { a: 1 } }), await fixtures.model({ properties: { b: 2 } })];
    const devices = [
      await fixtures.device({ id_model: models[0], properties: { own: 0 } }),
      await fixtures.device({ id_model: models[1] }),
    ];
    expect(answerOf(await api.delete('/models/?owner=alice&confirm=2'))).toEqual(done(2004, 'model deleted', 2));
    const shown = await Promise.all(devices.map(async (id) => (await api.get(pathOf('devices', id))).body));
    expect(shown.map(({ properties, id_model }) => [properties, id_model])).toEqual([
      [{ a: 1, own: 0 }, undefined],
      [{ b: 2 }, undefined],
    ]);
  });
});

describe.each(['patch', 'delete'] as const)('the query of %s', (method) => {
  const code = async (query: string) => {
    const { api } = await openAccount();
    const { status, body } = await api[method](`/devices/${query}`, method === 'patch' ? {} : undefined);
    return [status, body.code, Object.keys(body.details)];
  };

  it('needs a filter', async () => {
    for (const query of ['', '?', '?confirm=0']) expect(await code(query)).toEqual([400, 4004, ['filter']]);
  });

  it.each(['max=1', 'sort=name', 'order=1', 'offset=0', 'fields=name', 'after=0', 'confirm=-1', 'confirm=x', 'x=1'])(
    'does not take %s',
    async (parameter) => {
      expect(await code(`?owner=alice&${parameter}`)).toEqual([400, 4004, [parameter.split('=')[0]]]);
    },
  );

  it('takes the filters of the list', async () => {
    expect(
      await code('?status=disconnected&geo_lon=1&geo_lat=2&geo_distance=3&created_at_from=0&conn_type=wifi'),
    ).toEqual([200, 2006, ['matched']]);
  });
});

describe('a change of more objects than fit in a transaction', () => {
  const count = 1100;

  /** Expects the answer of a change; one of more than 5 s, as on a busy machine, is answered 5031 and completed (reference/bulk.md#concurrency). */
  async function expectDone(sent: Promise<Reply>, answer: unknown, filter: object, left: number): Promise<void> {
    const { db } = ctx.service;
    const isComplete = async () =>
      (await db.collection('devices').countDocuments(filter)) === left &&
      (await db.collection('bulkchanges').countDocuments()) === 0;
    const reply = await sent;
    if (reply.body.code === 5031) await waitUntil(isComplete, 240_000);
    else expect([answerOf(reply), await isComplete()]).toEqual([answer, true]);
  }

  it('changes or deletes each of them', async () => {
    const { api, id_group } = await openAccount();
    const { db } = ctx.service;
    const [id = ''] = await createDevices(api, 1, { id_group, lon: 1, lat: 2 });
    const pattern = await db.collection('devices').findOne({ account: `bulk-${accounts}`, id_developer: id });
    const copies = Array.from({ length: count - 1 }, (_, n) => ({
      ...pattern,
      _id: db.newId(),
      id_developer: `c ${n}@x`,
    }));
    await db.collection('devices').insertMany(copies);
    const path = `/devices/${inGroup(id_group)}&confirm=${count}`;
    expect(answerOf(await api.patch(path.replace(`${count}`, '1099'), {}))).toEqual(failed(4005, { matched: count }));
    const patched = done(2005, 'Device updated', count);
    await expectDone(api.patch(path, { enabled: false }), patched, { id_group, enabled: false, version: 1 }, count);
    await expectDone(api.patch(path, { lon: 9 }), patched, { id_group, version: 2 }, count);
    const changed = { id_group, enabled: false, version: 2, 'location.coordinates': [9, 2], updater: 'alice' };
    expect(await db.collection('devices').countDocuments(changed)).toBe(count);
    await api.post('/devices/', { name: 'nowhere', type: 't', id_group });
    const more = path.replace(`${count}`, `${count + 1}`);
    expect(answerOf(await api.patch(more, { lon: 7 }))).toEqual(failed(4003, { lat: 'lon and lat come together' }));
    expect(await db.collection('devices').countDocuments(changed)).toBe(count);
    await expectDone(api.delete(more), done(2004, 'Device deleted', count + 1), { id_group }, 0);
  });
});

describe('DELETE with dry_run=1', () => {
  it('counts the object and everything below it by type', async () => {
    const { api, fixtures } = await openAccount();
    const id_service = await fixtures.service();
    const { id_project } = (await api.get(pathOf('services', id_service))).body;
    const id_group = await fixtures.group({ id_service });
    const id_asset = await fixtures.asset({ id_group });
    const device = await fixtures.device({ id_asset });
    await fixtures.device({ id_group });
    await api.post(pathOf('devices', device, 'deviceconfigs'), { name: 'a', version: '1', file: 'eA==' });
    await api.post(pathOf('devices', device, 'streams'), [{ data: {} }, { data: {} }]);
    await api.post(pathOf('mqttdevices', device, 'credentials'), { username: device, password: 'not a secret' });
    await api.post(pathOf('mqttdevices', device, 'topics'), { name: 'a' });
    const below = { deviceconfig: 1, stream: 2, credentials: 1, topic: 1 };
    const previewOf = async (...path: string[]) => answerOf(await api.delete(`${pathOf(...path)}?dry_run=1`));
    expect(await previewOf('devices', device)).toEqual(preview({ device: 1, ...below }));
    const all = { service: 1, group: 1, asset: 1, device: 2, ...below };
    expect(await previewOf('services', id_service)).toEqual(preview(all));
    expect(await previewOf('projects', id_project)).toEqual(preview({ project: 1, ...all }));
    expect(await previewOf('models', await fixtures.model())).toEqual(preview({ model: 1 }));
    expect((await api.delete(pathOf('projects', id_project))).body.code).toBe(2004);
    expect((await api.delete(`${pathOf('projects', id_project)}?dry_run=1`)).body.code).toBe(4041);
  });

  it.each(['dry_run=0', 'dry_run=true', 'dry_run=', 'dry_run=1&dry_run=1', 'confirm=1'])(
    'rejects %s',
    async (query) => {
      const { api, fixtures } = await openAccount();
      const id = await fixtures.project();
      const { status, body } = await api.delete(`${pathOf('projects', id)}?${query}`);
      expect([status, body.code]).toEqual([400, 4004]);
      expect((await api.get(pathOf('projects', id))).status).toBe(200);
    },
  );
});
