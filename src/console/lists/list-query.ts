import type { Query } from '../api/client.js';
import { isParameter, type Parameter } from '../api/document.js';
import type { Search } from '../ui/address.js';

export const page_sizes = [25, 50, 100, 500, 1000] as const;
const default_page_size = 50;

export interface ListState {
  filters: Record<string, string>;
  sort: string | undefined;
  order: 1 | -1;
  max: number;
  offset: number;
}

/** Reads the filters that an address has; parameters that are none are left out. */
export function readFilters(search: Search, parameters: readonly Parameter[]): Record<string, string> {
  const filters = Object.entries(search).filter((entry): entry is [string, string] => Boolean(entry[1]));
  return Object.fromEntries(filters.filter(([name]) => parameters.some((parameter) => isParameter(parameter, name))));
}

export function readListState(search: Search, parameters: readonly Parameter[]): ListState {
  const max = Number(search.max);
  const offset = Number(search.offset);
  return {
    filters: readFilters(search, parameters),
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
