import type { mongo } from 'mongoose';
import type { Database, DatabaseAccess } from '../../db/database.js';
import type { Id } from '../../db/ids.js';
import { withTransaction } from '../../db/transaction.js';
import type { OperationContext } from '../context.js';

/**
 * Record of a deletion: the database's log of changes names a deleted document by `_id` alone. That of an object which a request
 * named is written with its deletion. Those of objects below it are written before, and withdrawn if they are not deleted.
 */
export interface Tombstone {
  _id: { object: Id; removal: Id };
  object: Id;
  account: string;
  /** As in the types of events: `device`, `topic`. */
  resource: string;
  id_developer: string;
  /** Internal ids of the objects above it. */
  ancestors?: readonly Id[];
  /** The device of an object below one. */
  device?: Id;
  user?: string;
  request_id?: string;
  data?: object;
  /** Written in the transaction that deletes the object: no other request has deleted it. */
  isFinal?: boolean;
  at: Date;
}

/** The deleted object, and who deleted it. */
export type Deletion = Omit<Tombstone, '_id' | 'at' | 'isFinal'>;

/** The tombstones of all accounts. */
export const tombstonesOf = (db: DatabaseAccess) => db.collection<Tombstone>('tombstones');

/** Records deletions that belong to one removal; may be repeated. @param session the transaction that deletes the objects */
export async function writeTombstones(
  db: Database,
  removal: Id,
  deletions: readonly Deletion[],
  session?: mongo.ClientSession,
): Promise<void> {
  if (deletions.length === 0) return;
  const at = new Date();
  const writes = deletions.map((deletion) => ({
    updateOne: {
      filter: { _id: { object: deletion.object, removal } },
      update: { $setOnInsert: { ...deletion, at, ...(session && { isFinal: true }) } },
      upsert: true,
    },
  }));
  await tombstonesOf(db).bulkWrite(writes, { ordered: false, ...(session && { session }) });
}

/** Withdraws records of objects that were not deleted by this removal. */
export async function withdrawTombstones(db: Database, removal: Id, objects: readonly Id[]): Promise<void> {
  if (objects.length === 0) return;
  await tombstonesOf(db).deleteMany({ _id: { $in: objects.map((object) => ({ object, removal })) } });
}

/** For so long, transactions of others that have changed the object are waited for. */
const delete_limit_ms = 3000;

/**
 * Deletes the object that a request named, with its tombstone: of several requests that delete it at once, the one that did is
 * recorded. @param condition what else the object must match @returns false if nothing was deleted
 */
export async function deleteWithTombstone(
  db: Database,
  plural: string,
  removal: Id,
  deletion: Deletion,
  condition: object = {},
): Promise<boolean> {
  const collection = db.collection(plural);
  return withTransaction(collection, delete_limit_ms, async (session) => {
    // first, so that other writes of the object wait instead of ending the transaction
    const { deletedCount } = await collection.deleteOne({ _id: deletion.object, ...condition }, { session });
    if (deletedCount === 1) await writeTombstones(db, removal, [deletion], session);
    return deletedCount === 1;
  });
}

/** Deletes one document that nothing depends on, with its tombstone. @returns false if it was gone already */
export async function deleteRecorded(
  { store: { db }, account, user, request_id }: OperationContext,
  plural: string,
  subject: Pick<Deletion, 'object' | 'resource' | 'id_developer' | 'ancestors' | 'device' | 'data'>,
): Promise<boolean> {
  return deleteWithTombstone(db, plural, db.newId(), { ...subject, account, user, request_id });
}
