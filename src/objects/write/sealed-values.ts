import { type Database, read_limit_ms, type StoredDocument } from '../../db/database.js';
import { AppError } from '../../errors.js';
import type { Vault } from '../../lib/vault.js';

/** Documents of one type, each with a value that is encrypted under SECRET_KEY. */
export interface SealedType<T, V> {
  plural: string;
  /** Field that changes whenever another value is stored. */
  revision: string;
  /** @returns undefined if the value is under another SECRET_KEY or was tampered with */
  open(vault: Vault, stored: T): Promise<V | undefined>;
  /** Encrypts a value. @returns the fields that hold it */
  seal(vault: Vault, stored: T, value: V): Promise<{ key_id: string }>;
}

/** Creates the failure of a value that does not open. @param texts how it was made, and what helps if it was changed */
export async function createSealedError(
  vault: Vault,
  { key_id }: { key_id?: string },
  texts: { made: string; changed: string },
): Promise<AppError> {
  const isOtherKey = key_id !== (await vault.keyId());
  const message = isOtherKey ? `${texts.made} under another SECRET_KEY; it opens again with that key` : texts.changed;
  return new AppError('exception', { message });
}

/** Counts the values that a changed SECRET_KEY has made unreadable. */
export async function countUnderOtherKey(db: Database, vault: Vault, { plural }: { plural: string }): Promise<number> {
  return db.collection(plural).countDocuments(await selectUnderOtherKey(vault), { maxTimeMS: read_limit_ms });
}

/**
 * Encrypts all values under the key of `to` instead of the key of `from`; those that neither key opens stay unchanged.
 * @returns the numbers of documents encrypted again and left unchanged
 */
export async function resealAll<T, V>(
  db: Database,
  { plural, revision, open, seal }: SealedType<T, V>,
  from: Vault,
  to: Vault,
): Promise<{ done: number; left: number }> {
  const counts = { done: 0, left: 0 };
  const documents = db.collection(plural);
  const cursor = documents.find(await selectUnderOtherKey(to), { maxTimeMS: read_limit_ms });
  for await (const document of cursor) {
    const stored = document as T & StoredDocument;
    const value = await open(from, stored);
    if (value === undefined) {
      counts.left++;
      continue;
    }
    const { _id, key_id } = stored;
    const unchanged = { _id, key_id, [revision]: stored[revision] };
    const { matchedCount } = await documents.updateOne(unchanged, { $set: await seal(to, stored, value) });
    // 0 if the value was replaced in the meantime: the next run of the command picks it up
    counts.done += matchedCount;
  }
  return counts;
}

async function selectUnderOtherKey(vault: Vault) {
  return { key_id: { $exists: true, $ne: await vault.keyId() } };
}
