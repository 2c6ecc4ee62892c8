import { createHash } from 'node:crypto';
import mongoose from 'mongoose';
import { type Database, read_limit_ms, type StoredDocument } from '../db/database.js';
import { AppError } from '../errors.js';
import { device, deviceconfig } from '../resources/index.js';
import type { Values } from '../schema/fields.js';
import { type Actor, type Bson, mustExist } from './resources.js';

const { BSON } = mongoose.mongo;

/**
 * Stores a version of a configuration file (§4.7, contract 7). The database holds the decoded bytes, which a mongo
 * shell shows as base64. @returns the stored document
 * @throws AppError notFound (4041) without the device; a version that is there already breaks a unique index (4003)
 */
export async function createConfig(db: Database, actor: Actor, id: string, values: Values, now: number): Promise<Bson> {
  const parent = await mustExist(db, device, actor.account, id);
  const file = Buffer.from(String(values.file), 'base64');
  const document: StoredDocument = {
    _id: db.newId(),
    account: actor.account,
    parent,
    ...values,
    file,
    size: file.length,
    checksum: createHash('sha1').update(file).digest('hex'),
    device: id,
    owner: actor.user,
    updater: actor.user,
    created_at: now,
    updated_at: now,
  };
  const configs = db.collection(deviceconfig.plural);
  await configs.insertOne(document, { forceServerObjectId: true });
  const still = await db
    .collection(device.plural)
    .findOne({ _id: parent }, { projection: { _id: 1 }, maxTimeMS: read_limit_ms });
  if (still === null) {
    await configs.deleteOne({ _id: document._id });
    throw new AppError('notFound');
  }
  return BSON.serialize(document);
}

/** A stored file; `bson` is all of it. */
export interface ConfigFile {
  bson: Bson;
  file: Buffer;
  name: string;
  checksum: string;
}

/** One version of a file, or the latest: created last (contract 7). @throws AppError notFound (4041) */
export async function findConfig(
  db: Database,
  account: string,
  id: string,
  name: string,
  version?: string,
): Promise<ConfigFile> {
  const query = { account, device: id, name, ...(version !== undefined && { version }) };
  const found = await db
    .collection(deviceconfig.plural)
    .findOne(query, { raw: true, sort: { created_at: -1, _id: -1 }, maxTimeMS: read_limit_ms });
  if (found === null) throw new AppError('notFound');
  const bson = found as unknown as Bson;
  const { file, checksum } = BSON.deserialize(bson, { promoteBuffers: true });
  return { bson, file, name, checksum };
}
