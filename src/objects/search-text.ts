import type { Values } from '../schema/fields.js';
import { buildSearchText, search_separator, toFolded } from '../schema/search.js';

/** Returns the changes that keep the search text of an object up to date, in one write with the others. */
export function buildSearchChange(
  id: string,
  set: Values,
  unset: readonly string[],
): { set?: { search_text: string }; derived?: { search_text: object } } {
  const isNameSet = 'name' in set;
  const isDescriptionSet = 'description' in set || unset.includes('description');
  if (!isNameSet && !isDescriptionSet) return {};
  const { name, description = '' } = set;
  if (isNameSet && isDescriptionSet)
    return { set: { search_text: buildSearchText({ name, id_developer: id, description }) } };
  const stored = { $split: ['$search_text', search_separator] };
  const parts = [
    isNameSet ? literal(toFolded(String(name))) : { $arrayElemAt: [stored, 0] },
    literal(search_separator),
    { $arrayElemAt: [stored, 1] },
    literal(search_separator),
    isDescriptionSet ? literal(toFolded(String(description))) : { $arrayElemAt: [stored, 2] },
  ];
  return { derived: { search_text: { $concat: parts } } };
}

function literal(text: string): object {
  return { $literal: text };
}
