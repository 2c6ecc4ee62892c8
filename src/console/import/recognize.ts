import type { Schema } from '../api/document.js';

/** A type with the fields that an import may set, and all that its objects show. */
export interface Candidate {
  name: string;
  body: Schema;
  entry: Schema;
}

/** Finds the type that has all its required fields among the columns, and knows the most of them; of equal ones the one with the fewest fields. */
export function recognizeType(columns: readonly string[], candidates: readonly Candidate[]): string | undefined {
  const names = columns.map((column) => column.replace(/\..*$/, ''));
  const fitting = candidates
    .filter(({ body: { required = [] } }) => required.every((field) => names.includes(field)))
    .map(({ name, body, entry }) => {
      const fields = { ...entry.properties, ...body.properties };
      return {
        name,
        count: Object.keys(fields).length,
        hits: names.filter((field) => Object.hasOwn(fields, field)).length,
      };
    });
  return fitting.toSorted((left, right) => right.hits - left.hits || left.count - right.count)[0]?.name;
}
