import mongoose, { type mongo } from 'mongoose';
import { type Database, read_limit_ms, type StoredDocument } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { AppError } from '../errors.js';
import { collectionOf, device, mqttcredentials, parentFieldOf, parentRefOf, topic } from '../resources/index.js';
import { permits, type Scope } from '../schema/operation.js';
import type { OperationContext } from './context.js';
import { insertUnderParent } from './insert-under-parent.js';
import { assertExists } from './resources.js';

const credentialsOf = (db: Database) => db.collection(mqttcredentials.plural);
const topicsOf = (db: Database) => db.collection(topic.plural);

interface Login {
  username: string;
  /** As `hashPassword` makes it. */
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

/** What the broker needs to know of a device that logs in. */
export interface MqttDevice {
  account: string;
  device: string;
  /** The internal id of the credentials: changes with every new set. */
  credentials: string;
  hash: string;
  enabled: boolean;
  /** What is right above the device. */
  parent: AncestorRef;
  /** Its own topic filters. */
  topics: readonly string[];
}

/** Finds the device that logs in as `username`. @returns undefined if nobody does */
export async function findDeviceLogin(db: Database, username: string): Promise<MqttDevice | undefined> {
  const [found] = await findLogins(db, { username });
  return found;
}

/** The devices whose credentials are still there, at most 1000 at once. */
export async function findDevicesOf(db: Database, credentials: readonly string[]): Promise<MqttDevice[]> {
  return findLogins(db, { _id: { $in: credentials.map(idFrom) } });
}

async function findLogins(db: Database, query: mongo.Filter<StoredDocument>): Promise<MqttDevice[]> {
  const found = await credentialsOf(db)
    .find(query, { projection: { account: 1, device: 1, parent: 1, hash: 1 }, maxTimeMS: read_limit_ms })
    .toArray();
  const parents = found.map(({ parent }) => parent);
  const [owners, topics] = await Promise.all([
    db
      .collection('devices')
      .find(
        { _id: { $in: parents as Id[] } },
        { projection: { enabled: 1, id_group: 1, id_asset: 1 }, maxTimeMS: read_limit_ms },
      )
      .toArray(),
    topicsOf(db)
      .find({ parent: { $in: parents } }, { projection: { parent: 1, name: 1 }, maxTimeMS: read_limit_ms })
      .toArray(),
  ]);
  const ownerOf = new Map(owners.map((owner) => [String(owner._id), owner]));
  const namesOf = new Map<string, string[]>();
  for (const { parent, name } of topics) {
    const names = namesOf.get(String(parent));
    if (names === undefined) namesOf.set(String(parent), [String(name)]);
    else names.push(String(name));
  }
  return found.flatMap(({ _id, account, device: id, parent, hash }) => {
    const owner = ownerOf.get(String(parent));
    if (owner === undefined) return [];
    return {
      account: String(account),
      device: String(id),
      credentials: String(_id),
      hash: String(hash),
      enabled: owner.enabled === true,
      parent: { account: String(account), ...parentRefOf(owner) },
      topics: namesOf.get(String(parent)) ?? [],
    };
  });
}

/** A place in the hierarchy: `field` and `id` name what stands there. */
export interface AncestorRef {
  account: string;
  field: string;
  id: string;
}

const keyOf = ({ account, field, id }: AncestorRef) => `${account} ${field} ${id}`;

/**
 * Of many places those where everything is enabled, up to the project: a query per level, not one per place.
 * @returns a function that tells it of a place
 */
export async function findEnabled(
  db: Database,
  places: readonly AncestorRef[],
): Promise<(place: AncestorRef) => boolean> {
  const enabled = new Set(places.map(keyOf));
  let level = [...new Map(places.map((place) => [keyOf(place), { place, origin: keyOf(place) }])).values()];
  while (level.length > 0) {
    const next: typeof level = [];
    for (const field of new Set(level.map(({ place }) => place.field))) {
      const here = level.filter(({ place }) => place.field === field);
      const plural = collectionOf.get(field) ?? '';
      const up = parentFieldOf.get(plural);
      const found = await db
        .collection(plural)
        .find(
          {
            account: { $in: [...new Set(here.map(({ place }) => place.account))] },
            id_developer: { $in: [...new Set(here.map(({ place }) => place.id))] },
          },
          { projection: { account: 1, id_developer: 1, enabled: 1, ...(up && { [up]: 1 }) }, maxTimeMS: read_limit_ms },
        )
        .toArray();
      const byKey = new Map(
        found.map((one) => [keyOf({ account: String(one.account), field, id: String(one.id_developer) }), one]),
      );
      for (const { place, origin } of here) {
        const one = byKey.get(keyOf(place));
        if (one?.enabled !== true) enabled.delete(origin);
        else if (up !== undefined) next.push({ place: { ...place, field: up, id: String(one[up]) }, origin });
      }
    }
    level = next;
  }
  return (place) => enabled.has(keyOf(place));
}

/** Of these API keys, at most 1000, those that may still send streams. `now` in epoch seconds. */
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
