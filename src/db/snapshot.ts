import mongoose, { type mongo } from 'mongoose';
import { StartError } from '../errors.js';
import { waitForOperationTime } from './change-stream.js';
import { isSnapshotLost } from './driver-errors.js';
import { storedNameOf } from './former-versions.js';
import { readLargeBatches } from './raw-find.js';

const { BSON, MongoServerError } = mongoose.mongo;

/** Collections about running processes: neither backed up nor restored. */
export const processCollections: ReadonlySet<string> = new Set([
  'event_log',
  'instances',
  storedNameOf('leases'),
  'leases',
  'maintenance',
  'mqtt_connections',
  'mqtt_instances',
  'mqtt_messages',
  'mqtt_wills',
]);

export interface SnapshotCollection {
  name: string;
  /** Nearly. */
  documents: number;
  /** Options and indexes as BSON, for `createFromSpec`. */
  spec: Uint8Array;
}

const reply_documents = 20_000;
const window_margin_s = 600;
const window_period_ms = 60_000;

/**
 * Opens a snapshot that includes every write acknowledged before (docs/operations.md#backup): its time is that of a write
 * that a majority has acknowledged.
 */
export async function openSnapshot({ client, db }: { client: mongo.MongoClient; db: mongo.Db }) {
  const collections = await describeCollections(db);
  const window = await extendWindow(client.db('admin'));
  const note = { q: { _id: 'backup' }, u: [{ $set: { at: '$$NOW' } }], upsert: true };
  const write = { update: 'maintenance', updates: [note], writeConcern: { w: 'majority', j: true } };
  const atClusterTime = await waitForOperationTime(() => db.command(write));
  return {
    collections,
    /** Reads a collection in replies of up to 16 MiB. @throws StartError if the database no longer keeps the moment */
    async *read(collection: string): AsyncGenerator<readonly Uint8Array[]> {
      const query = { filter: {}, readConcern: { level: 'snapshot', atClusterTime } } as const;
      try {
        yield* readLargeBatches(db.collection(collection), query, reply_documents);
      } catch (error) {
        throw explainLostSnapshot(error, window.isExtended);
      }
    },
    close: () => window.restore(),
  };
}

/** Describes all collections but those about running processes. */
async function describeCollections(db: mongo.Db): Promise<SnapshotCollection[]> {
  const listed = await db.listCollections({ type: 'collection' }, { nameOnly: false }).toArray();
  const described: SnapshotCollection[] = [];
  for (const { name, options } of listed) {
    if (processCollections.has(name) || name.startsWith('system.')) continue;
    const indexes = await db.collection(name).listIndexes().toArray();
    const documents = await db.collection(name).estimatedDocumentCount();
    described.push({ name, documents, spec: BSON.serialize({ options, indexes }) });
  }
  return described.sort((a, b) => (a.name < b.name ? -1 : 1));
}

/**
 * Makes the database keep old versions for as long as the backup takes, which by default it does for 5 minutes. A minute at
 * a time, so that little remains if this process is killed. Other users than the embedded database's may not do so.
 */
async function extendWindow(admin: mongo.Db): Promise<{ isExtended: boolean; restore(): Promise<void> }> {
  const parameter = 'minSnapshotHistoryWindowInSeconds';
  const set = (seconds: number) => admin.command({ setParameter: 1, [parameter]: seconds });
  const startedAt = performance.now();
  const extend = () => set(Math.ceil((performance.now() - startedAt) / 1000) + window_margin_s);
  try {
    const { [parameter]: initial } = await admin.command({ getParameter: 1, [parameter]: 1 });
    await extend();
    const timer = setInterval(() => void extend().catch(() => undefined), window_period_ms).unref();
    return {
      isExtended: true,
      async restore() {
        clearInterval(timer);
        await set(initial);
      },
    };
  } catch (error) {
    if (!(error instanceof MongoServerError)) throw error;
    return { isExtended: false, restore: async () => undefined };
  }
}

function explainLostSnapshot(error: unknown, isExtended: boolean): unknown {
  // also a read from before a change of the collection's indexes
  if (!isSnapshotLost(error)) return error;
  const hint = isExtended
    ? 'indexes or collections were changed meanwhile; run the backup again'
    : 'raise minSnapshotHistoryWindowInSeconds of the server, or give the user the role hostManager';
  return new StartError(`the database no longer keeps the moment of this backup: ${hint}`);
}
