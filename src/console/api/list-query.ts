import type { Search } from '../address.js';
import type { Query } from './client.js';

export const page_sizes = [25, 50, 100, 500, 1000] as const;
const default_page_size = 50;

/** State of a list view in its address. */
export interface ListState {
  filters: Record<string, string>;
  sort: string | undefined;
  order: 1 | -1;
  max: number;
  offset: number;
}

/** Reads the state of a list; parameters that the interface does not know are left out. */
export function readListState(search: Search, filterNames: readonly string[]): ListState {
  const filters = Object.entries(search).filter(([name, value]) => filterNames.includes(name) && value !== '');
  const max = Number(search.max);
  const offset = Number(search.offset);
  return {
    filters: Object.fromEntries(filters),
    sort: search.sort,
    order: search.order === '-1' ? -1 : 1,
    max: Number.isInteger(max) && max >= 1 && max <= 1000 ? max : default_page_size,
    offset: Number.isSafeInteger(offset) && offset > 0 ? offset : 0,
  };
}

/** Builds the parameters of the request for a page. */
export function toQuery({ filters, sort, order, max, offset }: ListState): Query {
  return { ...filters, max, ...(offset > 0 && { offset }), ...(sort !== undefined && { sort, order }) };
}
