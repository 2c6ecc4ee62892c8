import { useQueries } from '@tanstack/react-query';
import { useMemo } from 'react';
import { request } from './client.js';
import { useSession } from './hooks.js';
import type { ListAnswer, StoredObject } from './resources.js';

/** Types of which an account has few objects; those of devices are too many to read them all. */
const namedTypes: readonly string[] = ['projects', 'services', 'groups', 'assets', 'models'];
const max_names = 1000;
const fresh_ms = 60_000;

/** Returns the part of an identifier before its account, which is the name that the object was created with. */
export function shortenId(id: string): string {
  const end = id.lastIndexOf('@');
  return end > 0 ? id.slice(0, end) : id;
}

/** Finds the name of an object; without one, the short form of its identifier. */
export type NameOf = (plural: string, id: string) => string;

/** Reads the names of the first 1,000 objects of each type, to show them in place of identifiers. */
export function useNames(plurals: readonly string[]): NameOf {
  const { can } = useSession();
  const isRead = (plural: string) => namedTypes.includes(plural) && can('GET', `/${plural}/`);
  const read = [...new Set(plurals)].filter(isRead).sort();
  const answers = useQueries({
    queries: read.map((plural) => ({
      queryKey: ['names', plural],
      queryFn: ({ signal }: { signal: AbortSignal }) => readNames(plural, signal),
      staleTime: fresh_ms,
    })),
    combine: dataOf,
  });
  const key = read.join(',');
  return useMemo(() => {
    const names = new Map(key.split(',').map((plural, index) => [plural, answers[index]]));
    return (plural, id) => names.get(plural)?.get(id) ?? shortenId(id);
  }, [key, answers]);
}

type Names = ReadonlyMap<string, string>;

/** One function, so that its result stays the same as long as the answers do. */
const dataOf = (results: readonly { data: Names | undefined }[]) => results.map(({ data }) => data);

async function readNames(plural: string, signal: AbortSignal): Promise<Names> {
  const query = { fields: 'id_developer,name', max: max_names };
  const { result } = await request<ListAnswer<StoredObject>>('GET', `/${plural}/`, { query, signal });
  return new Map(result.map(({ id_developer, name }) => [id_developer, name]));
}
