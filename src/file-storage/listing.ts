import { StorageFault, type StorageLimits } from './limits.js';
import type { FileStorage, StoredFile } from './provider.js';

export const listOrders = ['all', 'newest', 'oldest', 'random'] as const;
export type ListOrder = (typeof listOrders)[number];

const max_files = 500_000;

/**
 * Lists the files of a storage in the order that `op` names, or only those called `name` (reference/file-storage.md#listing).
 * @throws StorageFault
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
      if (file.path.isWellFormed() && (name === undefined || getFileName(file) === name)) files.push(file);
    }
    if (files.length > max_files) throw new StorageFault('folder', `holds more than ${max_files} files`);
  }
  return sortFiles(files, op);
}

/** The last segment of a file's path. */
export function getFileName({ path }: Pick<StoredFile, 'path'>): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

function sortFiles(files: StoredFile[], op: ListOrder): StoredFile[] {
  if (op === 'random') return shuffle(files);
  const byPath = (a: StoredFile, b: StoredFile) => (a.path < b.path ? -1 : 1);
  if (op === 'all') return files.sort(byPath);
  const direction = op === 'newest' ? -1 : 1;
  return files.sort((a, b) => direction * (a.modified_at - b.modified_at) || byPath(a, b));
}

/** Fisher–Yates. */
function shuffle(files: StoredFile[]): StoredFile[] {
  for (const [last] of files.entries()) {
    const other = Math.floor(Math.random() * (last + 1));
    const [a, b] = [files[last], files[other]];
    if (a === undefined || b === undefined) continue;
    files[last] = b;
    files[other] = a;
  }
  return files;
}
