import { randomUUID } from 'node:crypto';
import mongoose, { type mongo } from 'mongoose';

/** A database that one service of a test has for itself. */
export interface TestDatabase {
  uri: string;
  /** Notes what a service finds in it when it is ready. */
  markReady(): Promise<void>;
  /** Gives it back once everything that uses it has ended. */
  release(): Promise<void>;
}

/** Deleting more documents costs more than a new database. */
const max_documents = 5000;

/** Summarizes what a service does not store again: further indexes, views and the version of the data. */
async function describeStructure(db: mongo.Db): Promise<string> {
  const { indexes, collections, views } = await db.command({ dbStats: 1 });
  return JSON.stringify([indexes - collections, views, await db.collection('migrations').find().toArray()]);
}

async function deleteDocuments(db: mongo.Db): Promise<void> {
  const collections = await db.listCollections({ type: 'collection' }, { nameOnly: true }).toArray();
  const names = collections.map(({ name }) => name).filter((name) => !/^(system\.|migrations$)/.test(name));
  await Promise.all(
    names.map(async (name) => {
      await db.collection(name).deleteMany({});
      await db.command({ planCacheClear: name });
    }),
  );
}

/**
 * Takes an empty database: one of a service that has ended, or a new one. To build the 240 indexes of a new one costs mongod
 * ten times as much as starting the service with them.
 */
export async function takeDatabase(): Promise<TestDatabase> {
  const address = new URL(process.env.TEST_MONGODB_URI ?? '');
  const client = await mongoose.mongo.MongoClient.connect(address.href, { maxPoolSize: 4 });
  const unused = client.db('unused-test-databases').collection<{ _id: string }>('names');
  const name = (await unused.findOneAndDelete({}))?._id ?? `test-${randomUUID()}`;
  const db = client.db(name);
  let initial: string | undefined;
  address.pathname = `/${name}`;
  return {
    uri: address.href,
    async markReady() {
      initial = await describeStructure(db);
    },
    async release() {
      const { objects } = await db.stats();
      if (objects <= max_documents && initial === (await describeStructure(db))) {
        await deleteDocuments(db);
        await unused.insertOne({ _id: name });
      } else await db.dropDatabase();
      await client.close();
    },
  };
}
