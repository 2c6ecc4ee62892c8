import mongoose from 'mongoose';
import { type Database, read_limit_ms, type StoredDocument } from '../db/database.js';
import { AppError } from '../errors.js';
import { filestore } from '../resources/index.js';
import type { Values } from '../schema/fields.js';
import type { OperationContext } from './context.js';
import type { Bson } from './page.js';

const { BSON } = mongoose.mongo;
const filestores = (db: Database) => db.collection(filestore.plural);

/** Whose storage it is. */
export interface StoragePlace {
  account: string;
  provider: string;
  username: string;
}

const keyFilter = ({ account, provider, username }: StoragePlace) => ({ account, provider, username });

/** Encrypted settings, and the id of the key they are encrypted under. */
export interface Sealed {
  sealed: Buffer;
  key_id: string;
}

/** A linked storage as it is kept (contract 10). */
export interface LinkedStorage extends StoragePlace, Sealed {
  /** Changes with every linking. */
  link: string;
}

/** Links a storage in place of the one that was. @returns whether there was none. `now` in epoch seconds */
export async function linkStorage(
  { store: { db }, user, now, request_id }: OperationContext,
  place: StoragePlace,
  { sealed, key_id }: Sealed,
): Promise<boolean> {
  const { upsertedCount } = await filestores(db).updateOne(
    keyFilter(place),
    {
      $set: { sealed, key_id, link: String(db.newId()), updater: user, updated_at: now, last_request_id: request_id },
      $setOnInsert: { _id: db.newId(), owner: user, created_at: now },
    },
    { upsert: true },
  );
  return upsertedCount === 1;
}

/** @returns undefined if there is none */
export async function findStorage(db: Database, place: StoragePlace): Promise<LinkedStorage | undefined> {
  const found = await filestores(db).findOne(keyFilter(place), { promoteBuffers: true, maxTimeMS: read_limit_ms });
  return found === null ? undefined : linked(found);
}

/** @throws AppError notFound (4041) */
export async function unlinkStorage(db: Database, place: StoragePlace): Promise<void> {
  const { deletedCount } = await filestores(db).deleteOne(keyFilter(place));
  if (deletedCount === 0) throw new AppError('notFound');
}

/** Linked storages whose settings are encrypted under another key than this. */
export async function* encryptedUnderOtherKey(db: Database, key_id: string): AsyncGenerator<LinkedStorage> {
  const found = filestores(db).find({ key_id: { $ne: key_id } }, { promoteBuffers: true, maxTimeMS: read_limit_ms });
  for await (const one of found) yield linked(one);
}

/** Puts the same settings under another key in place. @returns false if they were changed meanwhile */
export async function resealStorage(db: Database, stored: LinkedStorage, { sealed, key_id }: Sealed): Promise<boolean> {
  const { matchedCount } = await filestores(db).updateOne(
    { ...keyFilter(stored), link: stored.link },
    { $set: { sealed, key_id } },
  );
  return matchedCount === 1;
}

function linked({ account, provider, username, link, sealed, key_id }: StoredDocument): LinkedStorage {
  return {
    account: String(account),
    provider: String(provider),
    username: String(username),
    link: String(link),
    sealed: sealed as Buffer,
    key_id: String(key_id),
  };
}

/** Encodes plain values as the serializer takes them. */
export function toBson(values: Values): Bson {
  return BSON.serialize(values);
}
