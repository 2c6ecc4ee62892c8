import { MongoMemoryReplSet } from 'mongodb-memory-server';
import mongoose, { type mongo } from 'mongoose';
import { findMongod } from '../../src/store/mongod-binary.js';

export interface Mongod {
  /** Of the database that service and floor share. */
  uri: string;
  pid: number;
  db: mongo.Db;
  stop(): Promise<void>;
}

/** A replica set of one with its files in `folder`, and a connection to it that waits for nothing but the write itself. */
export async function startMongod(folder: string, say: (line: string) => void): Promise<Mongod> {
  const { path, version } = await findMongod({ env: process.env, say });
  const set = await MongoMemoryReplSet.create({
    binary: { systemBinary: path, version },
    replSet: { count: 1, storageEngine: 'wiredTiger' },
    instanceOpts: [{ launchTimeout: 60_000, dbPath: folder }],
  });
  const uri = set.getUri('bench');
  const pid = set.servers[0]?.instanceInfo?.instance.mongodProcess?.pid ?? 0;
  const client = await mongoose.mongo.MongoClient.connect(uri, { writeConcern: { w: 1 } });
  return {
    uri,
    pid,
    db: client.db(),
    async stop() {
      await client.close();
      await set.stop({ doCleanup: false });
    },
  };
}
