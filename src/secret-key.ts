import { randomBytes } from 'node:crypto';
import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** A new key: 256 random bits. */
export function randomSecret(): string {
  return randomBytes(32).toString('base64url');
}

const fileIn = (data_dir: string) => join(data_dir, 'secret.key');
const nextIn = (data_dir: string) => join(data_dir, 'secret.key.next');

/** The key that encrypts linked storage credentials: made on the first start and kept in `data_dir` (contract 1). */
export function secretKey(data_dir: string): Promise<string> {
  return kept(fileIn(data_dir), randomSecret());
}

/** The key that is about to follow, the same until it is adopted: `wanted`, or one that is made. */
export function nextSecretKey(data_dir: string, wanted = randomSecret()): Promise<string> {
  return kept(nextIn(data_dir), wanted);
}

/** Puts the next key in the place of the present one. */
export async function adoptSecretKey(data_dir: string): Promise<void> {
  await rename(nextIn(data_dir), fileIn(data_dir));
}

/** What the file holds, which is `made` if there was none. */
async function kept(file: string, made: string): Promise<string> {
  await writeFile(file, `${made}\n`, { mode: 0o600, flag: 'wx' }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error;
  });
  return (await readFile(file, 'utf8')).trim();
}
