import { StorageFault, type StorageLimits } from './limits.js';
import type { Storage, StoredFile } from './provider.js';

export const orders = ['all', 'newest', 'oldest', 'random'] as const;
export type Order = (typeof orders)[number];

const most_files = 500_000;

/**
 * The files of a storage in the order that `op` means, those called `name` where it is given (§4.11).
 * @throws StorageFault
 */
export async function listFiles(
  storage: Storage,
  { op, name }: { op: Order; name: string | undefined },
  bounds: StorageLimits,
): Promise<StoredFile[]> {
  const files: StoredFile[] = [];
  for await (const page of storage.files(bounds)) {
    // what is no text cannot stand in an address
    const named = page.filter((file) => file.path.isWellFormed() && (name === undefined || nameOf(file) === name));
    for (const file of named) files.push(file);
    if (files.length > most_files) throw new StorageFault('folder', `holds more than ${most_files} files`);
  }
  return ordered(files, op);
}

/** The last part of a file's path. */
export function nameOf({ path }: Pick<StoredFile, 'path'>): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

function ordered(files: StoredFile[], op: Order): StoredFile[] {
  if (op === 'random') return shuffled(files);
  const byPath = (a: StoredFile, b: StoredFile) => (a.path < b.path ? -1 : 1);
  if (op === 'all') return files.sort(byPath);
  const direction = op === 'newest' ? -1 : 1;
  return files.sort((a, b) => direction * (a.modified_at - b.modified_at) || byPath(a, b));
}

function shuffled(files: StoredFile[]): StoredFile[] {
  for (const [last] of files.entries()) {
    const other = Math.floor(Math.random() * (last + 1));
    const [a, b] = [files[last], files[other]];
    if (a === undefined || b === undefined) continue;
    files[last] = b;
    files[other] = a;
  }
  return files;
}
