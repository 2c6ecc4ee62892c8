import mongoose from 'mongoose';
import './closed-connections.js';
import { readDataVersion } from './data-version.js';
import { checkAddress, type DatabaseAccess } from './database.js';
import { storedCommandOf, storedNameOf } from './former-versions.js';

export type ToolConnection = Awaited<ReturnType<typeof connectTool>>;

/** Connects to a database for tools, whose commands may take as long as they need. @throws StartError for a malformed address, and data of a later version; Error of the driver without a primary */
export async function connectTool(uri: string) {
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
  /** The database for functions of the service. */
  const access: DatabaseAccess = {
    collection: (plural) => db.collection(storedNameOf(plural)),
    command: (command) => db.command(storedCommandOf(command), { promoteLongs: false }),
  };
  return { client, db, access, close: () => client.close() };
}
