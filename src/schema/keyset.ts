import { max_identifier_length } from './fields/text.js';
import type { ListedType } from './resource.js';

/** Values of the keys by which a list is ordered, of its last object so far; ids and numbers of creation are hexadecimal. */
export type Position = readonly (string | number)[];

/** Characters of the longest `next`. */
export const max_next_length = 600;

/**
 * The `sort` value in whose order `after` continues a list: the identifier, or the default order of a type whose objects
 * have none that is stored (reference/lists.md#continuation).
 */
export function keysetSortOf({ unique, defaultSort }: ListedType): string {
  return hasIdentifier(unique) ? 'id_developer' : defaultSort;
}

/** The stored paths of that order, without those that are the same for all objects. */
export function keyPathsOf(listed: ListedType): readonly string[] {
  const { unique, sorts, defaultSort, parentField, clusteredBy } = listed;
  if (clusteredBy !== undefined) return clusteredBy.slice(1);
  if (hasIdentifier(unique)) return ['id_developer'];
  const parent = parentField === undefined ? [] : [parentField];
  return [...new Set([...parent, ...(sorts.get(defaultSort) ?? [defaultSort]), '_id'])];
}

function hasIdentifier(unique: ListedType['unique']): boolean {
  return unique.some((keys) => keys.join() === 'account,id_developer');
}

/** Writes the value of `next` for the keys of the last object of a page. */
export function formatPosition(position: Position): string {
  const [first] = position;
  if (position.length === 1 && typeof first === 'string') return first;
  return Buffer.from(JSON.stringify(position)).toString('base64url');
}

const hexadecimals: ReadonlyMap<string, RegExp> = new Map([
  ['_id', /^[0-9a-f]{32}$/],
  ['n', /^[0-9a-f]{16}$/],
]);

/** Reads a value of `after`. @returns empty for `0`, undefined for what `formatPosition` does not write */
export function parsePosition(listed: ListedType, text: string): Position | undefined {
  if (text === '0') return [];
  const paths = keyPathsOf(listed);
  if (paths.length === 1) return text.includes('@') && text.length <= 2 * max_identifier_length ? [text] : undefined;
  const values = parseArray(text);
  if (values?.length !== paths.length) return undefined;
  const isValid = values.every((value, index) => {
    const hexadecimal = hexadecimals.get(paths[index] ?? '');
    if (hexadecimal !== undefined) return typeof value === 'string' && hexadecimal.test(value);
    return typeof value === 'number' || (typeof value === 'string' && value.isWellFormed() && !value.includes('\0'));
  });
  return isValid ? (values as Position) : undefined;
}

function parseArray(text: string): unknown[] | undefined {
  try {
    const value: unknown = JSON.parse(Buffer.from(text, 'base64url').toString());
    return Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
