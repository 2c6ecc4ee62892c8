import type { mongo } from 'mongoose';
import { createBatcher } from '../../db/batching/batcher.js';
import type { Database } from '../../db/database.js';
import { retryOnce } from '../../db/driver-errors.js';
import type { Id } from '../../db/ids.js';
import { findMany } from '../../db/raw-find.js';
import { AppError } from '../../errors.js';
import type { OperationContext } from '../../objects/context.js';
import { connection as connectionType } from '../../resources/index.js';
import { reasons } from '../connection/reasons.js';
import type { BrokerDeps } from './broker-deps.js';
import type { Session } from './session.js';

/** A connection that has logged in, as lists show it. */
interface StoredConnection {
  _id: Id;
  account: string;
  client_id: string;
  device?: string;
  address: string;
  /** Epoch seconds. */
  connected_at: number;
  messages: number;
  drops: number;
  /** Names the connection: a later one may have its client id. */
  connection: string;
  instance: string;
  /** Its instance is to close it. */
  is_ending?: true;
}

interface ListChange {
  account: string;
  write: mongo.AnyBulkWriteOperation<StoredConnection>;
}

const max_batch_size = 1000;
/** Counts are stored every so many refreshes, at most this many at once. */
const refreshes_per_count = 5;
const max_counted = 2000;

const connectionsIn = (db: Database) => db.collection<StoredConnection>(connectionType.plural);

/** Keeps the list of the connections of all instances up to date. */
export type ConnectionList = ReturnType<typeof createConnectionList>;

/** Creates the list of a process. @param failed reports an error that no caller awaits */
export function createConnectionList({ db, peers, stopped }: BrokerDeps, failed: (error: unknown) => void) {
  const stored = new Map<Session, { messages: number; drops: number }>();
  const submit = createBatcher<ListChange>(
    async (changes) => {
      const writes = changes.map(({ write }) => write);
      // two instances may insert a client id at once
      await retryOnce(() => connectionsIn(db).bulkWrite(writes, { writeConcern: { w: 1 } }));
    },
    // one batch after the other, in the order of the changes
    { maxBatchSize: max_batch_size, maxInFlight: 1, accountOf: ({ account }) => account },
  );
  const keyOf = ({ account, client_id, connection }: Session) => ({ account, client_id, connection });
  let refreshes = 0;

  async function storeCounts(): Promise<void> {
    const changes: ListChange[] = [];
    for (const [session, counts] of stored) {
      const { messages, drops } = session.counts;
      if (counts.messages === messages && counts.drops === drops) continue;
      stored.set(session, { messages, drops });
      const update = { $set: { messages, drops } };
      changes.push({ account: session.account, write: { updateOne: { filter: keyOf(session), update } } });
      if (changes.length === max_counted) break;
    }
    await Promise.all(changes.map(submit));
  }

  return {
    /** Lists a connection until it has ended. @param now epoch seconds */
    add(session: Session, address: string, now: number): void {
      const { account, client_id, permissions, counts } = session;
      stored.set(session, { ...counts });
      const opened = {
        ...keyOf(session),
        ...(permissions.kind === 'device' && { device: permissions.device }),
        ...counts,
        address,
        connected_at: Math.floor(now),
        instance: peers.id,
      };
      const update = { $set: opened, $unset: { is_ending: 1 as const }, $setOnInsert: { _id: db.newId() } };
      submit({ account, write: { updateOne: { filter: { account, client_id }, update, upsert: true } } }).catch(failed);
      const remove = async () => {
        stored.delete(session);
        if (!stopped.aborted) await submit({ account, write: { deleteOne: { filter: keyOf(session) } } });
      };
      session.left.then(remove).catch(failed);
    },
    /** Stores what has been counted, and closes the connections that a client of the interface has ended. */
    async refresh(): Promise<void> {
      const query = { instance: peers.id, is_ending: true } as const;
      const found = await findMany(connectionsIn(db), query, { projection: { connection: 1 } });
      const ending = new Set(found.map(({ connection }) => connection));
      for (const session of stored.keys()) if (ending.has(session.connection)) session.end(reasons.administrative);
      if (++refreshes % refreshes_per_count === 0) await storeCounts();
    },
  };
}

/** Asks the instance of a connection to close it. @throws AppError notFound (4041) */
export async function endConnection({ store, account }: OperationContext, client_id: string): Promise<void> {
  const ending = { $set: { is_ending: true as const } };
  const { matchedCount } = await connectionsIn(store.db).updateOne({ account, client_id }, ending);
  if (matchedCount === 0) throw new AppError('notFound');
}

/** Deletes the connections of an instance that has ended. */
export async function removeConnections(db: Database, instance: string): Promise<void> {
  await connectionsIn(db).deleteMany({ instance });
}
