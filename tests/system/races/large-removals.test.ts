import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { finishRemovals } from '../../../src/objects/tree/cascade-delete.js';
import { type TestContext, useTestService } from '../../support/expect-status.js';
import { waitUntil } from '../../support/process.js';
import { pathOf } from '../../support/service.js';
import { buildStreamDocument } from '../../support/stream-documents.js';

const streams_per_device = 60_000;

const ctx = await useTestService();

/** A device with streams that are inserted past the interface. @returns its identifier */
async function createDeviceWithStreams(count: number, { service, fixtures } = ctx, fields = {}): Promise<string> {
  const id = await fixtures.device(fields);
  const device = await service.db.collection('devices').findOne({ id_developer: id });
  const at = service.now();
  for (let left = count; left > 0; left -= 10_000) {
    const streams = Array.from({ length: Math.min(left, 10_000) }, (_, index) =>
      buildStreamDocument({ device: id, parent: device?._id, at, created_at: at, place: left - index, data: { n: 1 } }),
    );
    await service.db.collection('streams').insertMany(streams, { ordered: false });
  }
  return id;
}

/** Holds deletions of streams up until `open` is called. */
function holdStreamDeletions({ db }: TestContext['service']) {
  const { collection } = db;
  let open: () => void = () => undefined;
  const gate = new Promise<void>((resolve) => (open = resolve));
  const held = { count: 0, collection, open: () => open() };
  db.collection = (plural) => {
    const real = collection(plural);
    if (plural !== 'streams') return real;
    const deleteMany: typeof real.deleteMany = async (...args) => {
      held.count++;
      await gate;
      return real.deleteMany(...args);
    };
    return Object.assign(Object.create(real), { deleteMany });
  };
  return held;
}

/** The journal entry of a removal that `instance` of the past left unfinished. */
async function leaveUnfinished(id: string, beat_at: Date): Promise<void> {
  const node = await ctx.service.db.collection('devices').findOne({ id_developer: id });
  const _id = ctx.service.db.newId();
  await ctx.service.db.collection('removals').insertOne({
    _id,
    root: _id,
    ...{ account: 'acme', plural: 'devices', nodes: [{ _id: node?._id, id }], at: Date.now(), done: false },
    ...{ user: 'alice', request_id: randomUUID(), beat_at },
  });
}

it('stays ready while a device with many streams is deleted, and leaves none', async () => {
  const id = await createDeviceWithStreams(streams_per_device);
  const readiness: number[] = [];
  let isDone = false;
  const polling = (async () => {
    while (!isDone) {
      readiness.push((await ctx.api.get('/readyz')).status);
      await sleep(20);
    }
  })();
  const reply = await ctx.api.delete(pathOf('devices', id));
  expect(reply.body.code).toBe(2004);
  await waitUntil(async () => (await ctx.service.db.collection('streams').countDocuments({ '_id.device': id })) === 0);
  isDone = true;
  await polling;
  expect(new Set(readiness)).toEqual(new Set([200]));
  expect((await ctx.api.get(pathOf('devices', id))).status).toBe(404);
});

it('is not ready before what a failure of the database did not end is deleted', async () => {
  const id = await createDeviceWithStreams(3);
  const { db } = ctx.service;
  const held = holdStreamDeletions(ctx.service);
  const { collection } = held;
  const withHeldStreams = db.collection;
  let journal_reads = 0;
  db.collection = (plural) => {
    const real = withHeldStreams(plural);
    if (plural !== 'removals') return real;
    const distinct = (...args: Parameters<typeof real.distinct>) => {
      journal_reads++;
      return real.distinct(...args);
    };
    return Object.assign(Object.create(real), { distinct });
  };
  const removed = ctx.api.delete(pathOf('devices', id));
  await waitUntil(() => held.count > 0);
  db.markNotReady();
  await waitUntil(() => journal_reads > 0);
  for (let count = 0; count < 50; count++) expect(await db.isReady()).toBe(false);
  held.open();
  await waitUntil(() => db.isReady());
  expect(await collection('streams').countDocuments({ '_id.device': id })).toBe(0);
  expect((await removed).body.code).toBe(2004);
  db.collection = collection;
});

const slow = await useTestService({ answer_limit_ms: 10_000 });
describe('a deletion that outlasts the time limit', () => {
  it('is answered as done once only streams are left, which nothing shows', async () => {
    const { api, service } = slow;
    const id_group = await slow.fixtures.group();
    const kept = await createDeviceWithStreams(1, slow);
    const id = await createDeviceWithStreams(3, slow, { name: 'again' });
    const grouped = [await createDeviceWithStreams(2, slow, { id_group }), await slow.fixtures.device({ id_group })];
    const stored = await api.get(`${pathOf('devices', id, 'streams')}?max=1`);
    const held = holdStreamDeletions(service);
    const [one, many] = await Promise.all([
      api.delete(pathOf('devices', id)),
      api.delete(`/devices/?id_group=${encodeURIComponent(id_group)}&confirm=2`),
    ]);
    expect([one.status, one.body]).toEqual([200, { code: 2004, message: 'Device deleted', details: {} }]);
    expect([many.status, many.body]).toEqual([
      200,
      { code: 2004, message: 'Device deleted', details: { matched: 2, changed: 2 } },
    ]);
    const ofDeleted = { '_id.device': { $in: [id, ...grouped] } };
    expect(await held.collection('streams').countDocuments(ofDeleted)).toBe(5);
    for (const gone of [id, ...grouped]) expect((await api.get(pathOf('devices', gone))).status).toBe(404);
    expect(await slow.fixtures.device({ name: 'again' })).toBe(id);
    expect((await api.post(pathOf('devices', id, 'streams'), { data: { n: 7 } })).body.code).toBe(2001);
    const all = await api.get('/streams/?_m=1');
    expect(all.body.total_documents).toBe(2);
    expect(all.body.result.map(({ device }: { device: string }) => device).sort()).toEqual([id, kept].sort());
    expect((await api.get('/streams/?format=ndjson')).text.trimEnd().split('\n')).toHaveLength(2);
    expect((await api.get(`/streams/?device=${encodeURIComponent(id)}`)).body.total_documents).toBe(1);
    expect((await api.get(`/streams/${stored.body.result[0].id_developer}/`)).status).toBe(404);
    held.open();
    await waitUntil(async () => (await held.collection('streams').countDocuments(ofDeleted)) === 1);
    await waitUntil(async () => (await held.collection('removals').countDocuments({ done: false })) === 0);
    expect((await api.get('/streams/')).body.total_documents).toBe(2);
    service.db.collection = held.collection;
  });
});

it('leaves a removal to the instance that shows signs of life', async () => {
  const id = await createDeviceWithStreams(1);
  await leaveUnfinished(id, new Date());
  const removals = ctx.service.db.collection('removals');
  const beating = setInterval(() => void removals.updateOne({ 'nodes.id': id }, [{ $set: { beat_at: '$$NOW' } }]), 200);
  await finishRemovals(ctx.service.store);
  clearInterval(beating);
  expect((await ctx.api.get(pathOf('devices', id))).status).toBe(200);
});

it('completes a removal whose instance has been silent', async () => {
  const id = await createDeviceWithStreams(3);
  await leaveUnfinished(id, new Date(Date.now() - 60_000));
  await finishRemovals(ctx.service.store);
  expect((await ctx.api.get(pathOf('devices', id))).status).toBe(404);
  expect(await ctx.service.db.collection('streams').countDocuments({ '_id.device': id })).toBe(0);
});

it('stays ready while others hold what is to be deleted, and deletes it after them', async () => {
  const id = await ctx.fixtures.device();
  // a client of its own: the service ends its own transactions that are idle for 3 s
  const client = new mongoose.mongo.MongoClient(process.env.TEST_MONGODB_URI ?? '');
  const session = client.startSession();
  try {
    session.startTransaction();
    const devices = client.db(ctx.service.db.collection('devices').dbName).collection('devices');
    await devices.updateOne({ id_developer: id }, { $set: { held: true } }, { session });
    expect((await ctx.api.delete(pathOf('devices', id))).body.code).toBe(5031);
    expect((await ctx.api.get('/readyz')).status).toBe(200);
    expect((await ctx.api.get(pathOf('devices', id))).status).toBe(200);
    await session.abortTransaction();
  } finally {
    await session.endSession();
    await client.close();
  }
  // the service itself may be at it, which is then left to it
  await finishRemovals(ctx.service.store);
  await waitUntil(async () => (await ctx.api.get(pathOf('devices', id))).status === 404);
});
