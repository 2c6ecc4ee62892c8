import { MongoMemoryReplSet } from 'mongodb-memory-server';
import mongoose, { type mongo } from 'mongoose';
import { findMongod } from '../../src/mongod/binary.js';

export interface Mongod {
  pid: number;
  uri(database: string): string;
  /** A connection with the write concern `w: 1`, for test data. */
  db(database: string): mongo.Db;
  stop(): Promise<void>;
  /** Ends it with SIGKILL, unless it was stopped. */
  kill(): void;
}

/** Starts a replica set of one member with its files in `folder`. */
export async function startMongod(folder: string, print: (line: string) => void): Promise<Mongod> {
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
    uri: (database) => replicaSet.getUri(database),
    db: (database) => client.db(database),
    async stop() {
      await client.close();
      await replicaSet.stop({ doCleanup: false });
    },
    kill: () => void child.kill('SIGKILL'),
  };
}
