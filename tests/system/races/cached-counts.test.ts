import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { type CountCache, createCountCache } from '../../../src/db/cached-counts.js';
import { createFixtures, pathOf, startTestService, type TestService } from '../../support/service.js';

type Db = mongoose.mongo.Db;
type BsonDocument = mongoose.mongo.BSON.Document;

function freshUri(): string {
  const uri = new URL(process.env.TEST_MONGODB_URI ?? '');
  uri.pathname = `/test-${randomUUID()}`;
  return uri.href;
}

const options = { maxTimeMS: 4000 };

describe('a cached count', () => {
  let connection: mongoose.Connection;
  let db: Db;
  let counts: CountCache;
  /** Commands sent to the database: `some` counts up to the threshold, `count` counts, `read` reads the change stream. */
  let commands: string[] = [];
  let broken = false;

  const command = async (request: BsonDocument) => {
    if ('count' in request) commands.push('some');
    if ('aggregate' in request) commands.push('$changeStream' in request.pipeline[0] ? 'read' : 'count');
    if (broken && commands.at(-1) === 'read') throw new Error('the change stream cannot be read');
    return db.command(request, { promoteLongs: false });
  };
  const countAndCommands = async (account = 'acme') => {
    commands = [];
    const total = await counts.count('things', { account }, options);
    return `${total} ${commands}`;
  };
  const things = () => db.collection<BsonDocument>('things');
  const documents = (account: string, count: number) => Array.from({ length: count }, () => ({ account }));

  beforeAll(async () => {
    const uri = freshUri();
    connection = await mongoose.createConnection(uri, { writeConcern: { w: 'majority' } }).asPromise();
    db = connection.getClient().db(new URL(uri).pathname.slice(1));
  });
  afterAll(() => connection.close());
  beforeEach(async () => {
    broken = false;
    await things().deleteMany({});
    await things().insertMany([...documents('acme', 30), ...documents('other', 5)]);
    counts = createCountCache(command, 10, 10_000);
    expect(await countAndCommands()).toBe('30 some,count');
  });

  it('is not recomputed while nothing changes', async () => {
    expect(await countAndCommands()).toBe('30 read');
    await things().updateMany({}, { $set: { name: 'x' } });
    await db.collection('others').deleteMany({});
    await db.collection('others').insertOne({ account: 'acme' });
    expect(await countAndCommands()).toBe('30 read');
  });

  it('is computed each time if it is small', async () => {
    expect(await countAndCommands('other')).toBe('5 some');
    expect(await countAndCommands('other')).toBe('5 some');
  });

  it('is kept, small as it is, if many objects are examined', async () => {
    const scope = { account: 'acme', name: { $eq: 'x' } };
    const totals: number[] = [];
    commands = [];
    for (let n = 0; n < 2; n++) totals.push(await counts.count('things', scope, { ...options, examined: 10 }));
    expect([totals, commands]).toEqual([
      [0, 0],
      ['count', 'read'],
    ]);
  });

  it('follows inserts, also more than one reply of the change stream holds', async () => {
    await things().insertMany([...documents('acme', 2345), ...documents('other', 7)]);
    expect(await countAndCommands()).toBe('2375 read,read,read');
    await things().insertMany(documents('acme', 1));
    expect(await countAndCommands()).toBe('2376 read');
  });

  it.each<[string, string, () => Promise<unknown>]>([
    ['a delete', '29', () => things().deleteOne({ account: 'acme' })],
    ['a delete in another account', '30', () => things().deleteOne({ account: 'other' })],
    ['documents moving to this account', '35', () => things().updateMany({}, [{ $set: { account: 'acme' } }])],
    ['all documents losing their account', '0', () => things().updateMany({}, { $unset: { account: 1 } })],
    ['a replacement', '29', () => things().replaceOne({ account: 'acme' }, { account: 'other' })],
    [
      'an upsert that inserts',
      '31',
      () => things().updateOne({ name: 'y' }, { $set: { account: 'acme' } }, { upsert: true }),
    ],
    ['a drop of the collection', '0', () => things().drop()],
    ['a rename of another collection to this name', '3', () => replaceCollection()],
  ])('is right after %s', async (_, total, change) => {
    await change();
    expect((await countAndCommands()).split(' ')[0]).toBe(total);
    expect((await countAndCommands()).split(' ')[0]).toBe(total);
  });

  async function replaceCollection(): Promise<void> {
    await db.collection('fresh').insertMany(documents('acme', 3));
    await db.collection('fresh').rename('things', { dropTarget: true });
  }

  it('follows objects that move between parents', async () => {
    const scope = { account: 'acme', id_group: 'a@acme' };
    const countGroup = async () => {
      commands = [];
      const total = await counts.count('things', scope, options);
      return `${total} ${commands}`;
    };
    await things().insertMany(
      [...documents('acme', 12), ...documents('other', 1)].map((document) => ({ ...document, id_group: 'a@acme' })),
    );
    expect(await countGroup()).toBe('12 some,count');
    await things().insertMany([
      { account: 'acme', id_group: 'a@acme' },
      { account: 'acme', id_group: 'b@acme' },
    ]);
    expect(await countGroup()).toBe('13 read');
    await things().updateOne({ id_group: 'a@acme', account: 'acme' }, { $set: { id_group: 'b@acme' } });
    expect(await countGroup()).toBe('12 read,count');
    await things().updateOne({ id_group: 'b@acme' }, { $set: { id_group: 'a@acme' } });
    expect(await countGroup()).toBe('13 read,count');
    await things().updateOne({ id_group: 'a@acme', account: 'acme' }, { $unset: { id_group: 1 } });
    expect(await countGroup()).toBe('12 read,count');
    await things().updateMany({ id_group: 'a@acme' }, { $set: { name: 'x' } });
    expect(await countGroup()).toBe('12 read');
    await things().deleteOne({ id_group: 'b@acme' });
    expect(await countGroup()).toBe('12 read,count');
  });

  it('follows single elements of an array, and its length', async () => {
    const countBelow = async (above: string) => {
      commands = [];
      const total = await counts.count('things', { account: 'acme', ancestors: { $eq: above } }, options);
      return `${total} ${commands}`;
    };
    // the database reports a change of an element only if the rest of the document is longer
    const long = { name: 'x'.repeat(500), ancestors: ['a', 'b', 'c'] };
    await things().insertMany(documents('acme', 12).map((document) => ({ ...document, ...long })));
    expect([await countBelow('b'), await countBelow('c')]).toEqual(['12 some,count', '12 some,count']);
    const move = (ancestors: unknown) =>
      things().updateOne({ ancestors: { $all: ['b', 'c'] } }, [{ $set: { ancestors } }]);
    await move(['a', 'd', 'c']);
    expect([await countBelow('b'), await countBelow('c')]).toEqual(['11 read,count', '12 read,count']);
    await move({ $slice: ['$ancestors', 2] });
    expect([await countBelow('b'), await countBelow('c')]).toEqual(['11 read,count', '11 read,count']);
    await things().insertOne({ account: 'acme', ancestors: ['b'] });
    expect([await countBelow('b'), await countBelow('c')]).toEqual(['12 read', '11 read']);
  });

  it('is estimated by what is cached', async () => {
    await things().insertMany(documents('acme', 5));
    commands = [];
    expect(await counts.estimate('things', { account: 'acme' }, options)).toBe(30);
    expect(await counts.estimate('things', { account: 'other' }, options)).toBe(5);
    expect(commands).toEqual(['some']);
  });

  it('is right after a transaction', async () => {
    const session = connection.getClient().startSession();
    await session.withTransaction(async () => {
      await things().insertMany(documents('acme', 1500), { session });
      await things().insertOne({ account: 'other' }, { session });
    });
    await session.endSession();
    expect(await countAndCommands()).toBe('1530 read,read');
  });

  it('is recomputed if the change stream cannot be read', async () => {
    await things().insertOne({ account: 'acme' });
    broken = true;
    expect(await countAndCommands()).toBe('31 read,count');
    broken = false;
    expect(await countAndCommands()).toBe('31 read');
  });

  it('includes all acknowledged writes, for concurrent readers', async () => {
    let acknowledged = 30;
    let started = 30;
    const violations: string[] = [];
    const create = async () => {
      for (let n = 0; n < 40; n++) {
        started++;
        await things().insertOne({ account: 'acme' });
        acknowledged++;
      }
    };
    const readTotals = async () => {
      while (acknowledged < 30 + 4 * 40) {
        const min = acknowledged;
        const total = await counts.count('things', { account: 'acme' }, options);
        if (total < min || total > started) violations.push(`${min} <= ${total} <= ${started}`);
      }
    };
    await Promise.all([create(), create(), create(), create(), readTotals(), readTotals(), readTotals()]);
    expect(violations).toEqual([]);
    expect((await countAndCommands()).split(' ')[0]).toBe('190');
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
    for (const { db } of services)
      while (!(await db.isReady())) await new Promise((resolve) => setTimeout(resolve, 20));
  });
  afterAll(() => Promise.all(services.map((service) => service.stop())));

  it('includes creates and deletes of every instance', async () => {
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
