import { MongoMemoryReplSet } from 'mongodb-memory-server';
import { findMongod } from '../../src/store/mongod-binary.js';

/** A throw-away database, a replica set of one, so that transactions work. `uri` names no database. */
export async function startTestMongod(): Promise<{ uri: string; stop(): Promise<void> }> {
  const { path, version } = await findMongod({ env: process.env, say: (line) => console.error(line) });
  const replicaSet = await MongoMemoryReplSet.create({
    binary: { systemBinary: path, version },
    replSet: { count: 1, storageEngine: 'wiredTiger' },
    instanceOpts: [{ launchTimeout: 60_000 }],
  });
  return {
    uri: replicaSet.getUri(),
    stop: async () => {
      await replicaSet.stop();
    },
  };
}
