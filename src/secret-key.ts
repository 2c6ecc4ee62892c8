import { randomBytes } from 'node:crypto';
import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** Generates a key of 256 random bits. */
export function generateSecret(): string {
  return randomBytes(32).toString('base64url');
}

const keyPath = (data_dir: string) => join(data_dir, 'secret.key');
const nextKeyPath = (data_dir: string) => join(data_dir, 'secret.key.next');

/** Loads the SECRET_KEY of `data_dir`, which is generated on the first start (reference/configuration.md#secret-key). */
export function loadSecretKey(data_dir: string): Promise<string> {
  return readOrCreate(keyPath(data_dir), generateSecret());
}

/** Stores `wanted`, or a generated key, as the next SECRET_KEY. Until that is adopted, every call returns the same key. */
export function prepareNextSecretKey(data_dir: string, wanted = generateSecret()): Promise<string> {
  return readOrCreate(nextKeyPath(data_dir), wanted);
}

/** Replaces the SECRET_KEY of `data_dir` by the next one. */
export async function adoptSecretKey(data_dir: string): Promise<void> {
  await rename(nextKeyPath(data_dir), keyPath(data_dir));
}

/** @returns the content of the file, which is created with `content` if it does not exist */
async function readOrCreate(file: string, content: string): Promise<string> {
  await writeFile(file, `${content}\n`, { mode: 0o600, flag: 'wx' }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error;
  });
  return (await readFile(file, 'utf8')).trim();
}
