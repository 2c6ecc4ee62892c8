import { hash, randomBytes } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { type Database, read_limit_ms } from '../db/database.js';
import { AppError } from '../errors.js';
import type { Scope } from '../schema/operation.js';

/** Who a key speaks for (contract 2). */
export interface Principal {
  account: string;
  user: string;
  scope: Scope;
  key_id: string;
}

export interface NewKey {
  account: string;
  username: string;
  scope: Scope;
  description?: string;
  /** Epoch seconds. */
  expires_at?: number;
}

interface CachedKey extends Principal {
  expires_at: number;
}

/** The keys of all accounts as the service looks them up. */
export interface Keyring {
  /** @returns undefined for a key that is unknown, revoked or expired; `now` in epoch seconds */
  find(key: string, now: number): Promise<Principal | undefined>;
  /** Forgets what is cached of a key that was revoked here. */
  invalidate(key_id: string): void;
}

const cache_s = 5;
/** Unknown keys are remembered for a shorter time, so that a new key works soon after a failed attempt. */
const unknown_cache_s = 1;
const max_cached_keys = 10_000;
const max_key_length = 512;

interface CacheEntry {
  key: CachedKey | undefined;
  until: number;
}

/** Opens the keyring, which caches keys for 5 s (reference/access.md#key-expiry). */
export function openKeyring(db: Database): Keyring {
  const cache = new LRUCache<string, CacheEntry>({ max: max_cached_keys });
  let invalidations = 0;

  async function load(digest: string): Promise<CachedKey | undefined> {
    const found = await db.collection('apikeys').findOne({ digest }, { maxTimeMS: read_limit_ms });
    if (found === null) return undefined;
    const { account, username, scope, id, expires_at } = found;
    return {
      account: String(account),
      user: String(username),
      scope: scope as Scope,
      key_id: String(id),
      expires_at: typeof expires_at === 'number' ? expires_at : Number.POSITIVE_INFINITY,
    };
  }

  return {
    async find(text, now) {
      if (text.length > max_key_length) return undefined;
      const digest = digestOf(text);
      const cached = cache.get(digest);
      let key = cached?.key;
      if (cached === undefined || cached.until <= now) {
        const started = invalidations;
        key = await load(digest);
        // a key revoked while it was being looked up must not enter the cache
        if (started === invalidations) cache.set(digest, { key, until: now + (key ? cache_s : unknown_cache_s) });
      }
      return key !== undefined && key.expires_at > now ? key : undefined;
    },
    invalidate(key_id) {
      invalidations++;
      for (const [digest, { key }] of cache.entries()) if (key?.key_id === key_id) cache.delete(digest);
    },
  };
}

function digestOf(key: string): string {
  return hash('sha256', key, 'hex');
}

/** Issues a key of 256 random bits; only its SHA-256 is stored. `now` in epoch seconds. */
export async function issueKey(db: Database, wanted: NewKey, now: number): Promise<{ id: string; key: string }> {
  const key = randomBytes(32).toString('base64url');
  return { id: await storeKey(db, key, wanted, now), key };
}

async function storeKey(db: Database, key: string, wanted: NewKey, now: number): Promise<string> {
  const _id = db.newId();
  const id = String(_id);
  await db.collection('apikeys').insertOne({ _id, id, digest: digestOf(key), ...wanted, created_at: now });
  return id;
}

/** @throws AppError notFound (4041) unless the account has a key with this id */
export async function revokeKey(db: Database, account: string, id: string): Promise<void> {
  const { deletedCount } = await db.collection('apikeys').deleteOne({ account, id });
  if (deletedCount === 0) throw new AppError('notFound');
}

/** A key as its account sees it: never the key itself. */
export interface ListedKey {
  id: string;
  username: string;
  scope: Scope;
  created_at: number;
  description?: string;
  expires_at?: number;
}

/** The keys of an account that are not revoked, oldest first: for operators; clients list them over HTTP. */
export async function listKeys(db: Database, account: string): Promise<ListedKey[]> {
  const found = await db
    .collection('apikeys')
    .find({ account }, { sort: { _id: 1 } })
    .toArray();
  return found as unknown as ListedKey[];
}

/** Revokes a key of whichever account: for operators. @returns whether there was one */
export async function revokeByOperator(db: Database, id: string): Promise<boolean> {
  return (await db.collection('apikeys').deleteOne({ id })).deletedCount > 0;
}

/**
 * Gives an empty database its first key: `bootstrap` where it is set, else a new one (contract 1).
 * Instances that start at once agree on one, as all of them would take the same place.
 * @returns the key, if it was made here
 */
export async function createBootstrapKey(
  db: Database,
  bootstrap: string | undefined,
  now: number,
): Promise<string | undefined> {
  const keys = db.collection('apikeys');
  if ((await keys.findOne({}, { projection: { _id: 1 } })) !== null) return undefined;
  const key = bootstrap ?? randomBytes(32).toString('base64url');
  const _id = db.firstId;
  const first = {
    id: String(_id),
    digest: digestOf(key),
    account: 'demo',
    username: 'admin',
    scope: 'admin',
    created_at: now,
  };
  const { upsertedCount } = await keys.updateOne({ _id }, { $setOnInsert: first }, { upsert: true });
  return upsertedCount === 1 ? key : undefined;
}
