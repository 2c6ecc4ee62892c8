import type { Field, Fields } from './fields.js';
import { isRequestable } from './requested.js';
import type { ListedType } from './resource.js';

/** Names of the members that the objects of a list show, with the members in them. */
export interface Columns {
  /** Columns of CSV in order; declared members of objects as `networking.type`. */
  names: readonly string[];
  /** Members that are no columns unless `fields` names them. */
  requested?: Fields;
  /** Reports whether `fields` may name this path (reference/exports.md#fields). */
  has(path: string): boolean;
}

/** The names of members that identify an object; they are the first columns. */
const identifyingNames: readonly string[] = ['id_developer', 'id'];

/** Derives the columns of a listed type: identifier, fields, then what only the service writes. */
export function columnsOf({ fields, readOnly, requested, omittedFromLists }: ListedType): Columns {
  const shown = Object.entries({ ...fields, ...readOnly }).filter(
    // passwords are written and never shown
    ([key, { type }]) =>
      !omittedFromLists.includes(key) && type.responseSchema !== 'never' && type.schema.format !== 'password',
  );
  const identity = shown.filter(([key]) => identifyingNames.includes(key));
  const others = shown.filter(([key]) => !identifyingNames.includes(key));
  const names = [...identity, ...others].flatMap(([key, field]) => expand(key, field));
  const paths = new Set([...names, ...shown.map(([key]) => key)]);
  const freeform = shown.filter(([, { type }]) => type.stored === 'freeform').map(([key]) => `${key}.`);
  return {
    names,
    requested,
    has: (path) =>
      paths.has(path) ||
      freeform.some((prefix) => path.startsWith(prefix) && path !== prefix) ||
      isRequestable(requested, path),
  };
}

function expand(key: string, { type: { members } }: Field): string[] {
  return members === undefined
    ? [key]
    : Object.entries(members).flatMap(([name, inner]) => expand(`${key}.${name}`, inner));
}
