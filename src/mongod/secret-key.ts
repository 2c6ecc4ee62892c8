import { randomBytes } from 'node:crypto';
import { readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { StartError } from '../errors.js';
import { createAtomically } from '../lib/atomic-file.js';

/** Generates a key of 256 random bits. */
export function generateSecret(): string {
  return randomBytes(32).toString('base64url');
}

const key_file = 'secret.key';
const next_key_file = 'secret.key.next';

/** Loads the SECRET_KEY of `data_dir`, which is `initial` from the first start on (reference/configuration.md#secret-key). @throws StartError */
export function loadSecretKey(data_dir: string, initial = generateSecret()): Promise<string> {
  return readOrCreate(data_dir, key_file, initial);
}

/** Stores `wanted`, or a generated key, as the next SECRET_KEY. Until that is adopted, every call returns the same key. */
export function prepareNextSecretKey(data_dir: string, wanted = generateSecret()): Promise<string> {
  return readOrCreate(data_dir, next_key_file, wanted);
}

/** Replaces the SECRET_KEY of `data_dir` by the next one. */
export async function adoptSecretKey(data_dir: string): Promise<void> {
  await rename(join(data_dir, next_key_file), join(data_dir, key_file));
}

/** @returns the key in the file, which is created with `key` if it does not exist. @throws StartError if it holds no key */
async function readOrCreate(data_dir: string, name: string, key: string): Promise<string> {
  const file = join(data_dir, name);
  const refuse = (reason: string): never => {
    throw new StartError(`DATA_DIR ${data_dir} cannot be used: ${reason}`);
  };
  const read = async () => {
    await createAtomically(file, `${key}\n`);
    return (await readFile(file, 'utf8')).trim();
  };
  const stored = await read().catch((error: Error) => refuse(error.message));
  if (stored === '') refuse(`${file} is empty; restore it, or remove it if no storage is linked`);
  return stored;
}
