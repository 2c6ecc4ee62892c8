import { parentFields } from '../api/resources.js';
import { isDeepEqual } from '../lib/compare.js';

export type Values = Record<string, unknown>;

/** Returns the fields that differ from `base`, as an update takes them: `null` removes a field, save those that are kept. */
export function findChanges(base: Values, edited: Values, fields: readonly string[], kept = parentFields): Values {
  const changed = fields.filter((field) => !isDeepEqual(base[field], edited[field]));
  const entries = changed.map((field) => [field, edited[field] ?? null] as const);
  return Object.fromEntries(entries.filter(([field, value]) => value !== null || !kept.includes(field)));
}

/** A field that both sides have changed, or only the other one. */
export interface FieldConflict {
  field: string;
  base: unknown;
  theirs: unknown;
  mine: unknown;
}

/** Compares changes with a newer version of the object, field by field. */
export function findConflicts(base: Values, theirs: Values, changes: Values): FieldConflict[] {
  return Object.entries(changes)
    .filter(([field, mine]) => !isDeepEqual(base[field], theirs[field]) && !isDeepEqual(theirs[field] ?? null, mine))
    .map(([field, mine]) => ({ field, base: base[field], theirs: theirs[field], mine: mine ?? undefined }));
}
