import { afterAll, expect, it } from '@jest/globals';
import { createFixtures, startTestService } from '../../support/service.js';
import { runTool } from '../../support/tools.js';

/** Keys of the command line (reference/access.md#command-line). */
const service = await startTestService();
const fixtures = createFixtures(await service.client());
const id_project = await fixtures.project({ name: 'North' });
const id_service = await fixtures.service({ name: 'Cooling', id_project });
const id_group = await fixtures.group({ name: 'Hall', id_service });
await fixtures.device({ name: 'Pump', id_group });
const address = new URL(process.env.TEST_MONGODB_URI ?? '');
address.pathname = `/${service.db.collection('apikeys').db.databaseName}`;
afterAll(() => service.stop());

const keys = (...args: string[]) => runTool('keys', args, { MONGODB_URI: address.href });
const create = (...args: string[]) => keys('create', '--user', 'operator', ...args);

it.each(['Acme.Acme', '0', 'x_', `A${'b._-C9'.repeat(10)}`.slice(0, 60)])('creates the account %s', async (account) => {
  const { out } = await create('--account', account, '--scope', 'admin');
  const { body } = await service.clientWith(out.trim()).get('/self/');
  expect(body).toMatchObject({ account, username: 'operator', scope: 'admin' });
});

it('issues a limited key, and lists what it is limited to', async () => {
  const { out } = await create('--account', 'acme', '--scope', 'device', '--id-device', 'Pump@acme');
  const self = (await service.clientWith(out.trim()).get('/self/')).body;
  expect(self).toMatchObject({ username: 'operator', scope: 'device', id_device: 'Pump@acme' });
  const listed = (await keys('list', '--account', 'acme')).out.split('\n').map((line) => line.split('\t'));
  const columns = ['operator', 'device', 'id_device Pump@acme'];
  expect(listed.find(([id]) => id === self.id)?.slice(1, 4)).toEqual(columns);
  expect(listed.find(([, user]) => user === 'alice')?.slice(1, 4)).toEqual(['alice', 'admin', 'whole account']);
});

const nameRule = '60 letters, digits, dots, underscores and dashes, the first a letter or digit';
it.each<[string[], string]>([
  [['--account', 'a/b', '--scope', 'admin'], nameRule],
  [['--account', 'acme', '--scope', 'read', '--id-project', 'Nowhere@acme'], '--id-project does not exist'],
  [
    ['--account', 'acme', '--scope', 'admin', '--id-project', 'North@acme'],
    '--id-project must not be given with scope admin',
  ],
  [['--account', 'acme', '--scope', 'device'], '--id-device is required with scope device'],
  [
    ['--account', 'acme', '--scope', 'read', '--id-group', 'Hall@acme', '--id-device', 'Pump@acme'],
    '--id-group must not be given with --id-device; --id-device must not be given with --id-group',
  ],
])('refuses %j', async (args, complaint) => {
  const { code, out, complaints } = await create(...args);
  expect({ code, out, complaints }).toEqual({ code: 1, out: '', complaints: [expect.stringContaining(complaint)] });
});
