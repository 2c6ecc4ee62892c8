import { createHash } from 'node:crypto';
import mongoose from 'mongoose';
import type { Id } from '../db/ids.js';
import { findOne, hasMatch, showOne } from '../db/raw-find.js';
import type { ConfigVersion, DesiredConfig } from '../device-state/changes.js';
import { AppError } from '../errors.js';
import type { OperationContext } from '../objects/context.js';
import type { Bson } from '../objects/page.js';
import { assertExists, assertWithinReach } from '../objects/resources.js';
import { insertUnderParent, type NodeRef } from '../objects/tree/removed-nodes.js';
import { device, deviceconfig } from '../resources/index.js';
import type { Values } from '../schema/fields.js';
import { findContent } from './contents.js';

const { BSON } = mongoose.mongo;

/**
 * Stores a version of a configuration file as decoded bytes (reference/device-configs.md#upload).
 * @returns the stored document
 * @throws AppError notFound (4041) without the device; an existing version breaks a unique index (4003)
 */
export async function createConfig(ctx: OperationContext, id: string, values: Values): Promise<Bson> {
  const { _id } = await assertExists(ctx, device, id);
  const document = buildConfig(ctx, { _id, id }, { ...values, ...describeFile(String(values.file)) });
  await insertUnderParent(ctx, deviceconfig.plural, document, device.plural);
  return BSON.serialize(document);
}

/** Describes the content of a file in base64 as it is stored. */
export function describeFile(base64: string): { file: Buffer; size: number; checksum: string } {
  const file = Buffer.from(base64, 'base64');
  return { file, size: file.length, checksum: createHash('sha1').update(file).digest('hex') };
}

/** Builds the document of a version of a file for a device. */
export function buildConfig(
  { store, account, user, now, request_id }: OperationContext,
  { _id: parent, id }: Pick<NodeRef, '_id' | 'id'>,
  values: Values,
) {
  const audit = { owner: user, updater: user, created_at: now, updated_at: now, last_request_id: request_id };
  return { _id: store.db.newId(), account, parent, ...values, device: id, ...audit };
}

/** A stored file; `bson` is the whole document. */
export interface ConfigFile {
  bson: Bson;
  file: Buffer;
  name: string;
  checksum: string;
}

/**
 * Finds a version of a file, or the latest (reference/device-configs.md#latest-version), without its content.
 * @throws AppError notFound (4041)
 */
export async function findConfig(
  ctx: OperationContext,
  id: string,
  name: string,
  version?: string,
): Promise<{ _id: Id; size: number }> {
  await assertWithinReach(ctx, device, id);
  const { account, store } = ctx;
  const query = { account, device: id, name, ...(version !== undefined && { version }) };
  const options = { projection: { size: 1 }, sort: { created_at: -1, _id: -1 } } as const;
  const stored = await findOne(store.db.collection(deviceconfig.plural), query, options);
  if (stored === undefined) throw new AppError('notFound');
  return { _id: stored._id, size: Number(stored.size) };
}

/** @throws AppError notFound (4041) without any version of the file */
export async function assertFileExists({ store: { db } }: OperationContext, parent: Id, name: string): Promise<void> {
  if (!(await hasMatch(db.collection(deviceconfig.plural), { parent, name }))) throw new AppError('notFound');
}

/** Describes a version of a file of a device. @throws AppError invalid (4003) if there is none */
export async function findVersion(
  { store: { db } }: OperationContext,
  parent: Id,
  { name, version }: ConfigVersion,
): Promise<DesiredConfig> {
  const options = { projection: { size: 1, checksum: 1 } };
  const stored = await findOne(db.collection(deviceconfig.plural), { parent, name, version }, options);
  if (stored === undefined) throw new AppError('invalid', { version: 'does not exist' });
  return { version, size: Number(stored.size), checksum: String(stored.checksum) };
}

/** Loads a file that `findConfig` has found. @throws AppError notFound (4041) */
export async function loadConfig({ store: { db }, account }: OperationContext, _id: Id): Promise<ConfigFile> {
  const bson = await showOne(db.collection(deviceconfig.plural), { _id, account });
  const { shared_content: content, ...document } = BSON.deserialize(bson, { promoteBuffers: true });
  const { name, checksum } = document;
  if (content === undefined) return { bson, file: document.file, name, checksum };
  const file = await findContent(db, content);
  return { bson: BSON.serialize({ ...document, file }), file, name, checksum };
}
