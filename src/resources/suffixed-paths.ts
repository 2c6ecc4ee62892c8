import { formatPointer } from '../schema/data-path.js';
import { list } from '../schema/fields/list.js';
import { text } from '../schema/fields/text.js';
import { optional } from '../schema/fields.js';
import { suffixes } from '../schema/path-filters.js';
import type { StoredChange } from '../schema/resource.js';

/** More of an object are not kept: they would be as many index entries. */
const max_kept = 100;

/** Hidden field of objects with `properties`: JSON Pointers of the keys that end as parameters of filters do. */
export const suffixedPaths = optional(list(text(1000), { max: max_kept }));

/** Index of the objects that have such keys, which are few. */
export const bySuffixedPath = {
  key: { account: 1, suffixed_paths: 1 },
  partialFilterExpression: { suffixed_paths: { $exists: true } },
} as const;

/** Finds the keys in properties that end as the parameter of a comparison does, and so may be meant by one. */
export function findSuffixedPaths(properties: unknown): string[] {
  const found = new Set<string>();
  const visit = (value: unknown, parent: string): void => {
    if (typeof value !== 'object' || value === null) return;
    for (const [key, member] of Object.entries(value)) {
      const pointer = parent + formatPointer({ steps: [{ key }] });
      if (found.size < max_kept && suffixes.some((suffix) => key.endsWith(suffix))) found.add(pointer);
      visit(member, pointer);
    }
  };
  visit(properties, '');
  return [...found];
}

/** Adds a hidden list to a change that follows from the value of a field; an empty one is not stored. */
export function deriveHidden<Change extends Pick<StoredChange, 'set' | 'unset'>>(
  change: Change,
  field: string,
  hidden: string,
  derive: (value: unknown) => readonly unknown[],
): Change {
  const { set, unset } = change;
  if (set[field] === undefined && !unset.includes(field)) return change;
  const derived = derive(set[field]);
  if (derived.length === 0) return { ...change, unset: [...unset, hidden] };
  return { ...change, set: { ...set, [hidden]: derived } };
}
