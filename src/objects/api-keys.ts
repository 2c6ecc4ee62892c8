import { hash, randomBytes } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import mongoose from 'mongoose';
import type { Database, DatabaseAccess } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { findMany, findOne, hasMatch } from '../db/raw-find.js';
import type { KeyLimit } from '../db/reach.js';
import { AppError, type FieldErrors } from '../errors.js';
import { type LimitField, limitCollections } from '../resources/api-key.js';
import { apikey, project } from '../resources/index.js';
import { isScopeSufficient, type RequiredScope, type Scope } from '../schema/operation.js';
import type { OperationContext } from './context.js';
import { deleteRecorded, deleteWithTombstone } from './tree/tombstones.js';
import { formatLastChange } from './write/last-change.js';

/** The user of an API key or of a token (reference/access.md#users). */
export interface Principal {
  account: string;
  user: string;
  scope: Scope;
  /** The object that the key is limited to; undefined: the whole account. */
  limit: KeyLimit | undefined;
  /** Undefined for a token. */
  key_id: string | undefined;
  /** Epoch seconds; undefined: never. */
  expires_at: number | undefined;
}

/** The user of an API key. */
export interface KeyUser extends Principal {
  key_id: string;
}

/** The identifier of the object that a key is limited to, in one field at most. */
export type RequestedLimit = { [field in LimitField]?: string };

export interface NewKey extends RequestedLimit {
  account: string;
  username: string;
  scope: Scope;
  description?: string;
  /** Epoch seconds. */
  expires_at?: number;
}

export type Keyring = ReturnType<typeof openKeyring>;

/** Connects the keyrings of the workers of an instance. @param forget called with each key that is revoked in any of them */
export type ShareRevocations = (forget: (key_id: string) => void) => (key_id: string) => Promise<void>;

/** A revoked key is refused in every process after this time. */
const revocation_limit_s = 5;
/** Leaves a second for a look-up and for a request that has begun. */
const cache_s = revocation_limit_s - 1;
/** Unknown keys are remembered for a shorter time, so that a new key works soon after a failed attempt. */
const unknown_cache_s = 1;
const max_cached_keys = 10_000;
const max_key_length = 512;

interface CacheEntry {
  key: KeyUser | undefined;
  until: number;
  /** The version before the key was read; undefined, and a limited key is read again, if its account was not known then. */
  hierarchyVersion: number | undefined;
}

/**
 * Opens the keyring, which caches keys for 4 s (reference/access.md#key-expiry).
 * @param hierarchyVersionOf counts changes of an account's hierarchy: limited keys end with their objects
 */
export function openKeyring(
  db: Database,
  hierarchyVersionOf: (account: string) => number = () => 0,
  share?: ShareRevocations,
) {
  const cache = new LRUCache<string, CacheEntry>({ max: max_cached_keys });
  let invalidations = 0;

  function forget(key_id: string): void {
    invalidations++;
    for (const [digest, { key }] of cache.entries()) if (key?.key_id === key_id) cache.delete(digest);
  }
  const forgetEverywhere = share?.(forget);

  async function load(digest: string): Promise<KeyUser | undefined> {
    const stored = await findOne(keysOf(db), { digest });
    if (stored === undefined) return undefined;
    const { account, username: user, scope, id: key_id, expires_at } = stored;
    return { account, user, scope, limit: readLimit(stored), key_id, expires_at };
  }

  /** Finds the user of a key that may have expired, to name it in the log. */
  async function identify(text: string, now: number): Promise<KeyUser | undefined> {
    if (text.length > max_key_length) return undefined;
    const digest = digestOf(text);
    const cached = cache.get(digest);
    let key = cached?.key;
    const isOutdated = key?.limit !== undefined && hierarchyVersionOf(key.account) !== cached?.hierarchyVersion;
    if (cached === undefined || cached.until <= now || isOutdated) {
      const started = invalidations;
      const hierarchyVersion = key && hierarchyVersionOf(key.account);
      key = await load(digest);
      const until = now + (key ? cache_s : unknown_cache_s);
      // a key revoked while it was being looked up must not enter the cache
      if (started === invalidations) cache.set(digest, { key, until, hierarchyVersion });
    }
    return key;
  }

  return {
    identify,
    /** @returns undefined for a key that is unknown, revoked or expired; `now` in epoch seconds */
    async find(text: string, now: number): Promise<KeyUser | undefined> {
      const key = await identify(text, now);
      return key !== undefined && hasExpired(key, now) ? undefined : key;
    },
    /** Removes a key that this process revoked from the caches of the workers of this instance. */
    async invalidate(key_id: string): Promise<void> {
      forget(key_id);
      await forgetEverywhere?.(key_id);
    },
  };
}

/** Reports whether a key has expired; `now` in epoch seconds. */
export function hasExpired({ expires_at }: Pick<KeyUser, 'expires_at'>, now: number): boolean {
  return expires_at !== undefined && expires_at <= now;
}

function digestOf(key: string): string {
  return hash('sha256', key, 'hex');
}

function readLimit(stored: StoredKey): KeyLimit | undefined {
  for (const [field, plural] of limitCollections) {
    const { [field]: id_developer, parent: _id } = stored;
    if (id_developer !== undefined && _id !== undefined) return { field, plural, _id, id_developer };
  }
  return undefined;
}

/** The scopes that a key of one device can have. */
const deviceScopes: ReadonlySet<unknown> = new Set<Scope>(['stream', 'device', 'read']);

/** Checks that scope and limit go together (reference/access.md#limited-keys). */
export function checkLimit({ scope, ...values }: { readonly [field: string]: unknown }, faults: FieldErrors): void {
  const named = [...limitCollections.keys()].filter((field) => values[field] !== undefined);
  for (const field of named) {
    const others = named.filter((other) => other !== field);
    if (scope === 'admin') faults[field] ??= 'must not be given with scope admin';
    else if (others.length > 0) faults[field] ??= `must not be given with ${others.join(', ')}`;
    // a scope that is missing or wrong is a fault of its own
    else if (field === 'id_device' && scope !== undefined && !deviceScopes.has(scope))
      faults[field] ??= `must not be given with scope ${String(scope)}`;
  }
  if (scope === 'device' && values.id_device === undefined) faults.id_device ??= 'is required with scope device';
}

/** Finds the object that a key is to be limited to. @throws AppError invalid (4003) if the account does not have it */
export async function resolveLimit(
  db: Database,
  account: string,
  requested: RequestedLimit,
): Promise<KeyLimit | undefined> {
  for (const [field, plural] of limitCollections) {
    const id_developer = requested[field];
    if (id_developer === undefined) continue;
    const object = await findOne(db.collection(plural), { account, id_developer }, { projection: { _id: 1 } });
    if (object === undefined) throw new AppError('invalid', { [field]: 'does not exist' });
    return { field, plural, _id: object._id, id_developer };
  }
  return undefined;
}

/**
 * Issues a key of 256 random bits; only its SHA-256 is stored. If the object that it is limited to is deleted at the same
 * time, the key is deleted with it.
 * @param now epoch seconds
 * @param issuer the request that asked for it; absent for operators
 * @param encoding some programs of the former platform accept 64 hexadecimal digits only
 * @throws AppError invalid (4003) if the account does not have the object of the limit
 */
export async function issueKey(
  db: Database,
  wanted: NewKey,
  now: number,
  issuer?: Pick<OperationContext, 'user' | 'request_id'>,
  encoding: 'base64url' | 'hex' = 'base64url',
): Promise<{ id: string; key: string }> {
  const key = randomBytes(32).toString(encoding);
  const _id = db.newId();
  const id = String(_id);
  const limit = await resolveLimit(db, wanted.account, wanted);
  await keysOf(db).insertOne({
    _id,
    id,
    digest: digestOf(key),
    ...wanted,
    created_at: now,
    ...(limit && { parent: limit._id }),
    ...(issuer && { last_change: formatLastChange(issuer) }),
  });
  if (limit && !(await hasMatch(db.collection(limit.plural), { _id: limit._id }))) await revokeByOperator(db, id);
  return { id, key };
}

/** @throws AppError notFound (4041) unless the account has a key with this id */
export async function revokeKey(ctx: OperationContext, id: string): Promise<void> {
  const key = await findKeyToRevoke(ctx.store.db, { account: ctx.account, id });
  if (key === undefined || !(await deleteRecorded(ctx, apikey.plural, describeKey(key))))
    throw new AppError('notFound');
}

function findKeyToRevoke(db: Database, filter: object) {
  return findOne(keysOf(db), filter, { projection: { account: 1, id: 1, username: 1, scope: 1 } });
}

function describeKey({ _id, id, username, scope }: StoredKey) {
  return { object: _id, resource: apikey.name, id_developer: id, data: { username, scope } };
}

/** A key that is neither revoked nor expired. */
export interface ValidKey {
  id: string;
  account: string;
  limit: KeyLimit | undefined;
  /** The topics of the device that it is limited to may change until then, in epoch seconds. */
  topics_change_until?: number;
}

/** Finds which keys, by their ids, are neither revoked nor expired and have the scope `needed`; `now` in epoch seconds. */
export async function findValidKeys(
  db: Database,
  ids: Iterable<string>,
  needed: RequiredScope,
  now: number,
): Promise<ReadonlyMap<string, ValidKey>> {
  const filter = { _id: { $in: [...ids].map((id) => new mongoose.mongo.UUID(id)) } };
  const members = ['id', 'account', 'scope', 'expires_at', 'parent', 'topics_change_until', ...limitCollections.keys()];
  const projection = Object.fromEntries(members.map((member) => [member, 1]));
  const keys = await findMany(keysOf(db), filter, { projection });
  const isValid = ({ scope, expires_at = Number.POSITIVE_INFINITY }: StoredKey) =>
    isScopeSufficient(scope, needed) && expires_at > now;
  return new Map(keys.filter(isValid).map((key) => [key.id, { ...key, limit: readLimit(key) }]));
}

interface StoredKey extends NewKey {
  _id: Id;
  id: string;
  /** SHA-256 of the key. */
  digest: string;
  /** Internal id of the object that the key is limited to. */
  parent?: Id;
  topics_change_until?: number;
  created_at: number;
  last_change?: string;
}

const keysOf = (db: Database) => db.collection<StoredKey>(apikey.plural);

/** An API key as it is listed, without the key itself. */
export type ListedKey = Omit<StoredKey, '_id' | 'digest' | 'parent' | 'topics_change_until' | 'last_change'>;

/** Lists the keys of an account for operators, oldest first. */
export function listKeys(db: Database, account: string): Promise<ListedKey[]> {
  return findMany(keysOf(db), { account }, { sort: { _id: 1 } });
}

/** Reports whether an account has a key, expired or not. */
export function hasKeys(db: Database, account: string): Promise<boolean> {
  return hasMatch(keysOf(db), { account });
}

/** Finds the names of all accounts: those with a key or a project. */
export async function findAccounts(db: DatabaseAccess): Promise<string[]> {
  const accounts = await Promise.all([apikey, project].map(({ plural }) => db.collection(plural).distinct('account')));
  return [...new Set(accounts.flat().map(String))];
}

/** Revokes a key of any account, for operators. @returns false if there is none */
export async function revokeByOperator(db: Database, id: string): Promise<boolean> {
  const key = await findKeyToRevoke(db, { id });
  if (key === undefined) return false;
  return deleteWithTombstone(db, apikey.plural, db.newId(), { ...describeKey(key), account: key.account });
}

/**
 * Creates the first key of an empty database: `bootstrap`, or a generated key (reference/configuration.md#start).
 * Instances that start together agree on one, because its internal id is fixed. @returns the key if this call created it
 */
export async function createBootstrapKey(
  db: Database,
  bootstrap: string | undefined,
  now: number,
): Promise<string | undefined> {
  const keys = keysOf(db);
  if (await hasMatch(keys, {})) return undefined;
  const key = bootstrap ?? randomBytes(32).toString('base64url');
  const _id = db.firstId;
  const first = {
    id: String(_id),
    digest: digestOf(key),
    account: 'demo',
    username: 'admin',
    scope: 'admin' as const,
    created_at: now,
  };
  const { upsertedCount } = await keys.updateOne({ _id }, { $setOnInsert: first }, { upsert: true });
  return upsertedCount === 1 ? key : undefined;
}
