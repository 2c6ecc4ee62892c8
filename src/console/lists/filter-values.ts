import { isParameter, isTime, type Parameter } from '../api/document.js';

/** Values of a form for filters: as typed, times as numbers. */
export type FilterValues = Readonly<Record<string, unknown>>;

/** Writes the values of a form as they are in an address. */
export function toFilters(values: FilterValues): Record<string, string> {
  const filled = Object.entries(values).filter(([, value]) => value !== undefined && value !== '');
  return Object.fromEntries(filled.map(([name, value]) => [name, String(value)]));
}

/** Reads the values of a form from filters. */
export function toValues(filters: Readonly<Record<string, string>>, parameters: readonly Parameter[]): FilterValues {
  const entries = Object.entries(filters).flatMap(([name, value]) => {
    const parameter = parameters.find((other) => isParameter(other, name));
    return parameter === undefined ? [] : [[name, isTime(parameter.schema) ? Number(value) : value] as const];
  });
  return Object.fromEntries(entries);
}
