import { createCipheriv, createDecipheriv, createHash, randomBytes, scrypt } from 'node:crypto';
import { promisify } from 'node:util';
import { awaitLater } from './promises.js';

const deriveKey = promisify(scrypt) as (secret: string, salt: string, bytes: number) => Promise<Buffer>;
const cipher = 'aes-256-gcm';
const iv_bytes = 12;
const tag_bytes = 16;

/** Authenticated encryption under SECRET_KEY; `associated` is bound to the ciphertext (reference/file-storage.md#encryption). */
export type Vault = ReturnType<typeof openVault>;

/** Opens the vault. The key is derived on first use: scrypt takes about 50 ms, as secrets may be guessable words. */
export function openVault(secret_key: string) {
  let derivedKey: Promise<Buffer> | undefined;
  const key = () => {
    derivedKey ??= awaitLater(deriveKey(secret_key, 'device platform: linked storage', 32));
    return derivedKey;
  };
  return {
    /** An identifier of the key that reveals nothing else about it. */
    async keyId(): Promise<string> {
      return createHash('sha256')
        .update('key id')
        .update(await key())
        .digest('hex')
        .slice(0, 16);
    },

    /** @returns nonce, tag and ciphertext */
    async seal(value: unknown, associated: string): Promise<Buffer> {
      const iv = randomBytes(iv_bytes);
      const encryption = createCipheriv(cipher, await key(), iv).setAAD(Buffer.from(associated));
      const ciphertext = Buffer.concat([encryption.update(JSON.stringify(value)), encryption.final()]);
      return Buffer.concat([iv, encryption.getAuthTag(), ciphertext]);
    },

    /** @returns undefined unless the value was sealed under this key, with this associated data, and is unchanged */
    async open(sealed: Uint8Array, associated: string): Promise<unknown> {
      const bytes = Buffer.from(sealed.buffer, sealed.byteOffset, sealed.byteLength);
      if (bytes.length < iv_bytes + tag_bytes) return undefined;
      const decryption = createDecipheriv(cipher, await key(), bytes.subarray(0, iv_bytes), {
        authTagLength: tag_bytes,
      })
        .setAAD(Buffer.from(associated))
        .setAuthTag(bytes.subarray(iv_bytes, iv_bytes + tag_bytes));
      try {
        const plaintext = Buffer.concat([decryption.update(bytes.subarray(iv_bytes + tag_bytes)), decryption.final()]);
        return JSON.parse(plaintext.toString());
      } catch {
        return undefined;
      }
    },
  };
}
