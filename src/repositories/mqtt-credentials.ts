import mongoose, { type mongo } from 'mongoose';
import { type Database, read_limit_ms, type StoredDocument } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { AppError } from '../errors.js';
import { device, mqttcredentials, parentRefOf, topic } from '../resources/index.js';
import { permits, type Scope } from '../schema/operation.js';
import type { OperationContext } from './context.js';
import type { AncestorRef } from './hierarchy.js';
import { insertUnderParent } from './insert-under-parent.js';
import { assertExists } from './resources.js';

const credentialsOf = (db: Database) => db.collection(mqttcredentials.plural);
const topicsOf = (db: Database) => db.collection(topic.plural);

interface Login {
  username: string;
  /** Made by `hashPassword`. */
  hash: string;
}

/** @throws AppError notFound (4041) without the device; a second set or a taken username breaks a unique index (4003) */
export async function createCredentials(ctx: OperationContext, id: string, login: Login): Promise<void> {
  await insertUnderDevice(ctx, mqttcredentials.plural, id, { ...login });
}

/** @throws AppError notFound (4041) without the device or its credentials; a taken username breaks a unique index (4003) */
export async function updateCredentials(ctx: OperationContext, id: string, login: Login): Promise<void> {
  const { store, account, now, request_id } = ctx;
  const update = { $set: { ...login, updated_at: now, last_request_id: request_id } };
  const { matchedCount } = await credentialsOf(store.db).updateOne({ account, device: id }, update);
  if (matchedCount === 0) throw new AppError('notFound');
}

/** Deletes credentials; the topics stay. @throws AppError notFound (4041) */
export async function removeCredentials({ store, account }: OperationContext, id: string): Promise<void> {
  const { deletedCount } = await credentialsOf(store.db).deleteOne({ account, device: id });
  if (deletedCount === 0) throw new AppError('notFound');
}

/** @throws AppError notFound (4041) without the device; an existing topic breaks a unique index (4003) */
export async function createTopic(ctx: OperationContext, id: string, name: string): Promise<void> {
  await insertUnderDevice(ctx, topic.plural, id, { name });
}

/** @throws AppError notFound (4041) */
export async function removeTopic({ store, account }: OperationContext, id: string, name: string): Promise<void> {
  const { deletedCount } = await topicsOf(store.db).deleteOne({ account, device: id, name });
  if (deletedCount === 0) throw new AppError('notFound');
}

async function insertUnderDevice(ctx: OperationContext, plural: string, id: string, fields: object): Promise<void> {
  const { store, account, user, now, request_id } = ctx;
  const parent = await assertExists(ctx, device, id);
  const audit = { owner: user, created_at: now, last_request_id: request_id };
  const document = { _id: store.db.newId(), account, device: id, parent, ...audit, ...fields };
  await insertUnderParent(ctx, plural, document, device.plural);
}

/** A device with credentials, as the broker needs it. */
export interface MqttDevice {
  account: string;
  device: string;
  /** Internal id of the credentials; new credentials get a new one. */
  credentials: string;
  hash: string;
  enabled: boolean;
  /** The group or asset of the device. */
  parent: AncestorRef;
  /** Topic filters granted to the device. */
  topics: readonly string[];
}

/** Finds the device with this username. @returns undefined for an unknown one */
export async function findDeviceLogin(db: Database, username: string): Promise<MqttDevice | undefined> {
  const [found] = await findLogins(db, { username });
  return found;
}

/** Finds the devices of the given credentials, at most 1000; deleted ones are missing from the result. */
export async function findDevicesOf(db: Database, credentials: readonly string[]): Promise<MqttDevice[]> {
  return findLogins(db, { _id: { $in: credentials.map(idFrom) } });
}

async function findLogins(db: Database, query: mongo.Filter<StoredDocument>): Promise<MqttDevice[]> {
  const credentials = await credentialsOf(db)
    .find(query, { projection: { account: 1, device: 1, parent: 1, hash: 1 }, maxTimeMS: read_limit_ms })
    .toArray();
  const parents = credentials.map(({ parent }) => parent as Id);
  const [deviceById, topicsById] = await Promise.all([findDevices(db, parents), findTopics(db, parents)]);
  return credentials.flatMap(({ _id, account, device: id, parent, hash }) => {
    const found = deviceById.get(String(parent));
    if (found === undefined) return [];
    return {
      account: String(account),
      device: String(id),
      credentials: String(_id),
      hash: String(hash),
      enabled: found.enabled === true,
      parent: { account: String(account), ...parentRefOf(found) },
      topics: topicsById.get(String(parent)) ?? [],
    };
  });
}

async function findDevices(db: Database, ids: readonly Id[]): Promise<ReadonlyMap<string, StoredDocument>> {
  const found = await db
    .collection('devices')
    .find({ _id: { $in: ids } }, { projection: { enabled: 1, id_group: 1, id_asset: 1 }, maxTimeMS: read_limit_ms })
    .toArray();
  return new Map(found.map((document) => [String(document._id), document]));
}

async function findTopics(db: Database, parents: readonly Id[]): Promise<ReadonlyMap<string, readonly string[]>> {
  const found = await topicsOf(db)
    .find({ parent: { $in: parents } }, { projection: { parent: 1, name: 1 }, maxTimeMS: read_limit_ms })
    .toArray();
  const namesByParent = new Map<string, string[]>();
  for (const { parent, name } of found) {
    const names = namesByParent.get(String(parent));
    if (names === undefined) namesByParent.set(String(parent), [String(name)]);
    else names.push(String(name));
  }
  return namesByParent;
}

/** Finds which of the given API keys, at most 1000, may still send streams. `now` in epoch seconds. */
export async function findIngestKeys(db: Database, ids: readonly string[], now: number): Promise<ReadonlySet<string>> {
  const found = await db
    .collection('apikeys')
    .find(
      { _id: { $in: ids.map(idFrom) } },
      { projection: { id: 1, scope: 1, expires_at: 1 }, maxTimeMS: read_limit_ms },
    )
    .toArray();
  const valid = found.filter(
    ({ scope, expires_at }) =>
      permits(scope as Scope, 'stream') && !(typeof expires_at === 'number' && expires_at <= now),
  );
  return new Set(valid.map(({ id }) => String(id)));
}

function idFrom(text: string): Id {
  return new mongoose.mongo.UUID(text);
}
