import { afterAll, describe, expect, it } from '@jest/globals';
import { summarize } from '../../support/expect-status.js';
import { waitForEvents } from '../../support/logged-events.js';
import { type Api, createFixtures, pathOf, startTestService } from '../../support/service.js';

/** Issuing of limited keys, and their end (reference/access.md#limited-keys). */
const ids: Record<string, string> = {};

const service = await startTestService({ eventLog: true });
const admin = await service.client();
const fixtures = createFixtures(admin);
ids.id_project = await fixtures.project({ name: 'North' });
ids.id_service = await fixtures.service({ name: 'Cooling', id_project: ids.id_project });
ids.id_group = await fixtures.group({ name: 'Hall', id_service: ids.id_service });
ids.id_asset = await fixtures.asset({ name: 'Chiller', id_group: ids.id_group });
ids.id_device = await fixtures.device({ name: 'Pump', id_asset: ids.id_asset });
afterAll(() => service.stop());

async function issue(body: object): Promise<{ id: string; api: Api }> {
  const reply = await admin.post('/apikeys/', { username: 'bob', ...body });
  if (summarize(reply) !== '2001') throw new Error(reply.text);
  return { id: reply.body.details.id, api: service.clientWith(reply.body.details.key) };
}

const combinations: [scope: string, field: string, isAllowed: boolean][] = [
  ...['stream', 'read', 'write'].flatMap((scope) =>
    ['id_project', 'id_service', 'id_group', 'id_asset'].map((field): [string, string, boolean] => [
      scope,
      field,
      true,
    ]),
  ),
  ...['id_project', 'id_service', 'id_group', 'id_asset', 'id_device'].map((field): [string, string, boolean] => [
    'admin',
    field,
    false,
  ]),
  ['stream', 'id_device', true],
  ['device', 'id_device', true],
  ['read', 'id_device', true],
  ['write', 'id_device', false],
];

it.each(combinations)('a key of scope %s with %s', async (scope, field, isAllowed) => {
  const body = { username: 'bob', scope, [field]: ids[field] };
  if (!isAllowed) {
    expect(summarize(await admin.post('/apikeys/', body))).toBe(`4003 ${field}`);
    return;
  }
  const { id, api } = await issue({ scope, [field]: ids[field] });
  expect((await api.get('/self/')).body).toEqual({ account: 'acme', username: 'bob', scope, [field]: ids[field], id });
  const { result } = (await admin.get(`/apikeys/?${field}=${encodeURIComponent(ids[field] ?? '')}`)).body;
  expect(result).toContainEqual({ id, username: 'bob', scope, [field]: ids[field], created_at: service.now() });
});

it.each<[object, string]>([
  [{ scope: 'device' }, '4003 id_device'],
  [{ scope: 'device', id_group: 'Hall@acme' }, '4003 id_device'],
  [{ scope: 'read', id_group: 'Hall@acme', id_device: 'Pump@acme' }, '4003 id_device id_group'],
  [{ scope: 'admin', id_group: 'Hall@acme', id_device: 'Pump@acme' }, '4003 id_device id_group'],
  [{ id_device: 'Pump@acme' }, '4003 scope'],
  [{ scope: 'all', id_device: 'Pump@acme' }, '4003 scope'],
  [{ scope: 'read', id_project: 'Nowhere@acme' }, '4003 id_project'],
  [{ scope: 'read', id_project: 'Hall@acme' }, '4003 id_project'],
  [{ scope: 'device', id_device: 'Nothing@acme' }, '4003 id_device'],
  [{ scope: 'read', id_asset: 'no identifier' }, '4003 id_asset'],
  [{ scope: 'read', id_asset: 5 }, '4003 id_asset'],
  [{ scope: 'read', id_model: 'Hall@acme' }, '4003 id_model'],
])('refuses the key %j', async (body, expected) => {
  const before = (await admin.get('/apikeys/')).body.total_documents;
  expect(summarize(await admin.post('/apikeys/', { username: 'bob', ...body }))).toBe(expected);
  expect((await admin.get('/apikeys/')).body.total_documents).toBe(before);
});

it('refuses an object of another account as one that does not exist', async () => {
  const stranger = await service.client({ account: 'stranger' });
  const id_project = await createFixtures(stranger).project();
  expect((await admin.post('/apikeys/', { username: 'bob', scope: 'read', id_project })).body).toEqual({
    code: 4003,
    message: 'validation error',
    details: { id_project: 'does not exist' },
  });
});

it('takes null for a limit as none', async () => {
  const { api } = await issue({ scope: 'write', id_project: null, id_device: null });
  expect((await api.get('/self/')).body).not.toHaveProperty('id_project');
  expect((await api.get('/projects/')).status).toBe(200);
});

describe('a key whose object is deleted', () => {
  it('is deleted with it, wherever the deletion began, and the event log says so', async () => {
    const fixtures = createFixtures(admin);
    const id_project = await fixtures.project();
    const id_service = await fixtures.service({ id_project });
    const id_group = await fixtures.group({ id_service });
    const id_asset = await fixtures.asset({ id_group });
    const id_device = await fixtures.device({ id_asset });
    const limits = { id_project, id_service, id_group, id_asset, id_device };
    const keys = await Promise.all(Object.entries(limits).map(([field, id]) => issue({ scope: 'read', [field]: id })));
    const counted = await admin.delete(`${pathOf('projects', id_project)}?dry_run=1`);
    expect(counted.body.details).toEqual({ project: 1, service: 1, group: 1, asset: 1, device: 1, apikey: 5 });
    expect((await admin.delete(pathOf('projects', id_project))).body.code).toBe(2004);
    const stored = service.db.collection('apikeys');
    expect(await stored.countDocuments({ id: { $in: keys.map(({ id }) => id) } })).toBe(0);
    for (const { id } of keys) {
      const [deleted] = await waitForEvents(admin, `type=apikey.deleted&id_developer=${id}`, 1);
      expect(deleted).toMatchObject({ resource: 'apikey', user: 'alice', data: { username: 'bob', scope: 'read' } });
    }
    for (const { api } of keys) expect(summarize(await api.get('/self/'))).toBe('4011 service.apikey');
  });

  it('is deleted by a bulk change too, and does not come to life with another object of the name', async () => {
    const fixtures = createFixtures(admin);
    const id_group = await fixtures.group();
    const device = await fixtures.device({ name: 'Twin', id_group });
    const { api } = await issue({ scope: 'device', id_device: device });
    for (let count = 0; count < 2; count++) expect((await api.get('/self/')).body.id_device).toBe(device);
    const matching = `/devices/?id_group=${encodeURIComponent(id_group)}`;
    expect((await admin.delete(`${matching}&confirm=1`)).body.code).toBe(2004);
    expect(await fixtures.device({ name: 'Twin', id_group })).toBe(device);
    expect(summarize(await api.get('/self/'))).toBe('4011 service.apikey');
  });
});
