/** Comparison of the value at a path. */
export const comparisons = { is: 'is', from: 'from', to: 'to', range: 'from … to' } as const;
export type Comparison = keyof typeof comparisons;

/** A filter on the value at a path, as a form has it. */
export interface PathFilter {
  /** The path in its member, `latest.bar`; empty: not chosen yet. */
  path: string;
  comparison: Comparison;
  /** The only value, or the lower bound of a range. */
  value: string;
  /** The upper bound of a range. */
  upper: string;
}

/** A request takes so many paths. */
export const max_paths = 3;
export const emptyPathFilter: PathFilter = { path: '', comparison: 'is', value: '', upper: '' };

/** Separates the path and the comparison of a parameter: `latest.bar_from`. */
export function splitParameter(name: string): { path: string; comparison: 'is' | 'from' | 'to' } {
  const [, path = name, suffix = 'eq'] = /^(.*)_(from|to|eq)$/.exec(name) ?? [];
  return { path, comparison: suffix === 'from' || suffix === 'to' ? suffix : 'is' };
}

/** Reads parameters into rows of a form; both bounds of a path are one row. */
export function readPathFilters(parameters: Readonly<Record<string, string>>): PathFilter[] {
  const rows: PathFilter[] = [];
  for (const [name, value] of Object.entries(parameters)) {
    const { path, comparison } = splitParameter(name);
    const other = rows.find((row) => row.path === path && row.comparison !== 'is' && comparison !== 'is');
    if (other === undefined) rows.push({ ...emptyPathFilter, path, comparison, value });
    else
      Object.assign(other, {
        comparison: 'range',
        ...(comparison === 'to' ? { upper: value } : { value, upper: other.value }),
      });
  }
  return rows;
}

/** Writes the rows of a form as parameters, without what is not filled in. */
export function writePathFilters(rows: readonly PathFilter[]): Record<string, string> {
  const entries = rows
    .filter(({ path }) => path !== '')
    .flatMap(({ path, comparison, value, upper }): [string, string][] => {
      // a suffix of the key would be taken for one of the parameter
      if (comparison === 'is') return [[/_(from|to|eq)$/.test(path) ? `${path}_eq` : path, value]];
      if (comparison !== 'range') return [[`${path}_${comparison}`, value]];
      return [
        [`${path}_from`, value],
        [`${path}_to`, upper],
      ];
    });
  return Object.fromEntries(entries.filter(([, value]) => value !== ''));
}
