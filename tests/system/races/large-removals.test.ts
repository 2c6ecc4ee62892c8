import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from '@jest/globals';
import { finishRemovals } from '../../../src/objects/cascade-delete.js';
import { useTestService } from '../../support/expect-status.js';
import { waitUntil } from '../../support/process.js';
import { pathOf } from '../../support/service.js';
import { buildStreamDocument } from '../../support/stream-documents.js';

const streams_per_device = 60_000;

const ctx = useTestService();

/** A device with streams that are inserted past the interface. @returns its identifier */
async function createDeviceWithStreams(count: number): Promise<string> {
  const id = await ctx.fixtures.device();
  const device = await ctx.service.db.collection('devices').findOne({ id_developer: id });
  const at = ctx.service.now();
  for (let left = count; left > 0; left -= 10_000) {
    const streams = Array.from({ length: Math.min(left, 10_000) }, (_, index) =>
      buildStreamDocument({ device: id, parent: device?._id, at, created_at: at, place: left - index, data: { n: 1 } }),
    );
    await ctx.service.db.collection('streams').insertMany(streams, { ordered: false });
  }
  return id;
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
  expect([2004, 5031]).toContain(reply.body.code);
  await waitUntil(async () => (await ctx.service.db.collection('streams').countDocuments({ '_id.device': id })) === 0);
  isDone = true;
  await polling;
  expect(new Set(readiness)).toEqual(new Set([200]));
  expect((await ctx.api.get(pathOf('devices', id))).status).toBe(404);
});

it('is not ready before what a failure of the database did not end is deleted', async () => {
  const id = await createDeviceWithStreams(3);
  const { db } = ctx.service;
  const { collection } = db;
  let open: () => void = () => undefined;
  const gate = new Promise<void>((resolve) => (open = resolve));
  let isHeld = false;
  let journal_reads = 0;
  db.collection = (plural) => {
    const real = collection(plural);
    if (plural === 'streams') {
      const deleteMany: typeof real.deleteMany = async (...args) => {
        isHeld = true;
        await gate;
        return real.deleteMany(...args);
      };
      return Object.assign(Object.create(real), { deleteMany });
    }
    if (plural !== 'removals') return real;
    const distinct = (...args: Parameters<typeof real.distinct>) => {
      journal_reads++;
      return real.distinct(...args);
    };
    return Object.assign(Object.create(real), { distinct });
  };
  const removed = ctx.api.delete(pathOf('devices', id));
  await waitUntil(() => isHeld);
  db.markNotReady();
  await waitUntil(() => journal_reads > 0);
  for (let count = 0; count < 50; count++) expect(await db.isReady()).toBe(false);
  open();
  await waitUntil(() => db.isReady());
  expect(await collection('streams').countDocuments({ '_id.device': id })).toBe(0);
  expect((await removed).body.code).toBe(2004);
  db.collection = collection;
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
  const devices = ctx.service.db.collection('devices');
  const session = devices.db.client.startSession();
  try {
    session.startTransaction();
    await devices.updateOne({ id_developer: id }, { $set: { held: true } }, { session });
    expect((await ctx.api.delete(pathOf('devices', id))).body.code).toBe(5031);
    expect((await ctx.api.get('/readyz')).status).toBe(200);
    expect((await ctx.api.get(pathOf('devices', id))).status).toBe(200);
    await session.abortTransaction();
  } finally {
    await session.endSession();
  }
  // the service itself may be at it, which is then left to it
  await finishRemovals(ctx.service.store);
  await waitUntil(async () => (await ctx.api.get(pathOf('devices', id))).status === 404);
});
