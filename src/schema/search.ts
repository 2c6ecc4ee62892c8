import { text } from './fields/text.js';
import { type Field, required, type Values, withDocumentation } from './fields.js';
import type { Filter } from './filters.js';

/** Between the parts of a search text; no text of a client holds it. */
const search_separator = '\0';

/** The folded name, identifier and description of a resource in one text, which one index holds (docs/decisions/0019-lists-from-indexes.md). */
export const searchText: Field = required(text(2000));

/** Folds a text for comparison without case and accents: NFD without marks, lower case (reference/lists.md#search). */
function toFolded(text: string): string {
  const lower = text.normalize('NFD').replace(/\p{M}/gu, '').toLowerCase();
  // lower case depends on the place in a word for this letter alone
  return lower.replaceAll('ς', 'σ');
}

/** Builds the search text of a resource. */
export function buildSearchText({ name, id_developer, description = '' }: Values): string {
  return [name, id_developer, description].map((part) => toFolded(String(part))).join(search_separator);
}

/** Objects whose name, identifier or description contains a text. */
export const bySearchText: Filter = {
  params: {
    q: withDocumentation(text(100), {
      about: 'Only where name, identifier or description contains this text, whatever its case and accents.',
      example: 'pump',
    }),
  },
  index: { paths: ['search_text'], scanned: true },
  conditions: ({ q }) => ({ search_text: { $regex: escapePattern(toFolded(String(q))) } }),
};

/** Escapes a text so that a pattern matches exactly this text. */
function escapePattern(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/#-]/g, '\\$&');
}

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
