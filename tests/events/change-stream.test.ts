import { types } from 'node:util';
import { expect, it } from '@jest/globals';
import {
  type ChangeBatch,
  ChangeHistoryLost,
  type ChangeStream,
  type ChangeStreamOptions,
  formatClusterTime,
  openChangeStream,
  parseChange,
  parseClusterTime,
  type ResumeToken,
  readClusterTime,
} from '../../src/db/change-stream.js';
import type { Id } from '../../src/db/ids.js';
import { createSubjects } from '../../src/events/subjects.js';
import { getDocument, getNumber, getTimestamp } from '../../src/serialize/bson.js';
import { useTestService } from '../support/expect-status.js';

const ctx = await useTestService();
const inserts: ChangeStreamOptions = { collection: 'notes', pipeline: [{ $match: { operationType: 'insert' } }] };
// biome-ignore lint/suspicious/noExplicitAny: documents of a collection that only this test has
const notes = (name = 'notes'): any => ctx.service.db.collection(name);

/** Reads batches until `count` changes have been read. */
async function readChanges(stream: ChangeStream, count: number) {
  const batches: ChangeBatch[] = [];
  while (batches.flatMap(({ changes }) => changes).length < count) batches.push(await stream.next());
  const changes = batches.flatMap((batch) => batch.changes);
  return {
    batches,
    changes,
    numbers: changes.map((bson) => getNumber(getDocument(bson, 'fullDocument') ?? bson, 'n')),
  };
}

async function withStream<Result>(
  options: ChangeStreamOptions,
  read: (stream: ChangeStream) => Promise<Result>,
): Promise<Result> {
  const stream = await openChangeStream(ctx.service.db, options);
  try {
    return await read(stream);
  } finally {
    await stream.close();
  }
}

it('reads changes in batches, in the order of the database, with their documents as BSON', async () => {
  const { db } = ctx.service;
  const startAt = await readClusterTime(db);
  await notes().insertMany(Array.from({ length: 2500 }, (_, n) => ({ n, text: 'x'.repeat(100) })));
  await withStream({ ...inserts, startAt }, async (stream) => {
    const { batches, changes, numbers } = await readChanges(stream, 2500);
    expect(numbers).toEqual(Array.from({ length: 2500 }, (_, n) => n));
    expect(batches.map((batch) => batch.changes.length)).toEqual([1000, 1000, 500]);
    const times = changes.map((bson) => getTimestamp(bson, 'clusterTime') ?? '');
    expect(times).toEqual([...times].sort());
    expect(times[0]).toMatch(/^[0-9a-f]{16}$/);
    expect(times.every((time) => time > formatClusterTime(startAt))).toBe(true);
    expect(formatClusterTime(parseChange(changes[0] ?? Buffer.of()).clusterTime)).toBe(times[0]);
    expect(formatClusterTime(parseClusterTime('6a0000fffffffffe'))).toBe('6a0000fffffffffe');
  });
});

it('continues behind a position, also behind one of an empty batch', async () => {
  const resumeToken = await withStream(inserts, async (stream) => {
    await notes().insertMany([{ n: 1 }, { n: 2 }]);
    const { numbers } = await readChanges(stream, 2);
    expect(numbers).toEqual([1, 2]);
    const idle = await stream.next();
    expect(idle.changes).toEqual([]);
    return idle.resumeToken;
  });
  await notes().insertMany([{ n: 3 }, { n: 4 }]);
  await withStream({ ...inserts, resumeToken }, async (stream) => {
    const { numbers, batches } = await readChanges(stream, 2);
    expect(numbers).toEqual([3, 4]);
    expect((batches.at(-1)?.resumeToken._data ?? '') > resumeToken._data).toBe(true);
  });
});

it('reads the changes of all collections, and begins now by default', async () => {
  const { db } = ctx.service;
  await notes().insertOne({ n: 5 });
  const all = { pipeline: [{ $match: { operationType: { $in: ['insert', 'delete'] } } }] };
  await withStream(all, async (stream) => {
    await notes().insertOne({ n: 6 });
    await db.collection('tasks').insertOne({ n: 7 } as never);
    await notes().deleteOne({ n: 6 });
    const changes: string[] = [];
    while (changes.length < 3) {
      for (const bson of (await stream.next()).changes) {
        const { operationType, ns } = parseChange(bson) as unknown as { operationType: string; ns: { coll: string } };
        changes.push(`${operationType} ${ns.coll}`);
      }
    }
    expect(changes).toEqual(['insert notes', 'insert tasks', 'delete notes']);
  });
});

it('ends a read in progress when it is closed, and when the collection is dropped', async () => {
  const stream = await openChangeStream(ctx.service.db, inserts);
  await stream.next();
  const reading = stream.next();
  const ended = expect(reading).rejects.toThrow('aborted');
  await stream.close();
  await ended;
  await withStream(inserts, async (dropped) => {
    await notes().drop();
    await expect(readChanges(dropped, 1)).rejects.toThrow('the change stream has ended');
  });
});

it('reports a position that the log of changes does not have', async () => {
  // a collection that no other test has dropped within the last second
  const letters: ChangeStreamOptions = { ...inserts, collection: 'letters' };
  // that of a change, as a position between changes may be as old as the log itself
  const position = await withStream(letters, async (stream) => {
    await notes('letters').insertOne({ n: 8 });
    const { changes } = await readChanges(stream, 1);
    return (parseChange(changes[0] ?? Buffer.of()) as unknown as { _id: ResumeToken })._id;
  });
  // a change that never was, shortly before: mongod reads the log from there on
  const second = Number.parseInt(position._data.slice(2, 10), 16) - 1;
  const forged = { _data: `82${second.toString(16).padStart(8, '0')}${position._data.slice(10)}` };
  const lost = expect.objectContaining({ name: 'ChangeHistoryLost' });
  await expect(withStream({ ...letters, resumeToken: forged }, (stream) => readChanges(stream, 1))).rejects.toEqual(
    lost,
  );
  expect(types.isNativeError(new ChangeHistoryLost())).toBe(true);
});

it('remembers the objects of events without the replies that they came in', async () => {
  const { db } = ctx.service;
  const id_group = await ctx.fixtures.group();
  await Promise.all(Array.from({ length: 50 }, () => ctx.fixtures.device({ id_group })));
  const devices = await db.collection('devices').find({}).toArray();
  const bytesOf = (id: Id | undefined) => id?.buffer.buffer.byteLength ?? 0;
  expect(bytesOf(devices[0]?._id)).toBeGreaterThan(20_000);
  const subjects = createSubjects(db);
  const ids = devices.map(({ _id }) => _id);
  await subjects.load('devices', ids);
  const known = ids.map((_id) => subjects.recall(_id)?.ancestors ?? []);
  expect(known.map(({ length }) => length)).toEqual(Array(50).fill(3));
  // objects in one place share what is above them
  expect(new Set(known).size).toBe(1);
  expect(Math.max(...known.flat().map(bytesOf))).toBeLessThanOrEqual(Buffer.poolSize);
});
