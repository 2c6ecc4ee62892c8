import { MongoMemoryReplSet } from 'mongodb-memory-server';
import mongoose, { type mongo } from 'mongoose';
import { findMongod } from '../../src/mongod/binary.js';

export interface Mongod {
  pid: number;
  uri(database: string): string;
  /** A connection whose writes wait for nothing but their being done. */
  db(database: string): mongo.Db;
  stop(): Promise<void>;
}

/** A replica set of one with its files in `folder`. */
export async function startMongod(folder: string, say: (line: string) => void): Promise<Mongod> {
  const { path, version } = await findMongod({ env: process.env, print: say });
  const set = await MongoMemoryReplSet.create({
    binary: { systemBinary: path, version },
    replSet: { count: 1, storageEngine: 'wiredTiger' },
    instanceOpts: [{ launchTimeout: 60_000, dbPath: folder }],
  });
  const pid = set.servers[0]?.instanceInfo?.instance.mongodProcess?.pid ?? 0;
  const client = await mongoose.mongo.MongoClient.connect(set.getUri(), { writeConcern: { w: 1 } });
  return {
    pid,
    uri: (database) => set.getUri(database),
    db: (database) => client.db(database),
    async stop() {
      await client.close();
      await set.stop({ doCleanup: false });
    },
  };
}
