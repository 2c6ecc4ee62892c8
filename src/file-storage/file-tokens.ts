import type { LinkedStorage, StoragePlace } from '../repositories/linked-storages.js';
import { links_last_s } from './provider.js';
import type { Vault } from './vault.js';

const purpose = 'file link';

/** What a link of our own leads to. */
export interface LinkedFile extends StoragePlace {
  /** Of the linking it was made for. */
  link: string;
  path: string;
}

/** The part of an address that opens one file until it expires, and tells nothing. `now` in epoch seconds */
export async function createFileToken(vault: Vault, stored: LinkedStorage, path: string, now: number): Promise<string> {
  const { account, provider, username, link } = stored;
  const sealed = await vault.seal([account, provider, username, link, path, now + links_last_s], purpose);
  return sealed.toString('base64url');
}

/** @returns undefined for what is no such token, or an expired one. `now` in epoch seconds */
export async function openFileToken(vault: Vault, token: string, now: number): Promise<LinkedFile | undefined> {
  const given = await vault.open(Buffer.from(token, 'base64url'), purpose);
  if (!Array.isArray(given)) return undefined;
  const [account, provider, username, link, path, expires_at] = given as [
    string,
    string,
    string,
    string,
    string,
    number,
  ];
  return now < expires_at ? { account, provider, username, link, path } : undefined;
}
