import { afterAll, beforeAll, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { useTestService } from '../../support/expect-status.js';
import { waitUntil } from '../../support/process.js';
import { pathOf } from '../../support/service.js';

/** Transactions that a process leaves open when it crashes (operations.md#logs). */
// requests may fail
const log = { info() {}, warn() {}, error() {} };
const ctx = await useTestService({ log });
const { MongoClient } = mongoose.mongo;
const clients: mongoose.mongo.MongoClient[] = [];
let ids: string[];

/** Changes a device in a transaction that is never ended, as a process does that is killed. */
async function leaveOpen(id: string, appName: string): Promise<mongoose.mongo.ClientSession> {
  const client = new MongoClient(process.env.TEST_MONGODB_URI ?? '', { appName });
  clients.push(client);
  const session = client.startSession();
  session.startTransaction({ readConcern: { level: 'snapshot' }, writeConcern: { w: 'majority' } });
  const devices = client.db(ctx.service.db.collection('devices').dbName).collection('devices');
  const { matchedCount } = await devices.updateOne({ id_developer: id }, { $set: { sensor: 'lost' } }, { session });
  expect(matchedCount).toBe(1);
  return session;
}

beforeAll(async () => {
  const id_group = await ctx.fixtures.group();
  ids = await Promise.all([1, 2, 3].map(() => ctx.fixtures.device({ id_group })));
});
afterAll(() => Promise.all(clients.map((client) => client.close())));

it('block their documents for some seconds only, and those of other installations are left alone', async () => {
  const { api, service } = ctx;
  const [crashed = '', foreign = '', recent = ''] = ids;
  const appName = `device-platform/${service.db.collection('devices').dbName}`;
  await leaveOpen(crashed, appName);
  // it may still be at work; a request would wait until it may not
  await service.db.endIdleTransactions();
  const change = { $set: { sensor: 'new' } };
  const changing = service.db.collection('devices').updateOne({ id_developer: crashed }, change, { maxTimeMS: 50 });
  await expect(changing).rejects.toMatchObject({ codeName: 'MaxTimeMSExpired' });
  const session = await leaveOpen(foreign, 'device-platform/another');
  await waitUntil(async () => {
    await service.db.endIdleTransactions();
    return (await api.put(pathOf('devices', crashed), { sensor: 'new' })).body.code === 2005;
  });
  expect((await api.get(pathOf('devices', crashed))).body.sensor).toBe('new');
  const atWork = await leaveOpen(recent, appName);
  await service.db.endIdleTransactions();
  await atWork.commitTransaction();
  await session.commitTransaction();
  expect((await api.get(pathOf('devices', foreign))).body.sensor).toBe('lost');
  expect((await api.get(pathOf('devices', recent))).body.sensor).toBe('lost');
});
