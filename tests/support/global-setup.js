import { MongoMemoryReplSet } from 'mongodb-memory-server';
import { findMongod } from '../../dist/src/store/mongod-binary.js';

/** One real mongod for the whole run, a replica set of one; each test file uses databases of its own. */
export default async function setUp() {
  const { path, version } = await findMongod({ env: process.env, say: (line) => console.error(line) });
  const mongod = await MongoMemoryReplSet.create({
    binary: { systemBinary: path, version },
    replSet: { count: 1, storageEngine: 'wiredTiger' },
    instanceOpts: [{ launchTimeout: 60_000 }],
  });
  process.env.TEST_MONGODB_URI = mongod.getUri();
  globalThis.stopTestMongod = () => mongod.stop();
}
