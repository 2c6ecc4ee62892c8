import { beforeAll, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { storedNameOf } from '../../../src/db/former-versions.js';
import { findOrphans } from '../../support/orphans.js';
import { type RunningService, type TestMongod, useSandbox, waitUntil } from '../../support/process.js';

/** Crashes during a move of a group with many devices (reference/resources.md#update). */
const sandbox = useSandbox();
let mongod: TestMongod;
let db: mongoose.mongo.Db;
let service: RunningService;
const count = 20_000;
const env = () => ({
  BOOTSTRAP_API_KEY: 'for-this-test-only',
  MONGODB_URI: mongod.uri,
  SECRET_KEY: 'a key that only tests have',
});

beforeAll(async () => {
  mongod = await sandbox.mongod();
  await mongod.start();
  service = await sandbox.service(env());
  db = sandbox.database(mongod.uri);
  for (const name of ['P', 'Q']) {
    await service.create('projects', { name, id_customer: 'c' });
    await service.create('services', { name, id_project: `${name}@demo` });
  }
  await service.create('groups', { name: 'G', id_service: 'P@demo' });
  await service.create('devices', { name: 'D', type: 't', id_group: 'G@demo' });
  const [device] = await db.collection('devices').find({}).toArray();
  const copies = Array.from({ length: count - 1 }, (_, n) => ({
    ...device,
    _id: new mongoose.mongo.UUID() as never,
    id_developer: `copy ${n}@demo`,
  }));
  await db.collection('devices').insertMany(copies);
});

async function countBelow(project: string): Promise<number> {
  const found = await db.collection('projects').findOne({ id_developer: `${project}@demo` });
  return db.collection('devices').countDocuments({ ancestors: found?._id as never });
}

/** Begins a move, and kills the service when some devices have been moved, and not all. */
async function killDuringMove(to: string): Promise<void> {
  const before = await countBelow(to);
  expect(before).toBe(0);
  // holds up one device, so that the move is not complete before the kill
  const last = await db.collection('devices').findOne({}, { sort: { _id: -1 } });
  const session = db.client.startSession();
  session.startTransaction();
  await db.collection('devices').updateOne({ _id: last?._id as never }, { $set: { held: true } }, { session });
  const answer = service.send('PUT', '/groups/G@demo/', { id_service: `${to}@demo` }).catch(() => undefined);
  await waitUntil(async () => (await countBelow(to)) > 0);
  service.kill('SIGKILL');
  await service.ended;
  expect((await answer)?.status ?? 503).toBe(503);
  // the test proves nothing unless the move was interrupted
  expect(await countBelow(to)).toBeLessThan(count);
  await session.abortTransaction();
}

it('is completed before the next start is ready', async () => {
  await killDuringMove('Q');
  service = await sandbox.service(env());
  expect([await countBelow('P'), await countBelow('Q')]).toEqual([0, count]);
  expect((await service.send('GET', '/devices/?id_service=Q@demo&max=1')).body.total_documents).toBe(count);
});

it('is completed by another instance within 30 s', async () => {
  const other = await sandbox.service(env());
  await killDuringMove('P');
  await waitUntil(async () => (await countBelow('P')) === count);
  expect((await other.send('GET', '/groups/G@demo/')).body.id_service).toBe('P@demo');
  await waitUntil(async () => (await db.collection('moves').countDocuments()) === 0);
  expect(await findOrphans((plural) => db.collection(storedNameOf(plural)) as never)).toEqual([]);
});

it('answers when everything is moved, or 5031 and continues', async () => {
  service = await sandbox.service(env());
  const { status, body } = await service.send('PUT', '/groups/G@demo/', { id_service: 'Q@demo' });
  if (status === 200) expect(await countBelow('Q')).toBe(count);
  else expect([status, body.code]).toEqual([503, 5031]);
  await waitUntil(async () => (await countBelow('Q')) === count);
});
