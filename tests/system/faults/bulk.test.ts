import { once } from 'node:events';
import { request } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { storedNameOf } from '../../../src/db/former-versions.js';
import { parseAnswer } from '../../support/import.js';
import { findOrphans } from '../../support/orphans.js';
import { type RunningService, type TimedReply, useSandbox, waitUntil } from '../../support/process.js';

type Db = mongoose.mongo.Db;

/** Crashes during an import (reference/import.md#lines) and during changes of many objects (reference/bulk.md#concurrency). */
const sandbox = useSandbox('each test');

const env = { BOOTSTRAP_API_KEY: 'for-this-test-only' };
const count = 1500;

/** Lines that create a group with `devices` devices. */
function linesOf(devices: number): string {
  const lines: object[] = [
    { resource: 'project', name: 'P', id_customer: 'c' },
    { resource: 'service', name: 'S', id_project: 'P@demo' },
    { resource: 'group', name: 'G', id_service: 'S@demo' },
  ];
  for (let n = 0; n < devices; n++) {
    const id_developer = `device ${n}@demo`;
    lines.push({ resource: 'device', name: 'device', type: 't', id_group: 'G@demo', id_developer });
  }
  return lines.map((line) => `${JSON.stringify(line)}\n`).join('');
}

async function importLines(service: RunningService, lines: string) {
  const reply = await service.send('POST', '/import/', lines);
  return parseAnswer({ ...reply, headers: reply.headers });
}

/** Fills a group with many devices, copies of two that the service stored, and streams of some. */
async function fill(service: RunningService, db: Db): Promise<void> {
  expect((await importLines(service, linesOf(2))).totals.created).toBe(5);
  const sent = await service.send('POST', '/devices/device%200@demo/streams/', { data: {} });
  expect(sent.body.code).toBe(2001);
  const [device] = await db.collection('devices').find({}).toArray();
  const [stream] = await db.collection('streams').find({}).toArray();
  const copies = Array.from({ length: count - 2 }, (_, n) => ({
    ...device,
    _id: new mongoose.mongo.UUID() as never,
    id_developer: `copy ${n}@demo`,
  }));
  await db.collection('devices').insertMany(copies);
  const streams = copies.slice(0, 500).map(({ _id, id_developer }) => ({
    ...{ ...stream, _id: { ...stream?._id, device: id_developer } as never },
    parent: _id,
  }));
  await db.collection('streams').insertMany(streams);
}

it('an import repeated after kill -9 loses and doubles no line', async () => {
  let service = await sandbox.service(env);
  const lines = linesOf(count);
  const sent = request(`${service.url}/import/`, { method: 'POST', headers: { 'service.apikey': service.key } });
  // never to the end, so that the import is not complete before the kill
  sent.write(lines.slice(0, lines.length / 2));
  const answer = once(sent, 'response')
    .then(([response]) => text(response))
    .catch(() => undefined);
  const before = sandbox.database(await sandbox.embeddedUri());
  await waitUntil(async () => (await before.collection('devices').countDocuments()) > 200);
  service.kill('SIGKILL');
  await service.ended;
  // the test proves nothing unless the import was interrupted
  expect(await answer).toBeUndefined();
  service = await sandbox.service(env);
  const db = sandbox.database(await sandbox.embeddedUri());
  const stored = await db.collection('devices').countDocuments();
  expect(stored).toBeLessThan(count);
  const { totals } = await importLines(service, lines);
  expect(totals).toEqual({ created: count - stored, updated: 0, skipped: stored + 3, failed: 0 });
  expect(await db.collection('devices').countDocuments({ version: 0 })).toBe(count);
  expect((await service.send('GET', '/devices/?max=1')).body.total_documents).toBe(count);
  expect(await findOrphans((plural) => db.collection(storedNameOf(plural)) as never)).toEqual([]);
});

const countWithout = (values: object) => (db: Db) => db.collection('devices').countDocuments({ $nor: [values] });

/** Reports whether a change is in progress: one that was answered 5031 at its time limit is not over. */
const isJournaled = async (db: Db) => (await db.collection('bulkchanges').countDocuments()) > 0;

/** Sends a change until it has begun: again, as a client would (reference/errors.md#retries). @returns the answer */
async function begin(send: () => Promise<TimedReply | undefined>, db: Db, hasBegun: () => Promise<boolean>) {
  let answer = send();
  while (!(await hasBegun())) {
    const reply = await Promise.race([answer, sleep(20, undefined)]);
    if (reply === undefined || (await isJournaled(db)) || (await hasBegun())) continue;
    console.warn(`answered before the change has begun: ${reply.text}`);
    expect(reply.status).toBe(503);
    answer = send();
  }
  return { answer };
}

async function countWithoutCommand(db: Db): Promise<number> {
  return count - (await db.collection('commands').distinct('parent')).length;
}

it('changes of many objects are complete before the start after kill -9 is ready, each object once', async () => {
  let service = await sandbox.service(env);
  await fill(service, sandbox.database(await sandbox.embeddedUri()));
  const [device] = await sandbox
    .database(await sandbox.embeddedUri())
    .collection('devices')
    .find({}, { promoteValues: true })
    .toArray();
  const late = { ...device, _id: new mongoose.mongo.UUID() as never, id_developer: 'late@demo', version: 99 };
  const steps: [method: string, path: string, body: object | undefined, left: (db: Db) => Promise<number>][] = [
    ['PATCH', '/devices/', { sensor: 's' }, countWithout({ sensor: 's' })],
    ['PATCH', '/devices/', { frequency_stream: 5 }, countWithout({ frequency_stream: 5 })],
    ['POST', '/devices/commands/', { name: 'restart' }, countWithoutCommand],
    ['DELETE', '/devices/', undefined, countWithout({ version: 99 })],
  ];
  let interruptions = 0;
  for (const [method, path, body, left] of steps) {
    const before = sandbox.database(await sandbox.embeddedUri());
    const send = () => service.send(method, `${path}?id_group=G@demo&confirm=${count}`, body).catch(() => undefined);
    const hasBegun = async () => (await left(before)) < count;
    const { answer } = await begin(send, before, hasBegun);
    await before.collection('devices').insertOne({ ...late });
    service.kill('SIGKILL');
    await service.ended;
    // killed before the answer or after that of the time limit, unless the change was complete before
    const { status = 503 } = (await answer) ?? {};
    expect([200, 503]).toContain(status);
    if (status === 503) interruptions++;
    service = await sandbox.service(env);
    const db = sandbox.database(await sandbox.embeddedUri());
    // an object that came later is not among those that were confirmed
    expect(await db.collection('devices').countDocuments({ _id: late._id, version: 99 })).toBe(1);
    await db.collection('devices').deleteOne({ _id: late._id });
    expect(await left(db)).toBe(0);
    expect(await db.collection('bulkchanges').countDocuments()).toBe(0);
    if (method === 'POST') expect(await db.collection('commands').countDocuments()).toBe(count);
  }
  expect(interruptions).toBeGreaterThan(0);
  const db = sandbox.database(await sandbox.embeddedUri());
  expect(await db.collection('commands').countDocuments()).toBe(0);
  expect(await db.collection('streams').countDocuments()).toBe(0);
  expect((await service.send('GET', '/devices/')).body.total_documents).toBe(0);
});

it('a change whose instance is killed is completed by another one within 30 s', async () => {
  const mongod = await sandbox.mongod();
  await mongod.start();
  const shared = { ...env, MONGODB_URI: mongod.uri, SECRET_KEY: 'a key that only tests have' };
  const service = await sandbox.service(shared);
  await sandbox.service(shared);
  const db = sandbox.database(mongod.uri);
  await fill(service, db);
  // holds up the last piece, so that the change is not complete before the kill
  const held = await leaveTransactionOpen(db, { id_developer: 'device 1@demo' });
  const path = `/devices/?id_group=G@demo&confirm=${count}`;
  const send = () => service.send('PATCH', path, { sensor: 's' }).catch(() => undefined);
  const hasBegun = async () => (await db.collection('devices').countDocuments({ version: 1 })) > 0;
  const { answer } = await begin(send, db, hasBegun);
  service.kill('SIGKILL');
  await service.ended;
  expect((await answer)?.status ?? 503).toBe(503);
  expect(await db.collection('devices').countDocuments({ version: 0 })).toBeGreaterThan(0);
  await held.abortTransaction();
  const ofService = sandbox.database(`${mongod.uri}&appName=device-platform/${db.databaseName}`);
  await leaveTransactionOpen(ofService, { version: 0 });
  await waitUntil(async () => (await db.collection('devices').countDocuments({ version: 1 })) === count);
  expect(await db.collection('devices').countDocuments({ sensor: 's' })).toBe(count);
});

/** Changes a device that is still to be changed, as an instance does in a transaction, which stays open. */
async function leaveTransactionOpen(db: Db, device: object): Promise<mongoose.mongo.ClientSession> {
  const session = db.client.startSession();
  session.startTransaction();
  const { modifiedCount } = await db.collection('devices').updateOne(device, { $set: { sensor: 's' } }, { session });
  expect(modifiedCount).toBe(1);
  return session;
}
