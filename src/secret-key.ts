import { randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** The key that encrypts linked storage credentials: made on the first start and kept in `data_dir` (contract 1). */
export async function secretKey(data_dir: string): Promise<string> {
  const file = join(data_dir, 'secret.key');
  const made = randomBytes(32).toString('base64url');
  await writeFile(file, `${made}\n`, { mode: 0o600, flag: 'wx' }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error;
  });
  return (await readFile(file, 'utf8')).trim();
}
