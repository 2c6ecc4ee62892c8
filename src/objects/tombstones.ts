import type { mongo } from 'mongoose';
import type { Collection, Database } from '../db/database.js';
import type { Id } from '../db/ids.js';
import type { OperationContext } from './context.js';

/**
 * Record of a deletion, written before it: the database's log of changes names a deleted document by `_id` alone. Records of
 * deletions that did not take place are withdrawn, or stay without effect.
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
  /** The object that a request named, not one below it. */
  root: boolean;
  /** Written in the transaction that deletes the object: no other request has deleted it. */
  isFinal?: boolean;
  at: Date;
}

/** The deleted object, and who deleted it. */
export type Deletion = Omit<Tombstone, '_id' | 'at' | 'isFinal'>;

/** The tombstones of all accounts. */
export function tombstonesOf(db: Database): Collection<Tombstone> {
  return db.collection('tombstones');
}

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

/** Deletes one document that nothing depends on, with its tombstone. @returns false if it was gone already */
export async function deleteRecorded(
  { store: { db }, account, user, request_id }: OperationContext,
  plural: string,
  subject: Pick<Deletion, 'object' | 'resource' | 'id_developer' | 'ancestors' | 'device' | 'data'>,
): Promise<boolean> {
  const removal = db.newId();
  await writeTombstones(db, removal, [{ ...subject, account, user, request_id, root: true }]);
  const { deletedCount } = await db.collection(plural).deleteOne({ _id: subject.object });
  if (deletedCount === 0) await withdrawTombstones(db, removal, [subject.object]);
  return deletedCount === 1;
}
