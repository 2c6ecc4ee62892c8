import { expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import type { StoredObject } from '../../../src/db/database.js';
import { findLastStreams } from '../../../src/objects/values/stream-values.js';
import { useTestService } from '../../support/expect-status.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService();

/** The last data streams of devices, as `at` and data. */
async function lastOf(ids: readonly string[], now = ctx.service.now()) {
  const { db } = ctx.service;
  const devices = await db
    .collection<StoredObject>('devices')
    .find({ id_developer: { $in: [...ids] } })
    .toArray();
  const last = await findLastStreams(db, devices, now);
  return ids.map((id) => {
    const { at, data } = last.get(id) ?? {};
    return at === undefined ? undefined : { at, ...mongoose.mongo.BSON.deserialize(data ?? Buffer.alloc(5)) };
  });
}

const send = async (id: string, streams: object) =>
  expect((await ctx.api.post(pathOf('devices', id, 'streams'), streams)).body.code).toBe(2001);

it('finds the last data stream that is not of the future, of equal ones the one received last', async () => {
  const [busy, silent, quiet, early] = await Promise.all([0, 1, 2, 3].map(() => ctx.fixtures.device()));
  const ids = [busy, silent, quiet, early] as string[];
  const now = ctx.service.now();
  await send(String(busy), [
    { at: now, data: { n: 1 } },
    { at: now, data: { n: 2 } },
    { at: now - 5, data: { n: 3 } },
    { at: now + 0.5, data: { n: 4 } },
    { at: now, _t: 'sta', data: { n: 5 } },
  ]);
  await send(String(quiet), { at: 0, data: { n: 6 } });
  await send(String(early), { at: now + 1, data: { n: 7 } });
  expect(await lastOf(ids)).toEqual([{ at: now, n: 2 }, undefined, { at: 0, n: 6 }, undefined]);
  expect(await lastOf(ids, now + 1)).toEqual([
    { at: now + 0.5, n: 4 },
    undefined,
    { at: 0, n: 6 },
    { at: now + 1, n: 7 },
  ]);
  expect(await lastOf([])).toEqual([]);
});

it('finds those of 1,000 devices in one command, and none of a deleted device of the same identifier', async () => {
  const id_group = await ctx.fixtures.group();
  const names = Array.from({ length: 1000 }, (_, n) => `d${n}`);
  const lines = names.map((name) => JSON.stringify({ resource: 'device', name, type: 't', id_group }));
  const headers = { 'Content-Type': 'application/x-ndjson' };
  expect((await ctx.api.post('/import/', lines.join('\n'), headers)).text).toContain('"created":1000');
  const ids = names.map((name) => `${name}@acme`);
  const streams = ids.map((device, n) => ({ device, at: 100 + n, data: { n } }));
  expect((await ctx.api.post('/streams/', streams)).body).toEqual({ response: 'OK' });
  const { db } = ctx.service;
  // what a removal has not reached yet
  await db.collection('streams').updateOne({ '_id.device': 'd7@acme' }, { $set: { parent: db.newId() } });
  const last = await lastOf(ids);
  expect(last[7]).toBeUndefined();
  expect(last.toSpliced(7, 1)).toEqual(ids.map((_, n) => ({ at: 100 + n, n })).toSpliced(7, 1));
});
