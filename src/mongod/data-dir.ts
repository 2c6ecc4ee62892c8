import { existsSync } from 'node:fs';
import { chmod, mkdir, readdir, realpath, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';

/** Creates the data folder, readable by this user only. @returns its real path. @throws Error of the file system */
export async function createDataDir(path: string): Promise<string> {
  await createFolder(resolve(path));
  const dataDir = await realpath(path);
  await restrictAccess(dataDir);
  await createFolder(join(dataDir, 'db'));
  await chmod(join(dataDir, 'db'), 0o700);
  return dataDir;
}

/** Reports whether the data folder holds a database. */
export function hasDatabase(path: string): boolean {
  return existsSync(join(path, 'db', 'WiredTiger'));
}

/** Not `mkdir` with `recursive`: it never returns for a path such as /proc/nope, which cannot exist although its parent does. */
async function createFolder(path: string): Promise<void> {
  try {
    await mkdir(path, { mode: 0o700 });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST' && (await stat(path)).isDirectory()) return;
    const parent = dirname(path);
    if (code !== 'ENOENT' || existsSync(parent)) throw error;
    await createFolder(parent);
    await createFolder(path);
  }
}

/** Takes the rights of other users away, unless the folder holds other things than data of the service or belongs to another user. */
async function restrictAccess(dataDir: string): Promise<void> {
  const { mode, uid } = await stat(dataDir);
  if ((mode & 0o077) === 0 || uid !== process.getuid?.()) return;
  const entries = await readdir(dataDir);
  if (entries.length === 0 || entries.includes('mongod.json')) await chmod(dataDir, 0o700);
}
