import { AppError } from '../errors.js';
import { device } from '../resources/index.js';
import type { Database } from './connect.js';
import { type Actor, mustExist, read_limit_ms } from './documents.js';
import type { Id } from './ids.js';

const credentialsOf = (db: Database) => db.collection('mqttcredentials');
const topicsOf = (db: Database) => db.collection('mqtttopics');

interface Login {
  username: string;
  /** As `hashPassword` makes it. */
  hash: string;
}

/** @throws AppError notFound (4041) without the device; a second set or a taken username breaks a unique index (4003) */
export async function createCredentials(
  db: Database,
  actor: Actor,
  id: string,
  login: Login,
  now: number,
): Promise<void> {
  const parent = await mustExist(db, device, actor.account, id);
  await insertBeneath(db, 'mqttcredentials', actor, id, { ...login, parent }, now);
}

/** @throws AppError notFound (4041) without the device or its credentials; a taken username breaks a unique index (4003) */
export async function updateCredentials(
  db: Database,
  { account }: Actor,
  id: string,
  login: Login,
  now: number,
): Promise<void> {
  const { matchedCount } = await credentialsOf(db).updateOne(
    { account, device: id },
    { $set: { ...login, updated_at: now } },
  );
  if (matchedCount === 0) throw new AppError('notFound');
}

/** The topics stay. @throws AppError notFound (4041) */
export async function removeCredentials(db: Database, account: string, id: string): Promise<void> {
  const { deletedCount } = await credentialsOf(db).deleteOne({ account, device: id });
  if (deletedCount === 0) throw new AppError('notFound');
}

/** @throws AppError notFound (4041) without the device; a topic that is there breaks a unique index (4003) */
export async function createTopic(db: Database, actor: Actor, id: string, name: string, now: number): Promise<void> {
  const parent = await mustExist(db, device, actor.account, id);
  await insertBeneath(db, 'mqtttopics', actor, id, { name, parent }, now);
}

/** @throws AppError notFound (4041) */
export async function removeTopic(db: Database, account: string, id: string, name: string): Promise<void> {
  const { deletedCount } = await topicsOf(db).deleteOne({ account, device: id, name });
  if (deletedCount === 0) throw new AppError('notFound');
}

/** Inserts something beneath a device, and takes it back if the device went away meanwhile. */
async function insertBeneath(
  db: Database,
  plural: string,
  { account, user }: Actor,
  id: string,
  fields: { [path: string]: unknown },
  now: number,
): Promise<void> {
  const _id = db.newId();
  await db
    .collection(plural)
    .insertOne({ _id, account, device: id, owner: user, created_at: now, ...fields }, { forceServerObjectId: true });
  const still = await db.collection('devices').findOne({ account, id_developer: id }, { projection: { _id: 1 } });
  if (still !== null) return;
  await db.collection(plural).deleteOne({ _id });
  throw new AppError('notFound');
}

/** What the broker needs to know of a device that logs in. */
export interface MqttDevice {
  account: string;
  device: string;
  /** The internal id of the credentials: changes with every new set. */
  credentials: string;
  hash: string;
  enabled: boolean;
  /** What is right above the device. */
  above: { field: string; id: string };
  /** Its own topic filters. */
  topics: readonly string[];
}

/** Finds the device that logs in as `username`. @returns undefined if nobody does */
export async function findLogin(db: Database, username: string): Promise<MqttDevice | undefined> {
  const found = await credentialsOf(db).findOne({ username }, { maxTimeMS: read_limit_ms });
  if (found === null) return undefined;
  const { account, device: id } = found;
  const [owner, topics] = await Promise.all([
    db
      .collection('devices')
      .findOne(
        { _id: found.parent as Id },
        { projection: { enabled: 1, id_group: 1, id_asset: 1 }, maxTimeMS: read_limit_ms },
      ),
    topicsOf(db)
      .find({ account, device: id }, { projection: { name: 1 }, maxTimeMS: read_limit_ms })
      .toArray(),
  ]);
  if (owner === null) return undefined;
  const above =
    typeof owner.id_group === 'string'
      ? { field: 'id_group', id: owner.id_group }
      : { field: 'id_asset', id: String(owner.id_asset) };
  return {
    account: String(account),
    device: String(id),
    credentials: String(found._id),
    hash: String(found.hash),
    enabled: owner.enabled === true,
    above,
    topics: topics.map(({ name }) => String(name)),
  };
}
