import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { StartError } from '../errors.js';
import { createAtomically, writeAtomically } from '../lib/atomic-file.js';
import { ignore } from '../lib/promises.js';

/** Attempts lost to other instances that take and release the lock. */
const max_attempts = 100;

/**
 * Locks `dataDir` for this process with the lock file `path`, replacing the lock of a process that has died.
 * @returns the function that unlocks it. @throws StartError if a living process holds the lock
 */
export async function lockDataDir(path: string, dataDir: string): Promise<() => Promise<void>> {
  const ownLock = `${process.pid} ${await readStartTime(process.pid)} ${randomUUID()}\n`;
  for (let attempt = 1; !(await createAtomically(path, ownLock)); attempt += 1) {
    const otherLock = await readLock(path);
    if (otherLock !== undefined && (await isHolderAlive(otherLock))) {
      const pid = otherLock.split(' ')[0];
      throw new StartError(`DATA_DIR ${dataDir} is in use by process ${pid} (if that is wrong, remove ${path})`);
    }
    if (otherLock !== undefined && (await replaceLock(path, dataDir, otherLock, ownLock))) break;
    // such as a symbolic link that leads nowhere
    if (attempt === max_attempts) throw new Error(`${path} can be neither created nor read`);
  }
  return async () => {
    if ((await readLock(path).catch(() => undefined)) === ownLock) await rm(path, { force: true });
  };
}

/** Replaces a dead process's lock, under a lock of its own: otherwise two processes could each replace the other's new lock. */
async function replaceLock(path: string, dataDir: string, deadLock: string, ownLock: string): Promise<boolean> {
  const unlock = await lockDataDir(`${path}.replace`, dataDir);
  try {
    if ((await readLock(path)) !== deadLock) return false;
    await writeAtomically(path, ownLock);
    return true;
  } finally {
    await unlock();
  }
}

/** @returns undefined if there is no lock. @throws Error of the file system if it cannot be read */
function readLock(path: string): Promise<string | undefined> {
  return readFile(path, 'utf8').catch(ignore((error) => (error as NodeJS.ErrnoException).code === 'ENOENT'));
}

async function isHolderAlive(lock: string): Promise<boolean> {
  const [pid = '', startTime = ''] = lock.trim().split(' ');
  return /^\d+$/.test(pid) && (await readStartTime(Number(pid))) === startTime;
}

/** The start time of a process in clock ticks since boot, which distinguishes it from a later one with its pid; '' if it is dead. */
async function readStartTime(pid: number): Promise<string> {
  if (existsSync('/proc/self/stat')) {
    const line = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
    // the second field, the name, may contain spaces and parentheses
    const fields = line.slice(line.lastIndexOf(')') + 2).split(' ');
    return fields[0] === 'Z' ? '' : (fields[19] ?? '');
  }
  try {
    process.kill(pid, 0);
    return 'unknown';
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM' ? 'unknown' : '';
  }
}
