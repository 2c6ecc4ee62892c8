export const many_configs_path = '/devices/deviceconfigs/';
export const config_counts_path = `${many_configs_path}counts/`;
/** Combinations of file, versions and state. */
export const max_counts = 1000;

/** The number of devices with the same versions of a file, as the interface counts them. */
export interface ConfigCount {
  name: string;
  desired: string | null;
  reported: string | null;
  status: string;
  count: number;
}

/** The devices that shall have one version of a file, or none. */
export interface ConfigRow {
  name: string;
  desired: string | null;
  /** Numbers of devices. */
  byStatus: ReadonlyMap<string, number>;
  /** Numbers of devices, by the version that they have reported. */
  byReported: ReadonlyMap<string | null, number>;
}

/** Joins the counts of each file and desired version, by name; of one file the version of most devices is first. */
export function joinCounts(counts: readonly ConfigCount[]): ConfigRow[] {
  const rows = Map.groupBy(counts, ({ name, desired }) => JSON.stringify([name, desired]));
  const numbered = [...rows].map(([key, entries]) => {
    const [name, desired] = JSON.parse(key) as [string, string | null];
    const total = entries.reduce((sum, { count }) => sum + count, 0);
    const byStatus = sumBy(entries, ({ status }) => status);
    const byReported = sumBy(entries, ({ reported }) => reported);
    return { name, desired, byStatus, byReported, total };
  });
  return numbered.sort((left, right) => left.name.localeCompare(right.name) || right.total - left.total);
}

function sumBy<Key>(entries: readonly ConfigCount[], keyOf: (entry: ConfigCount) => Key): ReadonlyMap<Key, number> {
  const sums = new Map<Key, number>();
  for (const entry of entries) sums.set(keyOf(entry), entry.count + (sums.get(keyOf(entry)) ?? 0));
  return sums;
}
