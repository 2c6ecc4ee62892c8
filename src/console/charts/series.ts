import type { SeriesMetadata } from '../api/interface.js';
import type { ListAnswer } from '../api/list-answer.js';
import { findScalars } from '../lib/paths.js';

/** One bucket of a series. */
export interface Bucket {
  at: number;
  count: number;
  [path: string]: number | { avg?: number; min?: number; max?: number };
}

export type Series = ListAnswer<Bucket> & { metadata: SeriesMetadata };

/** A series takes so many paths at once. */
export const max_paths = 10;

/** Finds the paths of numbers in data, as a series names them. */
export function findNumberPaths(data: unknown): string[] {
  return findScalars(data).flatMap(({ path, value }) => (typeof value === 'number' ? [path] : []));
}
