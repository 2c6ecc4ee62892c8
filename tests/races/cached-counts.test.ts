import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { type CountCache, createCountCache } from '../../src/db/cached-counts.js';
import { createFixtures, pathOf, startTestService, type TestService } from '../support/service.js';

type Db = mongoose.mongo.Db;
type Document = mongoose.mongo.BSON.Document;

function freshUri(): string {
  const uri = new URL(process.env.TEST_MONGODB_URI ?? '');
  uri.pathname = `/test-${randomUUID()}`;
  return uri.href;
}

const options = { maxTimeMS: 4000 };

describe('a total that is kept', () => {
  let connection: mongoose.Connection;
  let db: Db;
  let totals: CountCache;
  /** What the database was asked for: `count` and `read` the log of changes. */
  let asked: string[] = [];
  let broken = false;

  const command = async (fixtures: Document) => {
    if ('aggregate' in fixtures) asked.push('$changeStream' in fixtures.pipeline[0] ? 'read' : 'count');
    if (broken && asked.at(-1) === 'read') throw new Error('the log cannot be read');
    return db.command(fixtures, { promoteLongs: false });
  };
  const told = async (account = 'acme') => {
    asked = [];
    const total = await totals.count('things', { account }, options);
    return `${total} ${asked}`;
  };
  const things = () => db.collection<Document>('things');
  const some = (account: string, count: number) => Array.from({ length: count }, () => ({ account }));

  beforeAll(async () => {
    const uri = freshUri();
    connection = await mongoose.createConnection(uri, { writeConcern: { w: 'majority' } }).asPromise();
    db = connection.getClient().db(new URL(uri).pathname.slice(1));
  });
  afterAll(() => connection.close());
  beforeEach(async () => {
    broken = false;
    await things().deleteMany({});
    await things().insertMany([...some('acme', 30), ...some('other', 5)]);
    totals = createCountCache(command, 10, 10_000);
    expect(await told()).toBe('30 count');
  });

  it('is not counted again while nothing changes', async () => {
    expect(await told()).toBe('30 read');
    await things().updateMany({}, { $set: { name: 'x' } });
    await db.collection('others').deleteMany({});
    await db.collection('others').insertOne({ account: 'acme' });
    expect(await told()).toBe('30 read');
  });

  it('is counted each time where it is small', async () => {
    expect(await told('other')).toBe('5 count');
    expect(await told('other')).toBe('5 count');
  });

  it('grows with what is created, more than one answer of the log holds', async () => {
    await things().insertMany([...some('acme', 2345), ...some('other', 7)]);
    expect(await told()).toBe('2375 read,read,read');
    await things().insertMany(some('acme', 1));
    expect(await told()).toBe('2376 read');
  });

  it.each<[string, string, () => Promise<unknown>]>([
    ['one is removed', '29', () => things().deleteOne({ account: 'acme' })],
    ['one of another account is removed', '30', () => things().deleteOne({ account: 'other' })],
    ['those of another account change hands', '35', () => things().updateMany({}, [{ $set: { account: 'acme' } }])],
    ['all lose their account', '0', () => things().updateMany({}, { $unset: { account: 1 } })],
    ['one is replaced', '29', () => things().replaceOne({ account: 'acme' }, { account: 'other' })],
    [
      'an upsert creates one',
      '31',
      () => things().updateOne({ name: 'y' }, { $set: { account: 'acme' } }, { upsert: true }),
    ],
    ['the collection is dropped', '0', () => things().drop()],
    ['another takes its name', '3', () => swap()],
  ])('is right after %s', async (_, total, change) => {
    await change();
    expect((await told()).split(' ')[0]).toBe(total);
    expect((await told()).split(' ')[0]).toBe(total);
  });

  async function swap(): Promise<void> {
    await db.collection('fresh').insertMany(some('acme', 3));
    await db.collection('fresh').rename('things', { dropTarget: true });
  }

  it('is kept for the objects of one parent, wherever they move', async () => {
    const whose = { account: 'acme', id_group: 'a@acme' };
    const ofGroup = async () => {
      asked = [];
      const total = await totals.count('things', whose, options);
      return `${total} ${asked}`;
    };
    await things().insertMany(
      [...some('acme', 12), ...some('other', 1)].map((one) => ({ ...one, id_group: 'a@acme' })),
    );
    expect(await ofGroup()).toBe('12 count');
    await things().insertMany([
      { account: 'acme', id_group: 'a@acme' },
      { account: 'acme', id_group: 'b@acme' },
    ]);
    expect(await ofGroup()).toBe('13 read');
    await things().updateOne({ id_group: 'a@acme', account: 'acme' }, { $set: { id_group: 'b@acme' } });
    expect(await ofGroup()).toBe('12 read,count');
    await things().updateOne({ id_group: 'b@acme' }, { $set: { id_group: 'a@acme' } });
    expect(await ofGroup()).toBe('13 read,count');
    await things().updateOne({ id_group: 'a@acme', account: 'acme' }, { $unset: { id_group: 1 } });
    expect(await ofGroup()).toBe('12 read,count');
    await things().updateMany({ id_group: 'a@acme' }, { $set: { name: 'x' } });
    expect(await ofGroup()).toBe('12 read');
    await things().deleteOne({ id_group: 'b@acme' });
    expect(await ofGroup()).toBe('12 read,count');
  });

  it('is right after a transaction', async () => {
    const session = connection.getClient().startSession();
    await session.withTransaction(async () => {
      await things().insertMany(some('acme', 1500), { session });
      await things().insertOne({ account: 'other' }, { session });
    });
    await session.endSession();
    expect(await told()).toBe('1530 read,read');
  });

  it('is counted where the log cannot be read', async () => {
    await things().insertOne({ account: 'acme' });
    broken = true;
    expect(await told()).toBe('31 read,count');
    broken = false;
    expect(await told()).toBe('31 read');
  });

  it('holds what was acknowledged before, for all who ask at once', async () => {
    let acknowledged = 30;
    let begun = 30;
    const wrong: string[] = [];
    const create = async () => {
      for (let n = 0; n < 40; n++) {
        begun++;
        await things().insertOne({ account: 'acme' });
        acknowledged++;
      }
    };
    const ask = async () => {
      while (acknowledged < 30 + 4 * 40) {
        const least = acknowledged;
        const total = await totals.count('things', { account: 'acme' }, options);
        if (total < least || total > begun) wrong.push(`${least} <= ${total} <= ${begun}`);
      }
    };
    await Promise.all([create(), create(), create(), create(), ask(), ask(), ask()]);
    expect(wrong).toEqual([]);
    expect((await told()).split(' ')[0]).toBe('190');
  });
});

describe('the total of a list', () => {
  let services: [TestService, TestService];
  beforeAll(async () => {
    const uri = freshUri();
    services = [
      await startTestService({ uri, countCacheThreshold: 1 }),
      await startTestService({ uri, countCacheThreshold: 1 }),
    ];
    for (const { db } of services) while (!(await db.ready())) await new Promise((resolve) => setTimeout(resolve, 20));
  });
  afterAll(() => Promise.all(services.map((service) => service.stop())));

  it('counts on every instance what any has created or deleted', async () => {
    const [here, there] = [await services[0].client(), await services[1].client()];
    const fixtures = createFixtures(here);
    const id_group = await fixtures.group();
    const total = async () => {
      const replies = await Promise.all([here, there].map((api) => api.get('/devices/?max=1')));
      return replies.map(({ body }) => body.total_documents).join();
    };
    const devices: string[] = [];
    for (let n = 1; n <= 8; n++) {
      devices.push(await fixtures.device({ id_group }));
      expect(await total()).toBe(`${n},${n}`);
    }
    for (let n = 7; n >= 5; n--) {
      await there.delete(pathOf('devices', devices.pop() ?? ''));
      expect(await total()).toBe(`${n},${n}`);
    }
    await Promise.all(Array.from({ length: 10 }, () => fixtures.device({ id_group })));
    expect(await total()).toBe('15,15');
    await here.delete(pathOf('groups', id_group));
    expect(await total()).toBe('0,0');
  });
});
