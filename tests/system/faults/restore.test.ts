import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeAll, beforeEach, expect, it } from '@jest/globals';
import type { mongo } from 'mongoose';
import { createBackupFile } from '../../../src/backup/file.js';
import { type TestMongod, useSandbox, waitUntil } from '../../support/process.js';
import { runTool, startTool } from '../../support/tools.js';

const sandbox = useSandbox();
let mongod: TestMongod;
let db: mongo.Db;
let file: string;
let number = 0;
const SECRET_KEY = 'a key that only tests have';
const fleet_size = 20_000;
const uriOf = (name: string) => mongod.uri.replace('/fleet', `/${name}`);
const env = (uri: string) => ({ MONGODB_URI: uri, SECRET_KEY });

/** Everything that a restore loads. */
async function contentOf(database: mongo.Db): Promise<Record<string, string>> {
  const { collections } = await database.command({ dbHash: 1 });
  return Object.fromEntries(
    Object.entries<string>(collections).filter(([name]) => !['instances', 'leases', 'maintenance'].includes(name)),
  );
}

beforeAll(async () => {
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

beforeEach(async () => {
  db = sandbox.database(uriOf(`target-${++number}`));
  await db.collection('leases').insertOne({ _id: 1 as never });
});
afterEach(() => db.dropDatabase());

const targetEnv = () => env(uriOf(db.databaseName));
const restore = (path = file) => runTool('restore', [path], targetEnv());

async function expectRestored(): Promise<void> {
  expect(await contentOf(db)).toEqual(await contentOf(sandbox.database(uriOf('source'))));
  const keysOf = async (database: mongo.Db) => (await database.collection('devices').indexes()).map(({ key }) => key);
  expect(await keysOf(db)).toEqual([{ _id: 1 }, { account: 1, id_developer: 1 }, { text: 1 }]);
  expect(await db.collection('maintenance').countDocuments({ _id: 'restore' as never })).toBe(0);
}

it('loads every collection but those about processes', async () => {
  // what a service has created, and no object
  await db.createCollection('devices');
  await db.collection('migrations').insertOne({ _id: 'tombstones' as never });
  expect(await restore()).toEqual({
    code: 0,
    out: expect.stringMatching(new RegExp(`^restored the backup of \\S+: ${fleet_size} devices, 2 notes\n$`)),
    complaints: [],
  });
  await expectRestored();
  // receipts that were in memory are read from the streams
  const receipts = { _id: 'receipts-of-backup', holder: 'backup', until: expect.anything() };
  expect(await db.collection('leases').find().toArray()).toEqual([{ _id: 1 }, receipts]);
});

it('refuses a database that is not empty, and names what is there', async () => {
  await db.collection('devices').insertOne({ _id: 1 as never, name: 'present' });
  await db.collection('extra').insertMany([{ _id: 1 as never }, { _id: 2 as never }]);
  const before = await contentOf(db);
  const { code, out, complaints } = await restore();
  expect([code, out, complaints]).toEqual([
    1,
    '',
    [
      'restore: the database is not empty (1 devices, 2 extra); a restore takes an empty DATA_DIR, or a new database name in MONGODB_URI',
    ],
  ]);
  expect(await contentOf(db)).toEqual(before);
  expect(await db.collection('maintenance').countDocuments({ _id: 'restore' as never })).toBe(0);
});

it('changes nothing for a file that is not whole or is damaged', async () => {
  const before = await contentOf(db);
  const whole = await readFile(file);
  const faulty = join(sandbox.folder, 'faulty');
  const flipped = (position: number) => {
    const copy = Buffer.from(whole);
    copy[position] = (copy[position] ?? 0) ^ 1;
    return copy;
  };
  const cases: [Buffer, RegExp][] = [
    [Buffer.alloc(0), /is not a backup;/],
    [Buffer.from('{"an": "export"}'), /is not a backup;/],
    [Buffer.concat([whole.subarray(0, 7), Buffer.of(9), whole.subarray(8)]), /of format 9, made by a later version/],
    [whole.subarray(0, 10), /is not whole/],
    [whole.subarray(0, whole.length / 2), /is not whole/],
    [whole.subarray(0, -1), /is not whole/],
    [Buffer.concat([whole, Buffer.from('x')]), /is damaged/],
    [flipped(20), /is damaged/],
    [flipped(Math.floor(whole.length / 2)), /is damaged/],
    [flipped(whole.length - 1), /is damaged/],
  ];
  for (const [content, reason] of cases) {
    await writeFile(faulty, content);
    const { code, out, complaints } = await restore(faulty);
    expect({ code, out, complaints }).toEqual({ code: 1, out: '', complaints: [expect.stringMatching(reason)] });
    expect(complaints[0]).toMatch(/^restore: \S+ .*; nothing was changed$/);
    expect(await contentOf(db)).toEqual(before);
  }
  expect(await contentOf(db)).toEqual(before);
  expect((await restore(join(sandbox.folder, 'nowhere'))).complaints).toEqual([
    expect.stringMatching(/^restore: \S+nowhere cannot be read: ENOENT/),
  ]);
});

it('refuses a backup of later data', async () => {
  const path = join(sandbox.folder, 'later.backup');
  const later = await createBackupFile(path);
  await later.frame('header', Buffer.from('{"created_at":"","service":"9.8.7","data_version":99,"documents":{}}'));
  await later.frame('totals', Buffer.from('{}'));
  await later.finish();
  expect((await restore(path)).complaints).toEqual([
    expect.stringMatching(
      /^restore: the backup is of version 9\.8\.7, which this version [\d.]+ cannot use; nothing was/,
    ),
  ]);
});

it('is whole after a kill -9 and another run, and keeps the service from starting in between', async () => {
  // again where it was complete before: the test proves nothing unless the restore was interrupted
  for (;;) {
    const tool = startTool('restore', [file], targetEnv());
    await waitUntil(async () => (await db.collection('devices').countDocuments()) > 0);
    await tool.stop('SIGKILL');
    if ((await tool.ended) === 'SIGKILL') break;
    await db.dropDatabase();
  }
  expect((await restore()).complaints).toEqual([expect.stringContaining('another restore of this database')]);
  const waiting = await sandbox.service(targetEnv(), { ready: false });
  expect((await waiting.send('GET', '/readyz')).status).toBe(503);
  // its port may open before the first attempt is over
  await waitUntil(() => waiting.err().includes('a restore of this database is in progress or was interrupted'));
  await waiting.stop();
  // the mark of the killed process counts for 10 s
  await db.collection('maintenance').updateOne({ _id: 'restore' as never }, { $set: { beat_at: new Date(0) } });
  expect((await restore()).code).toBe(0);
  await expectRestored();
  const service = await sandbox.service(targetEnv());
  expect(await db.collection('devices').countDocuments()).toBe(fleet_size);
  await service.stop();
});

it('takes an empty passphrase for none', async () => {
  const unsealed = join(sandbox.folder, 'unsealed.backup');
  const source = env(uriOf('source'));
  for (const [more, variables] of [[['--passphrase', ''], {}] as const, [[], { BACKUP_PASSPHRASE: '' }] as const]) {
    const { code, out } = await runTool('backup', [unsealed, ...more], { ...source, ...variables });
    expect([code, out]).toEqual([0, expect.stringContaining('SECRET_KEY is not in the file')]);
  }
  const restored = await runTool('restore', [unsealed, '--passphrase', ''], targetEnv());
  expect([restored.code, restored.complaints]).toEqual([0, []]);
});

it('needs SECRET_KEY for a passphrase', async () => {
  const MONGODB_URI = uriOf('source');
  for (const tool of ['backup', 'restore'])
    expect(await runTool(tool, [join(sandbox.folder, 'x'), '--passphrase', 'open sesame'], { MONGODB_URI })).toEqual({
      code: 1,
      out: '',
      complaints: [`${tool}: SECRET_KEY must be set for --passphrase where MONGODB_URI is`],
    });
});

it('names the variable of a database that does not answer', async () => {
  const unreachable = { ...env('mongodb://127.0.0.1:1/fleet?serverSelectionTimeoutMS=100'), DATA_DIR: sandbox.folder };
  const expectNamed = async (tool: string) => {
    const { code, complaints } = await runTool(tool, [join(sandbox.folder, 'x')], unreachable);
    expect([code, complaints]).toEqual([1, [expect.stringContaining('the database of MONGODB_URI does not answer')]]);
    const help = await runTool(tool, ['--help']);
    expect([help.code, help.out]).toEqual([0, expect.stringContaining('MONGODB_URI or, if unset')]);
    expect((await runTool(tool, [])).complaints).toEqual(["error: missing required argument 'file'"]);
  };
  // at the same time, because a tool tries for some seconds
  await Promise.all(['backup', 'restore'].map(expectNamed));
});
