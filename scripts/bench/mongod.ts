import { MongoMemoryReplSet } from 'mongodb-memory-server';
import mongoose from 'mongoose';
import { findMongod } from '../../src/mongod/binary.js';

export type Mongod = Awaited<ReturnType<typeof startMongod>>;

/** Starts a replica set of one member with its files in `folder`. */
export async function startMongod(folder: string, print: (line: string) => void) {
  const { path, version } = await findMongod({ env: process.env, print });
  const replicaSet = await MongoMemoryReplSet.create({
    binary: { systemBinary: path, version },
    replSet: { count: 1, storageEngine: 'wiredTiger' },
    instanceOpts: [{ launchTimeout: 60_000, dbPath: folder }],
  });
  const child = replicaSet.servers[0]?.instanceInfo?.instance.mongodProcess;
  if (child?.pid === undefined) throw new Error('mongod was not started');
  const { pid } = child;
  const client = await mongoose.mongo.MongoClient.connect(replicaSet.getUri(), { writeConcern: { w: 1 } });
  return {
    pid,
    uri: (database: string) => replicaSet.getUri(database),
    /** A connection with the write concern `w: 1`, for test data. */
    db: (database: string) => client.db(database),
    async stop(): Promise<void> {
      await client.close();
      await replicaSet.stop({ doCleanup: false });
    },
    /** Ends it with SIGKILL, unless it was stopped. */
    kill: () => void child.kill('SIGKILL'),
  };
}
