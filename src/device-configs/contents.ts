import { createHash } from 'node:crypto';
import type { mongo } from 'mongoose';
import type { Database } from '../db/database.js';
import { findMany, findOne, hasMatch } from '../db/raw-find.js';
import { AppError } from '../errors.js';
import { rootsOf } from '../objects/bulk/bulk-journal.js';
import type { OperationContext } from '../objects/context.js';
import { deviceconfig } from '../resources/index.js';

/** The content of a file that was given to many devices, stored once; `shared_content` of their files names it. */
interface StoredContent {
  /** The account and the digest of the file. */
  _id: string;
  account: string;
  file: mongo.Binary;
  /** Epoch seconds of the last request with this content. */
  used_at: number;
}

/** Name of the bulk action that stores files. */
export const store_action = 'configs';
/** Longer than a request takes to store files with its content, or to record in the journal that it will. */
const min_age_s = 120;

const contentsOf = (db: Database) => db.collection<StoredContent>('config_contents');

/** Returns the name of a content. */
export function formatContentName(account: string, file: Buffer): string {
  return `${account} ${createHash('sha256').update(file).digest('hex')}`;
}

/** Stores a content, unless it is stored. */
export async function saveContent(
  { store, account, now }: OperationContext,
  name: string,
  file: Buffer,
): Promise<void> {
  const content = { account, file: file as unknown as mongo.Binary };
  await contentsOf(store.db).updateOne(
    { _id: name },
    { $set: { used_at: now }, $setOnInsert: content },
    { upsert: true },
  );
}

/** @throws AppError notFound (4041) if the last device with it was deleted */
export async function findContent(db: Database, name: string): Promise<Buffer> {
  const stored = await findOne(contentsOf(db), { _id: name }, { promoteBuffers: true });
  if (stored === undefined) throw new AppError('notFound');
  return stored.file as unknown as Buffer;
}

/** Deletes contents that no file has any more. @param now epoch seconds */
export async function removeUnusedContents(db: Database, now: number): Promise<void> {
  const filter = { used_at: { $lt: now - min_age_s } };
  const contents = contentsOf(db);
  const before = await findMany(contents, filter, { projection: { used_at: 1 } });
  // an interrupted request may still need its content
  if (before.length === 0 || (await hasMatch(rootsOf(db), { action: store_action }))) return;
  const files = db.collection(deviceconfig.plural);
  for (const { _id, used_at } of before)
    if (!(await hasMatch(files, { shared_content: _id }))) await contents.deleteOne({ _id, used_at });
}
