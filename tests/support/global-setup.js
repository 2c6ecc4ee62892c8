import { MongoMemoryReplSet } from 'mongodb-memory-server';
import { findMongod } from '../../dist/src/mongod/binary.js';
import { findStorageServers } from './storage/install.js';

/** One real mongod for the whole run, a replica set of one; each test file uses databases of its own. */
export default async function setUp() {
  const found = findStorageServers({ env: process.env, print: (line) => console.error(line) });
  const { path, version } = await findMongod({ env: process.env, print: (line) => console.error(line) });
  const mongod = await MongoMemoryReplSet.create({
    binary: { systemBinary: path, version },
    replSet: { count: 1, storageEngine: 'wiredTiger' },
    instanceOpts: [{ launchTimeout: 60_000 }],
  });
  const servers = await found;
  process.env.TEST_MONGODB_URI = mongod.getUri();
  process.env.TEST_STORAGE_SERVERS = JSON.stringify(servers);
  globalThis.stopTestMongod = async () => {
    await mongod.stop();
    // after jest's summary, which only counts what was skipped
    for (const [name, { missing }] of Object.entries(servers))
      if (missing !== undefined) console.error(`not installed, skipped: ${name} (${missing})`);
  };
}
