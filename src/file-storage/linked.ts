import type { Database, Log } from '../db/database.js';
import { AppError } from '../errors.js';
import type { Vault } from '../lib/vault.js';
import type { Egress, FileStorage, Provider, Settings } from './providers/provider.js';
import {
  findEncryptedUnderOtherKey,
  findStorage,
  type LinkedStorage,
  resealStorage,
  type Sealed,
  type StoragePlace,
} from './store.js';

/** Everything that linking and listing storages needs. */
export interface StorageDeps {
  db: Database;
  providers: readonly Provider[];
  vault: Vault;
  egress: Egress;
}

/** The associated data of a link's settings, so that they open in no other link. */
function createAssociatedData({ account, provider, username }: StoragePlace): string {
  return JSON.stringify(['settings', account, provider, username]);
}

/** Encrypts settings for the database. */
export async function sealSettings(vault: Vault, place: StoragePlace, settings: Settings): Promise<Sealed> {
  return { sealed: await vault.seal(settings, createAssociatedData(place)), key_id: await vault.keyId() };
}

/** Names the settings that differ from those linked before: all of them if those are under another SECRET_KEY. */
export async function findChangedSettings(
  { db, vault }: Pick<StorageDeps, 'db' | 'vault'>,
  place: StoragePlace,
  settings: Settings,
): Promise<string[]> {
  const stored = await findStorage(db, place);
  const before = stored && ((await vault.open(stored.sealed, createAssociatedData(stored))) as Settings | undefined);
  return Object.keys({ ...before, ...settings }).filter((name) => before?.[name] !== settings[name]);
}

/** Decrypts stored settings. @throws AppError exception (5032) if they are under another SECRET_KEY or were tampered with */
async function openSettings(vault: Vault, stored: LinkedStorage): Promise<Settings> {
  const settings = await vault.open(stored.sealed, createAssociatedData(stored));
  if (settings !== undefined) return settings as Settings;
  const isOtherKey = stored.key_id !== (await vault.keyId());
  throw new AppError('exception', {
    message: isOtherKey
      ? 'the storage was linked under another SECRET_KEY; it opens again with that key'
      : 'the stored settings of the storage were changed; link it again',
  });
}

/** Opens a linked storage with its stored settings. @throws AppError exception (5032) */
export async function openLinkedStorage(
  { providers, vault, egress }: StorageDeps,
  stored: LinkedStorage,
): Promise<FileStorage> {
  const provider = providers.find(({ name }) => name === stored.provider);
  if (provider === undefined)
    throw new AppError('exception', { message: 'this kind of storage is no longer supported' });
  return provider.open(await openSettings(vault, stored), egress, stored.account);
}

/** Logs how many linked storages a changed SECRET_KEY has made unreadable. */
export async function warnOfOtherKeys({ db, vault }: Pick<StorageDeps, 'db' | 'vault'>, log: Log): Promise<void> {
  let count = 0;
  for await (const _ of findEncryptedUnderOtherKey(db, await vault.keyId())) count++;
  if (count > 0) log.error({ count }, 'linked storages are encrypted under another SECRET_KEY and cannot be opened');
}

/**
 * Re-encrypts all settings from the key of `from` to the key of `to`; settings that neither key opens stay unchanged.
 * @returns the numbers of storages re-encrypted and left unchanged
 */
export async function resealAll(db: Database, from: Vault, to: Vault): Promise<{ done: number; left: number }> {
  const counts = { done: 0, left: 0 };
  for await (const stored of findEncryptedUnderOtherKey(db, await to.keyId())) {
    const settings = await from.open(stored.sealed, createAssociatedData(stored));
    if (settings === undefined) counts.left++;
    // false if the storage was linked again in the meantime: the next run of the command picks it up
    else if (await resealStorage(db, stored, await sealSettings(to, stored, settings as Settings))) counts.done++;
  }
  return counts;
}
