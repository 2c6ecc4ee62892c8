import { expect, it } from '@jest/globals';
import { codesOf, repeat, useTestService } from '../../support/expect-status.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService();

const onceAnd = (code: number, others: number, count: number) => [code, ...Array(count - 1).fill(others)].sort();

it('numbers 50 devices of one name created concurrently, without gap or collision', async () => {
  const id_group = await ctx.fixtures.group();
  const replies = await repeat(50, () => ctx.api.post('/devices/', { name: 'pump', type: 'gateway', id_group }));
  expect(codesOf(replies)).toEqual(Array(50).fill(2001));
  const expected = ['pump@acme', ...Array.from({ length: 49 }, (_, index) => `pump-${index + 2}@acme`)].sort();
  const ids = replies.map(({ headers }) => decodeURIComponent(headers.location?.split('/').at(-2) ?? ''));
  expect(ids.sort()).toEqual(expected);
  const listed = await ctx.api.get('/devices/?name=pump');
  expect(listed.body.total_documents).toBe(50);
  expect(listed.body.result.map((device: { id_developer: string }) => device.id_developer).sort()).toEqual(expected);
});

it.each([
  ['projects', async () => ({ id_customer: 'c-1' })],
  ['services', async () => ({ id_project: await ctx.fixtures.project() })],
  ['groups', async () => ({ id_service: await ctx.fixtures.service() })],
  ['assets', async () => ({ id_group: await ctx.fixtures.group() })],
  ['models', async () => ({})],
])('gives a name of %s to exactly one of 16 concurrent creates', async (plural, fields) => {
  const body = { name: 'one and only', ...(await fields()) };
  const replies = await repeat(16, () => ctx.api.post(`/${plural}/`, body));
  expect(codesOf(replies)).toEqual(onceAnd(2001, 4003, 16));
  for (const { body } of replies) if (body.code === 4003) expect(Object.keys(body.details)).toEqual(['name']);
  expect((await ctx.api.get(`/${plural}/?name=one%20and%20only`)).body.total_documents).toBe(1);
});

it('gives a name to exactly one of 16 concurrent renames', async () => {
  const ids = await repeat(16, () => ctx.fixtures.project());
  const replies = await Promise.all(ids.map((id) => ctx.api.put(pathOf('projects', id), { name: 'renamed' })));
  expect(codesOf(replies)).toEqual(onceAnd(2005, 4003, 16));
  for (const { body } of replies) if (body.code === 4003) expect(Object.keys(body.details)).toEqual(['name']);
  expect((await ctx.api.get('/projects/?name=renamed')).body.total_documents).toBe(1);
});

it('stores a version of a configuration file exactly once', async () => {
  const device = await ctx.fixtures.device();
  const replies = await repeat(16, (index) =>
    ctx.api.post(pathOf('devices', device, 'deviceconfigs'), {
      name: 'boot.cfg',
      version: '1',
      file: Buffer.from(`file ${index}`).toString('base64'),
    }),
  );
  expect(codesOf(replies)).toEqual(onceAnd(2001, 4003, 16));
  const winner = replies.findIndex(({ body }) => body.code === 2001);
  for (const { body } of replies) if (body.code === 4003) expect(Object.keys(body.details)).toEqual(['version']);
  expect((await ctx.api.get(pathOf('devices', device, 'deviceconfigs'))).body.total_documents).toBe(1);
  const file = await ctx.api.get(`/devices/${encodeURIComponent(device)}/deviceconfigs/boot.cfg/1/`, { Accept: '*/*' });
  expect(Buffer.from(file.body).toString()).toBe(`file ${winner}`);
});

it('issues 16 distinct keys concurrently, and revokes each exactly once', async () => {
  const issued = await repeat(16, () => ctx.api.post('/apikeys/', { username: 'bob', scope: 'read' }));
  expect(new Set(issued.map(({ body }) => body.details.key)).size).toBe(16);
  expect(new Set(issued.map(({ body }) => body.details.id)).size).toBe(16);
  const { id, key } = issued[0]?.body.details ?? {};
  const revoked = await repeat(16, () => ctx.api.delete(pathOf('apikeys', id)));
  expect(codesOf(revoked)).toEqual(onceAnd(2004, 4041, 16));
  expect((await ctx.service.clientWith(key).get('/projects/')).body.code).toBe(4011);
  expect((await ctx.api.get('/apikeys/?username=bob')).body.total_documents).toBe(15);
});
