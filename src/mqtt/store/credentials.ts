import { isDeepStrictEqual } from 'node:util';
import mongoose from 'mongoose';
import { createLookup, type LookUp } from '../../db/batching/lookup.js';
import type { Database, StoredDocument } from '../../db/database.js';
import { insertIntoFreeSlot } from '../../db/free-slot.js';
import type { Id } from '../../db/ids.js';
import { findMany, findOne, runPipeline } from '../../db/raw-find.js';
import { AppError } from '../../errors.js';
import type { ValidKey } from '../../objects/api-keys.js';
import type { OperationContext } from '../../objects/context.js';
import { assertExists, assertWithinReach } from '../../objects/resources.js';
import { findEnabled } from '../../objects/tree/ancestors.js';
import { insertUnderParent, removeLeaf } from '../../objects/tree/removed-nodes.js';
import { formatLastChange } from '../../objects/write/last-change.js';
import { apikey, device, mqttcredentials, topic } from '../../resources/index.js';

const credentialsOf = (db: Database) => db.collection(mqttcredentials.plural);
const topicsOf = (db: Database) => db.collection(topic.plural);
const devicesOf = (db: Database) => db.collection(device.plural);

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
  await assertWithinReach(ctx, device, id);
  const { store, account, user, now, request_id } = ctx;
  const last_change = formatLastChange({ user, request_id });
  const update = { $set: { ...login, updated_at: now, last_request_id: request_id, last_change } };
  const { matchedCount } = await credentialsOf(store.db).updateOne({ account, device: id }, update);
  if (matchedCount === 0) throw new AppError('notFound');
}

/** Deletes credentials; the topics stay. @throws AppError notFound (4041) */
export async function removeCredentials(ctx: OperationContext, id: string): Promise<void> {
  await assertWithinReach(ctx, device, id);
  await removeOfDevice(ctx, mqttcredentials.plural, { device: id });
}

/** @throws AppError notFound (4041) */
async function removeOfDevice(ctx: OperationContext, plural: string, query: object): Promise<void> {
  const { store, account } = ctx;
  const options = { projection: { device: 1, parent: 1, username: 1, name: 1 } };
  const stored = await findOne(store.db.collection(plural), { account, ...query }, options);
  if (stored === undefined || !(await removeLeaf(ctx, plural, stored))) throw new AppError('notFound');
}

/** Longer than a topic can take to be written or deleted after it was announced. */
const change_window_s = 15;

/** Limits the topics of a device: each takes one of 100 slots, and no two take the same one. */
export const topicSlots = {
  key: { parent: 1, slot: 1 },
  unique: true,
  partialFilterExpression: { slot: { $exists: true } },
} as const;

/**
 * Creates a topic.
 * @throws AppError notFound (4041) without the device, invalid (4003) beyond 100 topics; an existing topic violates a
 * unique index (4003)
 */
export async function createTopic(ctx: OperationContext, id: string, name: string): Promise<void> {
  const { _id: parent } = await assertExists(ctx, device, id);
  await announceTopicChange(ctx, id);
  const insert = (slot: number) => insertUnderDevice(ctx, topic.plural, id, { name, slot });
  await insertIntoFreeSlot(topicsOf(ctx.store.db), { parent }, 'topics of a device', insert);
}

/**
 * Announces that the topics of a device are about to change, so that brokers read them again. It comes before the change:
 * a crash in between costs some reads, but no change stays unnoticed.
 */
async function announceTopicChange({ store, account, now }: OperationContext, id: string): Promise<void> {
  const change = { $max: { topics_change_until: Math.ceil(now) + change_window_s } };
  await Promise.all([
    credentialsOf(store.db).updateOne({ account, device: id }, change),
    store.db.collection(apikey.plural).updateMany({ account, id_device: id }, change),
    devicesOf(store.db).updateOne({ account, id_developer: id, has_certificate: true }, change),
  ]);
}

/** @throws AppError notFound (4041) */
export async function removeTopic(ctx: OperationContext, id: string, name: string): Promise<void> {
  await assertWithinReach(ctx, device, id);
  await announceTopicChange(ctx, id);
  await removeOfDevice(ctx, topic.plural, { device: id, name });
}

async function insertUnderDevice(ctx: OperationContext, plural: string, id: string, fields: object): Promise<void> {
  const { store, account, user, now, request_id } = ctx;
  const { _id: parent } = await assertExists(ctx, device, id);
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
  /** Internal id of the device. */
  parent: string;
  hash: string;
  enabled: boolean;
  /** Internal ids of the objects above the device. */
  ancestors: readonly Id[];
  /** Topic filters granted to the device; undefined if the caller has them. */
  topics: readonly string[] | undefined;
}

/** Creates the look-up of devices by username, in one command for those that log in at the same time. */
export function createLoginLookup(db: Database): LookUp<string, MqttDevice> {
  return createLookup<string, MqttDevice>({
    async fetch(usernames) {
      const options = { projection: { ...loginProjection, username: 1 } };
      const stored = await findMany(credentialsOf(db), { username: { $in: [...usernames] } }, options);
      const devices = await findDevices(db, stored.map(toLogin), () => false);
      const usernameOf = new Map(stored.map(({ _id, username }) => [String(_id), String(username)]));
      return new Map(devices.map((login) => [usernameOf.get(login.credentials) ?? '', login]));
    },
    keyOf: (username) => username,
    maxBatchSize: 32,
  });
}

/** Reports whether a caller has the topics of these credentials, which may have changed until then (epoch seconds). */
export type HasTopics = (credentials: string, topics_change_until: number) => boolean;

/**
 * Finds the devices of the given credentials, at most 100 at once; deleted ones are missing from the result.
 * @returns `topics` only of the devices whose topics the caller does not have
 */
export async function findDevicesOf(
  db: Database,
  credentials: readonly string[],
  hasTopics: HasTopics,
): Promise<MqttDevice[]> {
  const query = { _id: { $in: credentials.map(idFrom) } };
  const stored = await findMany(credentialsOf(db), query, { projection: loginProjection });
  return findDevices(db, stored.map(toLogin), hasTopics);
}

/** Finds the devices that keys are limited to, as logins without a password; `credentials` are the ids of the keys. */
export async function findDevicesOfKeys(
  db: Database,
  keys: readonly Pick<ValidKey, 'id' | 'account' | 'limit' | 'topics_change_until'>[],
  hasTopics: HasTopics,
): Promise<MqttDevice[]> {
  const logins = keys.flatMap(({ id, account, limit, topics_change_until = 0 }) => {
    if (limit?.plural !== device.plural) return [];
    return { credentials: id, account, device: limit.id_developer, parent: limit._id, hash: '', topics_change_until };
  });
  return findDevices(db, logins, hasTopics);
}

/**
 * Finds devices that show a certificate, by identifier or by at most 100 internal ids, as logins without a password;
 * `credentials` are their own ids.
 */
export async function findCertifiedDevices(
  db: Database,
  wanted: readonly string[] | { id_developer: string },
  hasTopics: HasTopics,
): Promise<MqttDevice[]> {
  const query =
    'id_developer' in wanted
      ? { ...wanted, account: accountOf(wanted.id_developer) }
      : { _id: { $in: wanted.map(idFrom) } };
  const projection = { account: 1, id_developer: 1, topics_change_until: 1 };
  const devices = await findMany(devicesOf(db), query, { projection });
  const logins = devices.map((stored) => toLogin({ ...stored, device: stored.id_developer, parent: stored._id }));
  return findDevices(db, logins, hasTopics);
}

/** Records that a device logs in with a certificate, so that its sessions stay although it has no credentials. */
export async function recordCertificate(db: Database, { parent }: Pick<MqttDevice, 'parent'>): Promise<void> {
  await devicesOf(db).updateOne(
    { _id: idFrom(parent), has_certificate: { $ne: true } },
    { $set: { has_certificate: true } },
  );
}

const loginProjection = { account: 1, device: 1, parent: 1, hash: 1, topics_change_until: 1 };

function toLogin({ _id, account, device: id, parent, hash, topics_change_until }: StoredDocument): StoredLogin {
  return {
    ...{ credentials: String(_id), account: String(account), device: String(id), parent: parent as Id },
    hash: String(hash ?? ''),
    topics_change_until: Number(topics_change_until ?? 0),
  };
}

/** A login of a device: its credentials, or a key that is limited to it. */
interface StoredLogin extends Pick<MqttDevice, 'credentials' | 'account' | 'device' | 'hash'> {
  parent: Id;
  topics_change_until: number;
}

async function findDevices(db: Database, logins: readonly StoredLogin[], hasTopics: HasTopics): Promise<MqttDevice[]> {
  if (logins.length === 0) return [];
  const outdated = logins.filter((login) => !hasTopics(login.credentials, login.topics_change_until));
  const idsOf = (some: readonly StoredLogin[]) => some.map(({ parent }) => parent);
  const [nodes, topicsById] = await Promise.all([
    findMany(devicesOf(db), { _id: { $in: idsOf(logins) } }, { projection: { enabled: 1, ancestors: 1 } }),
    findTopics(db, idsOf(outdated)),
  ]);
  const nodeById = new Map(nodes.map((node) => [String(node._id), node]));
  return logins.flatMap(({ parent, topics_change_until: _, ...login }) => {
    const node = nodeById.get(String(parent));
    if (node === undefined) return [];
    const { enabled, ancestors } = node;
    return {
      ...login,
      parent: String(parent),
      enabled: enabled === true,
      ancestors: (ancestors as Id[] | undefined) ?? [],
      topics: topicsById.get(String(parent)),
    };
  });
}

/** The internal id of a device, and its identifier. */
export type LoginDevice = Pick<MqttDevice, 'parent' | 'device'>;

const accountOf = (id: string) => id.slice(id.lastIndexOf('@') + 1);

/** Finds the devices with a certificate, credentials or a key that may send streams, by their internal ids. `now` in epoch seconds. */
export async function findDevicesWithLogin(
  db: Database,
  devices: readonly LoginDevice[],
  now: number,
): Promise<ReadonlySet<string>> {
  if (devices.length === 0) return new Set();
  const parent = { $in: devices.map((login) => idFrom(login.parent)) };
  const ofKey = {
    account: { $in: [...new Set(devices.map(({ device: id }) => accountOf(id)))] },
    id_device: { $in: devices.map(({ device: id }) => id) },
    scope: { $ne: 'read' },
    expires_at: { $not: { $lte: now } },
  };
  const options = { projection: { parent: 1 } };
  const found = await Promise.all([
    findMany(credentialsOf(db), { parent }, options),
    findMany(db.collection(apikey.plural), { ...ofKey, parent }, options),
  ]);
  const certified = await findMany(devicesOf(db), { _id: parent, has_certificate: true }, { projection: { _id: 1 } });
  return new Set([...found.flat().map(({ parent: device }) => device), ...certified.map(({ _id }) => _id)].map(String));
}

/** A device with credentials, as a session knows it. */
export type KnownLogin = Pick<MqttDevice, 'credentials' | 'parent' | 'hash'>;

/**
 * Reports whether devices are as they were: neither their passwords nor their topics have changed, and they and all objects
 * above them are enabled. The database sums up: decoding two documents of each takes an idle instance several times as long.
 * @param read_at when the topics of the first one were read, in epoch seconds
 */
export async function areUnchanged(db: Database, logins: readonly KnownLogin[], read_at: number): Promise<boolean> {
  const [areSame, chains] = await Promise.all([areCredentialsUnchanged(db, logins, read_at), findChains(db, logins)]);
  return areSame && chains !== undefined && (await findEnabled(db, chains)).every(Boolean);
}

async function areCredentialsUnchanged(db: Database, logins: readonly KnownLogin[], read_at: number): Promise<boolean> {
  // several connections may have the same credentials, and copied credentials the same hash
  const hashByLogin = new Map(logins.map(({ credentials, hash }) => [`${credentials} ${hash}`, hash]));
  const ids = new Set(logins.map(({ credentials }) => credentials));
  const summed = { hashes: { $push: '$hash' }, topics_change_until: { $max: '$topics_change_until' } };
  const [summary] = await runPipeline<{ hashes: string[]; topics_change_until: number | null }>(credentialsOf(db), [
    { $match: { _id: { $in: [...ids].map(idFrom) } } },
    { $group: { _id: null, ...summed } },
  ]);
  if (summary === undefined || read_at <= (summary.topics_change_until ?? 0)) return false;
  return isDeepStrictEqual(summary.hashes.sort(), [...hashByLogin.values()].sort());
}

/** Finds what is above devices. @returns undefined if one of them is disabled or gone */
async function findChains(db: Database, logins: readonly KnownLogin[]): Promise<{ ancestors: Id[] }[] | undefined> {
  const parents = new Set(logins.map(({ parent }) => parent));
  const groups = await runPipeline<{ _id: Id[] | null; count: number }>(devicesOf(db), [
    { $match: { _id: { $in: [...parents].map(idFrom) }, enabled: true } },
    { $group: { _id: '$ancestors', count: { $sum: 1 } } },
  ]);
  const count = groups.reduce((sum, group) => sum + group.count, 0);
  return count === parents.size ? groups.map(({ _id }) => ({ ancestors: _id ?? [] })) : undefined;
}

/** Groups the names in the database: decoding one document per topic would block the event loop. */
async function findTopics(db: Database, parents: readonly Id[]): Promise<ReadonlyMap<string, readonly string[]>> {
  if (parents.length === 0) return new Map();
  const groups = await runPipeline<{ _id: Id; names: string[] }>(topicsOf(db), [
    { $match: { parent: { $in: parents } } },
    { $sort: { parent: 1, name: 1 } },
    { $group: { _id: '$parent', names: { $push: '$name' } } },
  ]);
  const namesByParent = new Map(groups.map(({ _id, names }) => [String(_id), names]));
  return new Map(parents.map((parent) => [String(parent), namesByParent.get(String(parent)) ?? []]));
}

function idFrom(text: string): Id {
  return new mongoose.mongo.UUID(text);
}
