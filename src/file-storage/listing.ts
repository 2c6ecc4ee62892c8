import { setImmediate as yieldTurn } from 'node:timers/promises';
import { createTooManyFilesFault, max_files, max_path_length, StorageFault, type StorageLimits } from './limits.js';
import type { FileStorage, StoredFile } from './providers/provider.js';
import { sortInSlices, sortRandomly } from './sort.js';

export const listOrders = ['all', 'newest', 'oldest', 'random'] as const;
export type ListOrder = (typeof listOrders)[number];

/**
 * Lists the files of a storage in the order that `op` names, or only those called `name` (reference/file-storage.md#listing).
 * @throws StorageFault, also when the signal of the limits aborts
 */
export async function listFiles(
  storage: FileStorage,
  { op, name }: { op: ListOrder; name: string | undefined },
  limits: StorageLimits,
): Promise<StoredFile[]> {
  const files: StoredFile[] = [];
  for await (const page of storage.files(limits)) {
    for (const file of page) {
      // a path that is not well-formed Unicode cannot be part of a URL
      const isShown = file.path.length <= max_path_length && file.path.isWellFormed();
      if (isShown && (name === undefined || getFileName(file) === name)) files.push(file);
    }
    if (files.length > max_files) throw createTooManyFilesFault();
  }
  const pause = async () => {
    await yieldTurn();
    if (limits.signal.aborted) throw new StorageFault('address', 'did not answer in time');
  };
  return sortFiles(files, op, pause);
}

/** The last segment of a file's path. */
export function getFileName({ path }: Pick<StoredFile, 'path'>): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

function sortFiles(files: StoredFile[], op: ListOrder, pause: () => Promise<void>): Promise<StoredFile[]> {
  if (op === 'random') return sortRandomly(files, pause);
  const byPath = (a: StoredFile, b: StoredFile) => (a.path < b.path ? -1 : 1);
  if (op === 'all') return sortInSlices(files, byPath, pause);
  const direction = op === 'newest' ? -1 : 1;
  return sortInSlices(files, (a, b) => direction * (a.modified_at - b.modified_at) || byPath(a, b), pause);
}
