import { createCipheriv, createDecipheriv, randomBytes, type ScryptOptions, scrypt } from 'node:crypto';
import { promisify } from 'node:util';
import { StartError } from '../errors.js';

type DeriveKey = (passphrase: string, salt: Buffer, bytes: number, options: ScryptOptions) => Promise<Buffer>;
const deriveKey = promisify(scrypt) as DeriveKey;
const cipher = 'aes-256-gcm';
const associated = Buffer.from('device platform: SECRET_KEY in a backup');
/** 128 MiB and about half a second: a passphrase may be guessed for as long as the file exists. */
const cost = { N: 2 ** 17, r: 8, p: 1, maxmem: 256 * 1024 * 1024 };

/** A SECRET_KEY encrypted under a passphrase; base64. */
export interface SealedKey {
  salt: string;
  iv: string;
  tag: string;
  key: string;
}

/** Encrypts a SECRET_KEY under a passphrase. */
export async function sealKey(secret_key: string, passphrase: string): Promise<SealedKey> {
  const [salt, iv] = [randomBytes(16), randomBytes(12)];
  const encryption = createCipheriv(cipher, await deriveKey(passphrase, salt, 32, cost), iv).setAAD(associated);
  const key = Buffer.concat([encryption.update(secret_key), encryption.final()]);
  const parts = { salt, iv, tag: encryption.getAuthTag(), key };
  return Object.fromEntries(Object.entries(parts).map(([name, bytes]) => [name, bytes.toString('base64')])) as never;
}

/** Decrypts a SECRET_KEY. @throws StartError for a wrong passphrase */
export async function openKey(sealed: SealedKey, passphrase: string): Promise<string> {
  const bytesOf = (name: keyof SealedKey) => Buffer.from(sealed[name], 'base64');
  const derived = await deriveKey(passphrase, bytesOf('salt'), 32, cost);
  const decryption = createDecipheriv(cipher, derived, bytesOf('iv'), { authTagLength: 16 })
    .setAAD(associated)
    .setAuthTag(bytesOf('tag'));
  try {
    return Buffer.concat([decryption.update(bytesOf('key')), decryption.final()]).toString();
  } catch {
    throw new StartError('--passphrase is not the one of the backup; nothing was changed');
  }
}
