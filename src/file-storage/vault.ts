import { createCipheriv, createDecipheriv, createHash, randomBytes, scrypt } from 'node:crypto';
import { promisify } from 'node:util';

const derive = promisify(scrypt) as (secret: string, salt: string, bytes: number) => Promise<Buffer>;
const cipher = 'aes-256-gcm';
const iv_bytes = 12;
const tag_bytes = 16;

/** Encrypts under SECRET_KEY with AES-256-GCM; what is sealed opens only with what it was bound to (contract 10). */
export interface Vault {
  /** Tells keys apart and nothing else about them. */
  key_id(): Promise<string>;
  /** @returns nonce, tag and ciphertext */
  seal(value: unknown, bound: string): Promise<Buffer>;
  /** @returns undefined for what was not sealed so: with this key, bound to this, unchanged */
  open(sealed: Uint8Array, bound: string): Promise<unknown>;
}

/** The key is derived once, when it is first needed: that takes some 50 ms on purpose, as secrets may be guessable words. */
export function openVault(secret_key: string): Vault {
  let derived: Promise<Buffer> | undefined;
  const key = () => {
    derived ??= derive(secret_key, 'device platform: linked storage', 32);
    return derived;
  };
  return {
    async key_id() {
      return createHash('sha256')
        .update('key id')
        .update(await key())
        .digest('hex')
        .slice(0, 16);
    },

    async seal(value, bound) {
      const iv = randomBytes(iv_bytes);
      const sealing = createCipheriv(cipher, await key(), iv).setAAD(Buffer.from(bound));
      const text = Buffer.concat([sealing.update(JSON.stringify(value)), sealing.final()]);
      return Buffer.concat([iv, sealing.getAuthTag(), text]);
    },

    async open(sealed, bound) {
      const bytes = Buffer.from(sealed.buffer, sealed.byteOffset, sealed.byteLength);
      if (bytes.length < iv_bytes + tag_bytes) return undefined;
      const opening = createDecipheriv(cipher, await key(), bytes.subarray(0, iv_bytes), { authTagLength: tag_bytes })
        .setAAD(Buffer.from(bound))
        .setAuthTag(bytes.subarray(iv_bytes, iv_bytes + tag_bytes));
      try {
        const text = Buffer.concat([opening.update(bytes.subarray(iv_bytes + tag_bytes)), opening.final()]);
        return JSON.parse(text.toString());
      } catch {
        return undefined;
      }
    },
  };
}

/** What the settings of a link are bound to: none opens in the place of another. */
export function boundTo({
  account,
  provider,
  username,
}: {
  account: string;
  provider: string;
  username: string;
}): string {
  return JSON.stringify(['settings', account, provider, username]);
}
