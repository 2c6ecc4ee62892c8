import type { Database, Log } from '../db/database.js';
import { AppError } from '../errors.js';
import {
  encryptedUnderOtherKey,
  type LinkedStorage,
  resealStorage,
  type Sealed,
  type StoragePlace,
} from '../repositories/linked-storages.js';
import type { Egress, Provider, Settings, Storage } from './provider.js';
import { boundTo, type Vault } from './vault.js';

/** Everything that links and lists storages. */
export interface StorageDeps {
  db: Database;
  providers: readonly Provider[];
  vault: Vault;
  reach: Egress;
}

/** The settings as they are kept. */
export async function sealSettings(vault: Vault, place: StoragePlace, settings: Settings): Promise<Sealed> {
  return { sealed: await vault.seal(settings, boundTo(place)), key_id: await vault.key_id() };
}

/** @throws AppError exception (5032) if SECRET_KEY is not the one they were encrypted under, or something was put in their place */
export async function openSettings(vault: Vault, stored: LinkedStorage): Promise<Settings> {
  const settings = await vault.open(stored.sealed, boundTo(stored));
  if (settings !== undefined) return settings as Settings;
  const changed = stored.key_id !== (await vault.key_id());
  throw new AppError('exception', {
    message: changed
      ? 'the storage was linked under another SECRET_KEY; it opens again with that key'
      : 'what is kept of the storage was changed; link it again',
  });
}

/** A linked storage, ready to be asked. @throws AppError exception (5032) */
export async function openLinked({ providers, vault, reach }: StorageDeps, stored: LinkedStorage): Promise<Storage> {
  const provider = providers.find(({ name }) => name === stored.provider);
  if (provider === undefined)
    throw new AppError('exception', { message: 'this kind of storage is not there any more' });
  return provider.open(await openSettings(vault, stored), reach);
}

/** Tells the operator what cannot be opened since SECRET_KEY was changed. */
export async function warnOfOtherKeys({ db, vault }: Pick<StorageDeps, 'db' | 'vault'>, log: Log): Promise<void> {
  let count = 0;
  for await (const _ of encryptedUnderOtherKey(db, await vault.key_id())) count++;
  if (count > 0) log.error({ count }, 'linked storages are encrypted under another SECRET_KEY and cannot be opened');
}

/**
 * Encrypts all settings anew for the key of `to`; what opens with neither key stays as it is.
 * @returns how many it did and how many it left
 */
export async function resealAll(db: Database, from: Vault, to: Vault): Promise<{ done: number; left: number }> {
  const counts = { done: 0, left: 0 };
  for await (const stored of encryptedUnderOtherKey(db, await to.key_id())) {
    const settings = await from.open(stored.sealed, boundTo(stored));
    if (settings === undefined) counts.left++;
    // linked anew meanwhile: what is there now is the next round's
    else if (await resealStorage(db, stored, await sealSettings(to, stored, settings as Settings))) counts.done++;
  }
  return counts;
}
