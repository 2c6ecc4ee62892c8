import mongoose from 'mongoose';
import type { Database } from '../db/database.js';
import { AppError } from '../errors.js';
import type { Vault } from '../lib/vault.js';
import { createSealedError, type SealedType } from '../objects/write/sealed-values.js';
import { filestore } from '../resources/index.js';
import type { Egress, FileStorage, Provider, Settings } from './providers/provider.js';
import { findStorage, type LinkedStorage, type Sealed, type StoragePlace } from './store.js';

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
  const sealed = new mongoose.mongo.Binary(await vault.seal(settings, createAssociatedData(place)));
  return { sealed, key_id: await vault.keyId() };
}

/** @returns undefined if the settings are under another SECRET_KEY or were tampered with */
async function openSettings(vault: Vault, stored: LinkedStorage): Promise<Settings | undefined> {
  return (await vault.open(stored.sealed.value(), createAssociatedData(stored))) as Settings | undefined;
}

/** Storages with their encrypted settings. */
export const sealedStorages: SealedType<LinkedStorage, Settings> = {
  plural: filestore.plural,
  revision: 'link',
  open: openSettings,
  seal: sealSettings,
};

/** Names the settings that differ from those linked before: all of them if those are under another SECRET_KEY. */
export async function findChangedSettings(
  { db, vault }: Pick<StorageDeps, 'db' | 'vault'>,
  place: StoragePlace,
  settings: Settings,
): Promise<string[]> {
  const stored = await findStorage(db, place);
  const before = stored && (await openSettings(vault, stored));
  return Object.keys({ ...before, ...settings }).filter((name) => before?.[name] !== settings[name]);
}

/** Opens a linked storage with its stored settings. @throws AppError exception (5032), also under another SECRET_KEY */
export async function openLinkedStorage(
  { providers, vault, egress }: StorageDeps,
  stored: LinkedStorage,
): Promise<FileStorage> {
  const provider = providers.find(({ name }) => name === stored.provider);
  if (provider === undefined)
    throw new AppError('exception', { message: 'this kind of storage is no longer supported' });
  const settings = await openSettings(vault, stored);
  if (settings !== undefined) return provider.open(settings, egress, stored.account);
  const changed = 'the stored settings of the storage were changed; link it again';
  throw await createSealedError(vault, stored, { made: 'the storage was linked', changed });
}
