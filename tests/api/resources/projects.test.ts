import { expect, it } from '@jest/globals';
import { summarize, useTestService } from '../../support/expect-status.js';
import { findOrphans } from '../../support/orphans.js';
import { describeResourceContract, textRule } from '../../support/resource-contract.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService();

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
  for (const id of [groupDevice, assetDevice]) {
    const config = { name: 'f', version: '1', file: 'YQ==' };
    expect((await api.post(pathOf('devices', id, 'deviceconfigs'), config)).status).toBe(201);
    const replies = [
      await api.post('/streams/', [{ device: id, data: {} }]),
      await api.post('/status/', [{ device: id, data: {} }]),
      await api.post(pathOf('mqttdevices', id, 'credentials'), { username: id, password: 'password' }),
      await api.post(pathOf('mqttdevices', id, 'topics'), { name: 'a/b' }),
      await api.post(pathOf('devices', id, 'commands'), { name: 'restart' }),
      await api.patch(pathOf('devices', id, 'state'), { interval: 60 }),
    ];
    expect(replies.map(({ status }) => status)).toEqual(replies.map(() => 200));
  }
  expect(summarize(await api.delete(paths[deleted] ?? ''))).toBe('2004');
  const missing = [];
  for (const [label, path] of Object.entries(paths)) if ((await api.get(path)).status === 404) missing.push(label);
  expect(missing.join(' ')).toBe(expected);
  expect(await findOrphans(ctx.service.db.collection)).toEqual([]);
});
