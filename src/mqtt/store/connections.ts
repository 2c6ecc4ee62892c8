import type { mongo } from 'mongoose';
import { type Database, read_limit_ms } from '../../db/database.js';
import { retryOnce } from '../../db/driver-errors.js';
import type { Id } from '../../db/ids.js';
import { AppError } from '../../errors.js';
import type { OperationContext } from '../../objects/context.js';
import { connection } from '../../resources/index.js';

/** A connection that has logged in, as lists show it. */
export interface StoredConnection {
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

type ConnectionKey = Pick<StoredConnection, 'account' | 'client_id' | 'connection'>;

/** A change of the list of connections. */
export type ConnectionChange =
  | { kind: 'opened'; opened: StoredConnection }
  | { kind: 'counted'; key: ConnectionKey; counts: Pick<StoredConnection, 'messages' | 'drops'> }
  | { kind: 'closed'; key: ConnectionKey };

const connectionsIn = (db: Database) => db.collection<StoredConnection & { _id: Id }>(connection.plural);

/** Writes changes in their order. */
export async function writeConnections(db: Database, changes: readonly ConnectionChange[]): Promise<void> {
  const commands = changes.map((change): mongo.AnyBulkWriteOperation<StoredConnection & { _id: Id }> => {
    if (change.kind === 'closed') return { deleteOne: { filter: change.key } };
    if (change.kind === 'counted') return { updateOne: { filter: change.key, update: { $set: change.counts } } };
    const { account, client_id } = change.opened;
    const update = { $set: change.opened, $unset: { is_ending: 1 }, $setOnInsert: { _id: db.newId() } };
    return {
      updateOne: {
        filter: { account, client_id },
        update: update as mongo.UpdateFilter<StoredConnection>,
        upsert: true,
      },
    };
  });
  // two instances may insert a client id at once
  await retryOnce(() => connectionsIn(db).bulkWrite(commands, { writeConcern: { w: 1 } }));
}

/** Asks the instance of a connection to close it. @throws AppError notFound (4041) */
export async function endConnection({ store, account }: OperationContext, client_id: string): Promise<void> {
  const { matchedCount } = await connectionsIn(store.db).updateOne(
    { account, client_id },
    { $set: { is_ending: true } },
  );
  if (matchedCount === 0) throw new AppError('notFound');
}

/** Finds the connections of an instance that it is to close. */
export async function findEnding(db: Database, instance: string): Promise<string[]> {
  const options = { projection: { connection: 1 }, maxTimeMS: read_limit_ms };
  const ending = await connectionsIn(db).find({ instance, is_ending: true }, options).toArray();
  return ending.map(({ connection: name }) => name);
}

/** Deletes the connections of an instance that has ended. */
export async function removeConnections(db: Database, instance: string): Promise<void> {
  await connectionsIn(db).deleteMany({ instance });
}
