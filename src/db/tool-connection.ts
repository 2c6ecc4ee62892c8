import mongoose, { type mongo } from 'mongoose';
import { readDataVersion } from './data-version.js';
import { checkAddress, type DatabaseAccess } from './database.js';
import { storedCommandOf, storedNameOf } from './former-versions.js';

/** A connection for tools, whose commands may take as long as they need. */
export interface ToolConnection {
  client: mongo.MongoClient;
  db: mongo.Db;
  /** The database for functions of the service. */
  access: DatabaseAccess;
  close(): Promise<void>;
}

/** Connects to a database. @throws StartError for a malformed address, and data of a later version; Error of the driver without a primary */
export async function connectTool(uri: string): Promise<ToolConnection> {
  checkAddress(uri);
  const client = new mongoose.mongo.MongoClient(uri, {
    serverSelectionTimeoutMS: 10_000,
    connectTimeoutMS: 10_000,
    retryWrites: true,
    writeConcern: { w: 'majority', journal: true },
    appName: 'device-platform tools',
  });
  await client.connect();
  const db = client.db();
  await readDataVersion(db).catch(async (error: unknown) => {
    await client.close();
    throw error;
  });
  const access: DatabaseAccess = {
    collection: (plural) => db.collection(storedNameOf(plural)),
    command: (command) => db.command(storedCommandOf(command), { promoteLongs: false }),
  };
  return { client, db, access, close: () => client.close() };
}
