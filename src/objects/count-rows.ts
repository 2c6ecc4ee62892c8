import type { Grouping } from '../schema/filters.js';

/** Numbers of objects by their values, the greatest first. */
export interface Counts {
  total_documents: number;
  /** The values by name, and `count`. */
  values: readonly object[];
}

/** The number of objects that have these values, in the order of the groupings. */
export interface CountRow {
  values: readonly unknown[];
  count: number;
}

/** Sorts numbers as the database does, and shows the first `max`. */
export function toCounts(rows: readonly CountRow[], groupings: readonly Pick<Grouping, 'name'>[], max: number): Counts {
  const present = rows.filter(({ count }) => count > 0);
  present.sort((row, other) => other.count - row.count || compareAll(row.values, other.values));
  return {
    total_documents: present.reduce((sum, { count }) => sum + count, 0),
    values: present.slice(0, max).map(({ values, count }) => ({
      ...Object.fromEntries(groupings.map(({ name }, at) => [name, values[at]])),
      count,
    })),
  };
}

function compareAll(values: readonly unknown[], others: readonly unknown[]): number {
  for (const [at, value] of values.entries()) {
    const order = compare(value, others[at]);
    if (order !== 0) return order;
  }
  return 0;
}

const types = ['object', 'number', 'string', 'boolean'];

function compare(value: unknown, other: unknown): number {
  if (typeof value !== typeof other) return types.indexOf(typeof value) - types.indexOf(typeof other);
  // bytes, as the order of code units is another one
  if (typeof value === 'string') return Buffer.compare(Buffer.from(value), Buffer.from(String(other)));
  return Number(value) - Number(other);
}
