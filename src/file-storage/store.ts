import mongoose, { type mongo } from 'mongoose';
import type { Collection, Database } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { findOne } from '../db/raw-find.js';
import { AppError } from '../errors.js';
import type { OperationContext } from '../objects/context.js';
import type { Bson } from '../objects/page.js';
import { deleteRecorded } from '../objects/tree/tombstones.js';
import { formatLastChange } from '../objects/write/last-change.js';
import { filestore } from '../resources/index.js';
import type { Values } from '../schema/fields.js';

const { BSON } = mongoose.mongo;
const filestores = (db: Database): Collection<LinkedStorage & { _id: Id }> => db.collection(filestore.plural);

/** Identifies a linked storage. */
export interface StoragePlace {
  account: string;
  provider: string;
  username: string;
}

const keyFilter = ({ account, provider, username }: StoragePlace) => ({ account, provider, username });

/** Encrypted settings, and the id of the key they are encrypted under. */
export interface Sealed {
  sealed: mongo.Binary;
  key_id: string;
}

/** A linked storage as it is stored (reference/file-storage.md#encryption). */
export interface LinkedStorage extends StoragePlace, Sealed {
  /** Changes every time the storage is linked, which ends the links to its files. */
  link: string;
}

/**
 * Links a storage, replacing the one linked before. @param changed names of the settings that differ from its own
 * @returns true if there was none
 */
export async function linkStorage(
  { store: { db }, user, now, request_id }: OperationContext,
  place: StoragePlace,
  { sealed, key_id }: Sealed,
  changed: readonly string[],
): Promise<boolean> {
  const { upsertedCount } = await filestores(db).updateOne(
    keyFilter(place),
    {
      $set: {
        sealed,
        key_id,
        link: String(db.newId()),
        updater: user,
        updated_at: now,
        last_request_id: request_id,
        last_change: formatLastChange({ user, request_id, changed }),
      },
      $setOnInsert: { _id: db.newId(), owner: user, created_at: now },
    },
    { upsert: true },
  );
  return upsertedCount === 1;
}

/** @returns undefined if there is none */
export async function findStorage(db: Database, place: StoragePlace): Promise<LinkedStorage | undefined> {
  return findOne(filestores(db), keyFilter(place));
}

/** @throws AppError notFound (4041) */
export async function unlinkStorage(ctx: OperationContext, place: StoragePlace): Promise<void> {
  const { provider, username } = place;
  const document = await findOne(filestores(ctx.store.db), keyFilter(place), { projection: { _id: 1 } });
  const subject = document && {
    object: document._id,
    resource: 'storage',
    id_developer: `${provider}/${username}`,
    data: { provider, username },
  };
  if (subject === undefined || !(await deleteRecorded(ctx, filestore.plural, subject))) throw new AppError('notFound');
}

/** Encodes plain values for the list serializer, which reads BSON. */
export function toBson(values: Values): Bson {
  return BSON.serialize(values);
}
