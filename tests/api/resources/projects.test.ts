import { expect, it } from '@jest/globals';
import { ownService, summarize } from '../../support/expect-status.js';
import { describeResourceContract, textRule } from '../../support/resource-contract.js';
import { at } from '../../support/service.js';

const own = ownService();

it('creates and shows a project', async () => {
  const reply = await own.api.post('/projects/', { name: ' Weather ', id_customer: 'c-1' });
  expect([reply.status, reply.body]).toEqual([200, { code: 2001, message: 'Project created', details: {} }]);
  expect(reply.headers.location).toBe('/projects/Weather%40acme/');
  const shown = await own.api.get('/projects/Weather@acme/');
  expect(shown.body).toEqual({
    id_developer: 'Weather@acme',
    name: 'Weather',
    id_customer: 'c-1',
    enabled: true,
    owner: 'alice',
    updater: 'alice',
    created_at: own.service.now(),
    updated_at: own.service.now(),
    version: 0,
  });
});

describeResourceContract(own, {
  plural: 'projects',
  label: 'Project',
  required: async () => ({ id_customer: 'c-1' }),
  rules: [textRule('id_customer', 50)],
});

it('shares a name with a project of another account and with what is no project', async () => {
  const stranger = await own.service.client({ account: 'other' });
  const body = { name: 'Everywhere', id_customer: 'c-1' };
  for (const api of [own.api, stranger]) expect(summarize(await api.post('/projects/', body))).toBe('2001');
  expect(summarize(await own.api.post('/models/', { name: 'Everywhere' }))).toBe('2001');
  expect((await stranger.get('/projects/')).body.result).toMatchObject([{ id_developer: 'Everywhere@other' }]);
});

it.each<[deleted: string, gone: string]>([
  ['projects', 'projects services groups assets devices/G devices/A configs/G configs/A'],
  ['services', 'services groups assets devices/G devices/A configs/G configs/A'],
  ['groups', 'groups assets devices/G devices/A configs/G configs/A'],
  ['assets', 'assets devices/A configs/A'],
  ['devices/G', 'devices/G configs/G'],
  ['devices/A', 'devices/A configs/A'],
])('takes along with one of %s: %s, and nothing else', async (deleted, gone) => {
  const { api, given } = own;
  const id_project = await given.project();
  const id_service = await given.service({ id_project });
  const id_group = await given.group({ id_service });
  const id_asset = await given.asset({ id_group });
  const [ofGroup, ofAsset] = [await given.device({ id_group }), await given.device({ id_asset })];
  const paths: Record<string, string> = {
    projects: at('projects', id_project),
    services: at('services', id_service),
    groups: at('groups', id_group),
    assets: at('assets', id_asset),
    'devices/G': at('devices', ofGroup),
    'devices/A': at('devices', ofAsset),
    'configs/G': at('devices', ofGroup, 'deviceconfigs', 'f', '1'),
    'configs/A': at('devices', ofAsset, 'deviceconfigs', 'f', '1'),
  };
  for (const id of [ofGroup, ofAsset])
    expect((await api.post(at('devices', id, 'deviceconfigs'), { name: 'f', version: '1', file: 'YQ==' })).status).toBe(
      201,
    );
  expect(summarize(await api.delete(paths[deleted] ?? ''))).toBe('2004');
  const missing = [];
  for (const [label, path] of Object.entries(paths)) if ((await api.get(path)).status === 404) missing.push(label);
  expect(missing.join(' ')).toBe(gone);
});
