import { createHash } from 'node:crypto';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from '@jest/globals';
import type { mongo } from 'mongoose';
import { openSandbox, type Sandbox, type TestMongod, waitUntil } from '../support/process.js';
import { runTool, startTool } from '../support/tools.js';

let sandbox: Sandbox;
let mongod: TestMongod;
let db: mongo.Db;
let file: string;
let number = 0;
const SECRET_KEY = 'a key that only tests have';
const fleet_size = 20_000;
const uriOf = (name: string) => mongod.uri.replace('/fleet', `/${name}`);
const env = (uri: string) => ({ MONGODB_URI: uri, SECRET_KEY });

/** Everything that a restore replaces. */
async function contentOf(database: mongo.Db): Promise<Record<string, string>> {
  const { collections } = await database.command({ dbHash: 1 });
  return Object.fromEntries(
    Object.entries<string>(collections).filter(([name]) => !['instances', 'leases', 'maintenance'].includes(name)),
  );
}

beforeAll(async () => {
  sandbox = await openSandbox();
  mongod = await sandbox.mongod();
  await mongod.start();
  const source = sandbox.database(uriOf('source'));
  const fleet = Array.from({ length: fleet_size }, (_, each) => ({
    _id: each as never,
    account: 'acme',
    id_developer: `D${each}@acme`,
    text: createHash('sha256').update(String(each)).digest('hex'),
  }));
  await source.collection('devices').insertMany(fleet);
  await source.collection('devices').createIndex({ account: 1, id_developer: 1 }, { unique: true });
  await source.collection('devices').createIndex({ text: 1 }, { partialFilterExpression: { text: { $exists: true } } });
  await source.collection('notes').insertMany([{ _id: 1 as never }, { _id: 2 as never, of: 'an operator' }]);
  await source.collection('leases').insertOne({ holder: 'another process' });
  file = join(sandbox.folder, 'a.backup');
  const { code, out } = await runTool('backup', [file], env(uriOf('source')));
  expect([code, out]).toEqual([0, expect.stringContaining(`${file}: ${fleet_size} devices, 2 notes; `)]);
});
afterAll(() => sandbox.close());

beforeEach(async () => {
  db = sandbox.database(uriOf(`target-${++number}`));
  await db.collection('devices').insertOne({ _id: 1 as never, name: 'present' });
  await db.collection('extra').insertOne({ _id: 1 as never });
  await db.collection('leases').insertOne({ _id: 1 as never });
});
afterEach(() => db.dropDatabase());

const targetEnv = () => env(uriOf(db.databaseName));
const restore = (path = file) => runTool('restore', [path], targetEnv());

async function expectRestored(): Promise<void> {
  const { extra, ...content } = await contentOf(db);
  expect(content).toEqual(await contentOf(sandbox.database(uriOf('source'))));
  expect(await db.collection('extra').countDocuments()).toBe(0);
  expect(extra).toBeDefined();
  const keysOf = async (database: mongo.Db) => (await database.collection('devices').indexes()).map(({ key }) => key);
  expect(await keysOf(db)).toEqual([{ _id: 1 }, { account: 1, id_developer: 1 }, { text: 1 }]);
  expect(await db.collection('maintenance').countDocuments({ _id: 'restore' as never })).toBe(0);
}

it('replaces every collection but those about processes', async () => {
  expect(await restore()).toEqual({
    code: 0,
    out: expect.stringMatching(new RegExp(`^restored the backup of \\S+: ${fleet_size} devices, 2 notes\n$`)),
    complaints: [],
  });
  await expectRestored();
  expect(await db.collection('leases').find().toArray()).toEqual([{ _id: 1 }]);
});

it('changes nothing for a file that is not whole or was changed', async () => {
  const before = await contentOf(db);
  const whole = await readFile(file);
  const faulty = join(sandbox.folder, 'faulty');
  const flipped = (position: number) => {
    const copy = Buffer.from(whole);
    copy[position] = (copy[position] ?? 0) ^ 1;
    return copy;
  };
  const cases: [Buffer, RegExp][] = [
    [Buffer.alloc(0), /is not a backup of this version/],
    [Buffer.from('{"an": "export"}'), /is not a backup of this version/],
    [whole.subarray(0, 10), /is not whole/],
    [whole.subarray(0, whole.length / 2), /is not whole/],
    [whole.subarray(0, -1), /is not whole/],
    [Buffer.concat([whole, Buffer.from('x')]), /was changed/],
    [flipped(20), /was changed/],
    [flipped(Math.floor(whole.length / 2)), /was changed/],
    [flipped(whole.length - 1), /was changed/],
  ];
  for (const [content, reason] of cases) {
    await writeFile(faulty, content);
    const { code, out, complaints } = await restore(faulty);
    expect({ code, out, complaints }).toEqual({ code: 1, out: '', complaints: [expect.stringMatching(reason)] });
    expect(complaints[0]).toMatch(/^restore: \S+ .*; nothing was changed$/);
  }
  expect(await contentOf(db)).toEqual(before);
  expect((await restore(join(sandbox.folder, 'nowhere'))).complaints).toEqual([
    expect.stringMatching(/^restore: \S+nowhere cannot be read: ENOENT/),
  ]);
});

it('is whole after a kill -9 at any moment and another run', async () => {
  const before = await contentOf(db);
  const reached = {
    loading: async () => (await db.listCollections({ name: 'restoring.devices' }).toArray()).length > 0,
    loaded: async () => (await db.collection('restoring.devices').countDocuments()) === fleet_size,
    replacing: async () => (await db.collection('maintenance').countDocuments({ phase: 'replacing' })) > 0,
  };
  for (const [moment, isReached] of Object.entries(reached)) {
    const tool = startTool('restore', [file], targetEnv());
    await waitUntil(async () => tool.hasExited() || (await isReached()));
    // the last moment is short: on a busy machine the tool may be done
    if (!tool.hasExited()) tool.kill('SIGKILL');
    await tool.ended;
    if (moment !== 'replacing') {
      const { 'restoring.devices': loading, ...present } = await contentOf(db);
      expect(Object.fromEntries(Object.entries(present).filter(([name]) => !name.startsWith('restoring.')))).toEqual(
        before,
      );
    }
    // the claim of the killed process ends after 10 s of silence
    await db.collection('maintenance').updateOne({ _id: 'restore' as never }, { $set: { beat_at: new Date(0) } });
  }
  expect((await restore()).code).toBe(0);
  await expectRestored();
  expect((await readdir(sandbox.folder)).filter((name) => name.endsWith('.partial'))).toEqual([]);
});

it('is completed by the next start of the service', async () => {
  expect((await restore()).code).toBe(0);
  // as a kill -9 between two renames leaves it
  await db.collection('notes').rename('restoring.notes');
  await db.collection<{ _id: number; old?: boolean }>('notes').insertOne({ _id: 7, old: true });
  await db.collection<{ _id: string; [field: string]: unknown }>('maintenance').insertOne({
    _id: 'restore',
    attempt: 'killed',
    phase: 'replacing',
    names: ['devices', 'notes'],
    beat_at: new Date(0),
  });
  const service = await sandbox.service(targetEnv());
  expect(await db.collection('notes').find().toArray()).toEqual([{ _id: 1 }, { _id: 2, of: 'an operator' }]);
  expect(await db.collection('devices').countDocuments()).toBe(fleet_size);
  expect(await db.collection('maintenance').countDocuments({ _id: 'restore' as never })).toBe(0);
  await service.stop();
});

it('is refused while a service uses the database, and keeps a service from starting', async () => {
  const service = await sandbox.service(targetEnv());
  // the service continues to write events of what was loaded
  const contentWithoutLog = async () => {
    const { event_log: _position, events: _events, ...content } = await contentOf(db);
    return content;
  };
  const before = await contentWithoutLog();
  expect(await restore()).toEqual({
    code: 1,
    out: '',
    complaints: [expect.stringMatching(/^restore: a service uses this database: process \d+ on \S+\. Stop it first/)],
  });
  expect(await contentWithoutLog()).toEqual(before);
  await service.stop();
  const marker = { _id: 'restore' as never, attempt: 'other', phase: 'loading', names: [], beat_at: new Date() };
  await db.collection('maintenance').insertOne({ ...marker, beat_at: new Date(Date.now() + 3_600_000) });
  expect((await restore()).complaints).toEqual([expect.stringContaining('another restore of this database')]);
  const waiting = await sandbox.service(targetEnv(), { ready: false });
  expect((await waiting.send('GET', '/readyz')).status).toBe(503);
  expect(waiting.err()).toContain('a restore of this database is in progress');
  await db.collection('maintenance').deleteOne({ _id: 'restore' as never });
  await waiting.ready();
  await waiting.stop();
});

it('names the variable of a database that does not answer', async () => {
  const unreachable = { ...env('mongodb://127.0.0.1:1/fleet?serverSelectionTimeoutMS=100'), DATA_DIR: sandbox.folder };
  for (const tool of ['backup', 'restore']) {
    const { code, complaints } = await runTool(tool, [join(sandbox.folder, 'x')], unreachable);
    expect([code, complaints]).toEqual([1, [expect.stringContaining('the database of MONGODB_URI does not answer')]]);
    const help = await runTool(tool, ['--help']);
    expect([help.code, help.out]).toEqual([0, expect.stringContaining('MONGODB_URI or, if unset')]);
    expect((await runTool(tool, [])).complaints).toEqual(["error: missing required argument 'file'"]);
  }
});
