import { expect, it } from '@jest/globals';
import { summarize, useTestService } from '../../support/expect-status.js';
import { describeResourceContract, textRule } from '../../support/resource-contract.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService();

it('creates and shows a project', async () => {
  const reply = await ctx.api.post('/projects/', { name: ' Weather ', id_customer: 'c-1' });
  expect([reply.status, reply.body]).toEqual([200, { code: 2001, message: 'Project created', details: {} }]);
  expect(reply.headers.location).toBe('/projects/Weather%40acme/');
  const shown = await ctx.api.get('/projects/Weather@acme/');
  expect(shown.body).toEqual({
    id_developer: 'Weather@acme',
    name: 'Weather',
    id_customer: 'c-1',
    enabled: true,
    owner: 'alice',
    updater: 'alice',
    created_at: ctx.service.now(),
    updated_at: ctx.service.now(),
    version: 0,
  });
});

describeResourceContract(ctx, {
  plural: 'projects',
  label: 'Project',
  required: async () => ({ id_customer: 'c-1' }),
  rules: [textRule('id_customer', 50)],
});

it.each(['', 'x', 'xy', 'xyz'])('keeps a name of long characters behind %j from others', async (start) => {
  const name = `${start}${'\u{1F600}'.repeat(50 - start.length)}`;
  await ctx.fixtures.project({ name });
  const reply = await ctx.api.put(pathOf('projects', await ctx.fixtures.project()), { name });
  expect(reply.body).toEqual({ code: 4003, message: 'validation error', details: { name: 'is taken' } });
});

it('may have the name of a project in another account and of a resource of another type', async () => {
  const stranger = await ctx.service.client({ account: 'other' });
  const body = { name: 'Everywhere', id_customer: 'c-1' };
  for (const api of [ctx.api, stranger]) expect(summarize(await api.post('/projects/', body))).toBe('2001');
  expect(summarize(await ctx.api.post('/models/', { name: 'Everywhere' }))).toBe('2001');
  expect((await stranger.get('/projects/')).body.result).toMatchObject([{ id_developer: 'Everywhere@other' }]);
});

it.each<[deleted: string, expected: string]>([
  ['projects', 'projects services groups assets devices/G devices/A configs/G configs/A'],
  ['services', 'services groups assets devices/G devices/A configs/G configs/A'],
  ['groups', 'groups assets devices/G devices/A configs/G configs/A'],
  ['assets', 'assets devices/A configs/A'],
  ['devices/G', 'devices/G configs/G'],
  ['devices/A', 'devices/A configs/A'],
])('deletes with one of %s: %s, and nothing else', async (deleted, expected) => {
  const { api, fixtures } = ctx;
  const id_project = await fixtures.project();
  const id_service = await fixtures.service({ id_project });
  const id_group = await fixtures.group({ id_service });
  const id_asset = await fixtures.asset({ id_group });
  const [groupDevice, assetDevice] = [await fixtures.device({ id_group }), await fixtures.device({ id_asset })];
  const paths: Record<string, string> = {
    projects: pathOf('projects', id_project),
    services: pathOf('services', id_service),
    groups: pathOf('groups', id_group),
    assets: pathOf('assets', id_asset),
    'devices/G': pathOf('devices', groupDevice),
    'devices/A': pathOf('devices', assetDevice),
    'configs/G': pathOf('devices', groupDevice, 'deviceconfigs', 'f', '1'),
    'configs/A': pathOf('devices', assetDevice, 'deviceconfigs', 'f', '1'),
  };
  for (const id of [groupDevice, assetDevice])
    expect(
      (await api.post(pathOf('devices', id, 'deviceconfigs'), { name: 'f', version: '1', file: 'YQ==' })).status,
    ).toBe(201);
  expect(summarize(await api.delete(paths[deleted] ?? ''))).toBe('2004');
  const missing = [];
  for (const [label, path] of Object.entries(paths)) if ((await api.get(path)).status === 404) missing.push(label);
  expect(missing.join(' ')).toBe(expected);
});
