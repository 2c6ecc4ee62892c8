import { describe, expect, it } from '@jest/globals';
import { connectTool } from '../../../src/db/tool-connection.js';
import { data_version } from '../../../src/lib/version.js';
import { useDatabaseSandbox } from '../../support/database-sandbox.js';
import { waitUntil } from '../../support/process.js';
import { runTool } from '../../support/tools.js';

const ctx = useDatabaseSandbox('data-version');

const versions = () =>
  ctx.db.collection<{ _id: string; number: number; release: string; upgrade?: string }>('migrations');
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
    const started = await ctx.sandbox.start({ ...ctx.env, ...more });
    expect(await started.ended).toBe(1);
    expect(started.complaints()[0]).toMatch(newer);
    expect(await ctx.db.listCollections().toArray()).toHaveLength(1);
  });

  it('is refused by the tools', async () => {
    await announceLater();
    const args = ['create', '--account', 'acme', '--user', 'alice', '--scope', 'write'];
    const { code, complaints } = await runTool('keys', args, ctx.env);
    expect([code, complaints]).toEqual([1, [expect.stringMatching(newer)]]);
    await expect(connectTool(ctx.env.MONGODB_URI)).rejects.toThrow(newer);
  });

  it('ends the service of a running instance within 5 s, with one line', async () => {
    const service = await ctx.sandbox.service(ctx.env);
    await announceLater();
    const refused = { code: 5031, message: 'BD error', details: { upgrade: expect.stringMatching(newer) } };
    await waitUntil(async () => (await service.send('GET', '/projects/')).body.code === 5031);
    expect((await service.send('POST', '/projects/', { name: 'p', id_customer: 'c' })).body).toEqual(refused);
    expect((await service.send('GET', '/readyz')).status).toBe(503);
    expect((await service.send('GET', '/healthz')).status).toBe(200);
    expect(await ctx.db.collection('projects').countDocuments()).toBe(0);
    const lines = service.err().split('\n');
    expect(lines.filter((line) => line.includes('9.8.7'))).toHaveLength(1);
  });
});

it('tools leave data of an earlier version alone', async () => {
  await ctx.db.collection('migrations').insertOne({ _id: 'ancestors' as never });
  const args = ['create', '--account', 'acme', '--user', 'alice', '--scope', 'write'];
  const { code, complaints } = await runTool('keys', args, ctx.env);
  expect([code, complaints]).toEqual([1, [expect.stringMatching(/^the data is of an earlier version: start/)]]);
  expect(await ctx.db.collection('keys').countDocuments()).toBe(0);
});

it('a restored database, which has no views, keeps earlier versions out as well', async () => {
  const views = () => ctx.db.listCollections({ type: 'view' }).toArray();
  const first = await ctx.sandbox.service(ctx.env);
  first.kill('SIGTERM');
  await first.ended;
  for (const { name } of await views()) await ctx.db.dropCollection(name);
  await ctx.sandbox.service(ctx.env);
  const names = (await views()).map(({ name }) => name);
  expect(names.sort()).toEqual(['apikeys', 'instances', 'leases', 'mqttcredentials', 'removals']);
});
