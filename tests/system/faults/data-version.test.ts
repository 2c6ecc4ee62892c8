import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import type { mongo } from 'mongoose';
import { connectTool } from '../../../src/db/tool-connection.js';
import { data_version } from '../../../src/lib/version.js';
import { openSandbox, type Sandbox, waitUntil } from '../../support/process.js';
import { runTool } from '../../support/tools.js';

let sandbox: Sandbox;
let db: mongo.Db;
let env: { MONGODB_URI: string; SECRET_KEY: string; BOOTSTRAP_API_KEY: string };

beforeEach(async () => {
  const uri = new URL(process.env.TEST_MONGODB_URI ?? '');
  uri.pathname = `/test-data-version-${process.pid}-${Date.now()}`;
  env = { MONGODB_URI: uri.href, SECRET_KEY: 'only for this test', BOOTSTRAP_API_KEY: 'only-for-this-test' };
  sandbox = await openSandbox();
  db = sandbox.database(uri.href);
});
afterEach(async () => {
  await db.dropDatabase();
  await sandbox.close();
});

const versions = () => db.collection<{ _id: string; number: number; release: string; upgrade?: string }>('migrations');
/** Does what the first instance of a later version does. */
const announceLater = () =>
  versions().updateOne(
    { _id: 'data-version' },
    { $set: { number: data_version + 1, release: '9.8.7', upgrade: '' } },
    { upsert: true },
  );
const newer = /^the data is of version 9\.8\.7, which this version [\d.]+ cannot use; .*restoring the backup/;

describe('data of a later version', () => {
  it.each([[{}], [{ WORKERS: '2' }]])('stops the start with one line that names both: %j', async (more) => {
    await announceLater();
    const started = await sandbox.start({ ...env, ...more });
    expect(await started.ended).toBe(1);
    expect(started.complaints()[0]).toMatch(newer);
    expect(await db.listCollections().toArray()).toHaveLength(1);
  });

  it('is refused by the tools', async () => {
    await announceLater();
    const args = ['create', '--account', 'acme', '--user', 'alice', '--scope', 'write'];
    const { code, complaints } = await runTool('keys', args, env);
    expect([code, complaints]).toEqual([1, [expect.stringMatching(newer)]]);
    await expect(connectTool(env.MONGODB_URI)).rejects.toThrow(newer);
  });

  it('ends the service of a running instance within 5 s, with one line', async () => {
    const service = await sandbox.service(env);
    await announceLater();
    const refused = { code: 5031, message: 'BD error', details: { upgrade: expect.stringMatching(newer) } };
    await waitUntil(async () => (await service.send('GET', '/projects/')).body.code === 5031);
    expect((await service.send('POST', '/projects/', { name: 'p', id_customer: 'c' })).body).toEqual(refused);
    expect((await service.send('GET', '/readyz')).status).toBe(503);
    expect((await service.send('GET', '/healthz')).status).toBe(200);
    expect(await db.collection('projects').countDocuments()).toBe(0);
    const lines = service.err().split('\n');
    expect(lines.filter((line) => line.includes('9.8.7'))).toHaveLength(1);
  });
});

it('tools leave data of an earlier version alone', async () => {
  await db.collection('migrations').insertOne({ _id: 'ancestors' as never });
  const args = ['create', '--account', 'acme', '--user', 'alice', '--scope', 'write'];
  const { code, complaints } = await runTool('keys', args, env);
  expect([code, complaints]).toEqual([1, [expect.stringMatching(/^the data is of an earlier version: start/)]]);
  expect(await db.collection('keys').countDocuments()).toBe(0);
});

it('a restored database, which has no views, keeps earlier versions out as well', async () => {
  const views = () => db.listCollections({ type: 'view' }).toArray();
  const first = await sandbox.service(env);
  first.kill('SIGTERM');
  await first.ended;
  for (const { name } of await views()) await db.dropCollection(name);
  await sandbox.service(env);
  const names = (await views()).map(({ name }) => name);
  expect(names.sort()).toEqual(['apikeys', 'instances', 'leases', 'mqttcredentials', 'removals']);
});
