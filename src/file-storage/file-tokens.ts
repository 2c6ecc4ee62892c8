import type { Vault } from '../lib/vault.js';
import { link_ttl_s } from './providers/provider.js';
import type { LinkedStorage, StoragePlace } from './store.js';

const purpose = 'file link';

/** The file that a link through the service opens. */
export interface LinkedFile extends StoragePlace {
  /** The linking that the link was made for; see LinkedStorage. */
  link: string;
  path: string;
}

/** Creates the sealed token that opens one file until it expires. `now` in epoch seconds */
export async function createFileToken(vault: Vault, stored: LinkedStorage, path: string, now: number): Promise<string> {
  const { account, provider, username, link } = stored;
  const sealed = await vault.seal([account, provider, username, link, path, now + link_ttl_s], purpose);
  return sealed.toString('base64url');
}

/** Opens a token. @returns undefined if it is forged or expired. `now` in epoch seconds */
export async function openFileToken(vault: Vault, token: string, now: number): Promise<LinkedFile | undefined> {
  const content = await vault.open(Buffer.from(token, 'base64url'), purpose);
  if (!Array.isArray(content)) return undefined;
  const [account, provider, username, link, path, expires_at] = content as [
    string,
    string,
    string,
    string,
    string,
    number,
  ];
  return now < expires_at ? { account, provider, username, link, path } : undefined;
}
