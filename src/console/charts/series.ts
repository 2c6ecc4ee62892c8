import type { SeriesMetadata } from '../api/interface.js';
import type { ListAnswer } from '../api/list-answer.js';

/** One bucket of a series. */
export interface Bucket {
  at: number;
  count: number;
  [path: string]: number | { avg?: number; min?: number; max?: number };
}

export type Series = ListAnswer<Bucket> & { metadata: SeriesMetadata };

/** A series takes so many paths at once. */
export const max_paths = 10;

/** Finds the paths of numbers in data, as a series names them, at most as deep as people would choose from. */
export function findNumberPaths(data: unknown, keys: readonly string[] = []): string[] {
  if (typeof data === 'number') return keys.length === 0 ? [] : [joinPath(keys)];
  if (typeof data !== 'object' || data === null || Array.isArray(data) || keys.length >= 4) return [];
  return Object.entries(data)
    .filter(([key]) => !key.includes(','))
    .flatMap(([key, value]) => findNumberPaths(value, [...keys, key]));
}

/** Joins keys by dots, or as a JSON Pointer (RFC 6901) where dots would be read wrongly. */
export function joinPath(keys: readonly string[]): string {
  const isPlain = keys.every((key) => key !== '' && !key.includes('.') && !key.startsWith('/'));
  if (isPlain && !(keys.length === 1 && ['at', 'count', 'device'].includes(keys[0] ?? ''))) return keys.join('.');
  return keys.map((key) => `/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
}
