import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from '@jest/globals';
import { isAccountName } from '../../../src/resources/api-key.js';
import { createFixtures, pathOf, startTestService } from '../../support/service.js';

/** Names of accounts (reference/access.md#accounts). */
const nameOf60 = `A${'b._-C9'.repeat(10)}`.slice(0, 60);

const folder = await mkdtemp(join(tmpdir(), 'accounts-'));
for (const account of ['Acme.Acme', nameOf60]) {
  await mkdir(join(folder, account));
  await writeFile(join(folder, account, 'of the account.txt'), account);
}
const service = await startTestService({ filestore_local_root: folder });
afterAll(async () => {
  await service.stop();
  await rm(folder, { recursive: true });
});

describe.each(['Acme.Acme', '0', 'x_', nameOf60])('the account %s', (account) => {
  it('has keys, identifiers, streams and linked storage of its own', async () => {
    expect(isAccountName(account)).toBe(true);
    const api = await service.client({ account });
    const fixtures = createFixtures(api);
    const id_group = await fixtures.group({ name: 'n'.repeat(50) });
    expect(id_group).toBe(`${'n'.repeat(50)}@${account}`);
    expect((await api.get(pathOf('groups', id_group))).body.id_developer).toBe(id_group);
    const devices = [
      await fixtures.device({ name: 'a@b', id_group }),
      await fixtures.device({ name: 'a@b', id_group }),
    ];
    expect(devices).toEqual([`a@b@${account}`, `a@b-2@${account}`]);
    const [device = ''] = devices;
    expect((await api.put(pathOf('devices', device), { description: 'x', id_group })).body.code).toBe(2005);
    expect((await api.get(`/devices/?id_developer=${encodeURIComponent(device)}`)).body.total_documents).toBe(1);
    expect((await api.post('/streams/', { device, data: { n: 1 } })).text).toBe('{ "response": "OK" }');
    const [stream] = (await api.get('/streams/')).body.result;
    expect(stream.id_developer).toMatch(/^[0-9a-f]{64}@/);
    expect(stream.id_developer.slice(65)).toBe(account);
    expect((await api.get(pathOf('streams', stream.id_developer))).body).toEqual(stream);
    const issued = await api.post('/apikeys/', { username: 'bob', scope: 'read' });
    const bob = service.clientWith(issued.body.details.key);
    expect((await bob.get('/devices/')).body.total_documents).toBe(2);
    expect((await api.get(`/apikeys/?username=bob`)).body.total_documents).toBe(1);
  });
});

it.each(['Acme.Acme', nameOf60])('the account %s links its own folder', async (account) => {
  const api = await service.client({ account });
  const storage = '/external/local/user/alice/';
  expect((await api.put(storage, { path: '.' })).body.code).toBe(2001);
  const { result } = (await api.get(`${storage}?op=all`)).body;
  expect(result.map(({ path }: { path: string }) => path)).toEqual(['of the account.txt']);
  expect(await (await fetch(result[0].url)).text()).toBe(account);
});

it('accounts whose names differ in case only, or begin alike, share nothing', async () => {
  const accounts = ['Case', 'case', 'Case.case', 'case.Case'];
  for (const account of accounts)
    await createFixtures(await service.client({ account })).project({ name: 'one', id_customer: account });
  for (const account of accounts) {
    const api = await service.client({ account });
    const { result } = (await api.get('/projects/')).body;
    expect(result).toMatchObject([{ id_developer: `one@${account}`, id_customer: account }]);
    for (const other of accounts.filter((name) => name !== account))
      expect((await api.get(pathOf('projects', `one@${other}`))).status).toBe(404);
  }
});

it.each(['', '.', '..', '.acme', '_acme', '-acme', 'a/b', 'a@b', 'a b', 'é', `${nameOf60}x`, 'a\nb'])(
  'an account cannot be named %j',
  (name) => expect(isAccountName(name)).toBe(false),
);
