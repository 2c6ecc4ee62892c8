import {
  keepPreviousData,
  MutationCache,
  QueryCache,
  QueryClient,
  type UseQueryResult,
  useMutation,
  useQuery,
  useQueryClient,
} from '@tanstack/react-query';
import { createContext, use, useMemo } from 'react';
import { announce } from '../lib/announcements.js';
import { pathOf, type Query, request } from './client.js';
import type { Interface } from './document.js';
import { describeError, isKeyRejected, isTemporary, RequestError } from './errors.js';
import type { Self } from './interface.js';
import { dropRejected } from './key-store.js';
import { filtersOfStatus, type ListAnswer, type Model } from './resources.js';

/** Path that shows the key itself; the first request after the sign-in. */
export const self_path = '/self/';

const max_retries = 4;
const first_retry_ms = 1000;
const max_retry_ms = 30_000;

/** Creates the cache of answers. A rejected key leads to the sign-in, wherever the request came from. */
export function createQueryClient(): QueryClient {
  const onError = (error: unknown, isSignIn = false) => {
    if (isKeyRejected(error)) dropRejected(isSignIn);
  };
  return new QueryClient({
    queryCache: new QueryCache({ onError: (error, { queryKey }) => onError(error, queryKey[0] === self_path) }),
    mutationCache: new MutationCache({ onError: (error) => onError(error) }),
    defaultOptions: {
      queries: {
        retry: (count, error) => isTemporary(error) && count < max_retries,
        retryDelay: (count, error) => {
          const wanted_s = error instanceof RequestError ? error.retry_after_s : undefined;
          return Math.min(wanted_s === undefined ? first_retry_ms * 2 ** count : wanted_s * 1000, max_retry_ms);
        },
        staleTime: 2000,
        networkMode: 'always',
      },
      mutations: { retry: false, networkMode: 'always' },
    },
  });
}

/** The interface as the key may use it, and the owner of the key; all views share them after the sign-in. */
export interface Session extends Interface {
  self: Self;
}

export const SessionContext = createContext<Session | undefined>(undefined);

/** Returns the session. @throws Error outside of the signed-in part */
export function useSession(): Session {
  const session = use(SessionContext);
  if (session === undefined) throw new Error('not signed in');
  return session;
}

interface Options {
  /** Default: true. */
  enabled?: boolean;
  refetch_ms?: number | false;
  /** Shows the last answer until the next one is there. */
  keep?: boolean;
  /** Reads once and for all. */
  isStatic?: boolean;
  /** Reads again when this changes. */
  since?: string | undefined;
}

/** When something is read again. */
export type Freshness = Pick<Options, 'enabled' | 'refetch_ms' | 'since'>;

/** Reads a path of the interface. */
export function useGet<T>(path: string, query: Query = {}, options: Options = {}): UseQueryResult<T> {
  return useQuery<T>({
    queryKey: [path, query, ...(options.since === undefined ? [] : [options.since])],
    queryFn: ({ signal }) => request<T>('GET', path, { query, signal }),
    enabled: options.enabled ?? true,
    refetchInterval: options.refetch_ms ?? false,
    ...(options.keep && { placeholderData: keepPreviousData }),
    ...(options.isStatic && { staleTime: 'static' }),
  });
}

export function useList<T>(path: string, query: Query = {}, options: Options = {}): UseQueryResult<ListAnswer<T>> {
  return useGet<ListAnswer<T>>(path, query, { keep: true, ...options });
}

/** Reads only the number of objects that match. */
export function useCount(path: string, query: Query = {}, options: Options = {}): number | undefined {
  return useList<unknown>(path, { ...query, max: 1 }, options).data?.total_documents;
}

/** Numbers of objects by one value. */
export interface Counts {
  total: number;
  of(value: string): number;
}

/** Reads the numbers of the objects of a list by one value, up to 1,000 values (`reference/lists.md#counts`). */
export function useCounts(path: string, by: string, query: Query = {}, options: Options = {}): Counts | undefined {
  const { data } = useList<Record<string, unknown>>(`${path}counts/`, { by, ...query, max: 1000 }, options);
  return useMemo(() => {
    if (data === undefined) return undefined;
    const counts = new Map(data.result.map((row) => [row[by], Number(row.count)]));
    return { total: data.total_documents, of: (value) => counts.get(value) ?? 0 };
  }, [data, by]);
}

/** Reads the numbers of devices by status as it is shown. */
export function useStatusCounts(query: Query = {}, options: Options = {}): Counts | undefined {
  const counts = useCounts('/devices/', 'status', query, options);
  const late = counts?.of('no_status') ?? 0;
  const isAsked = late > 0 && options.enabled !== false;
  const stoppedQuery = { ...query, ...filtersOfStatus('no_status') };
  const stopped = useCount('/devices/', stoppedQuery, { ...options, enabled: isAsked });
  if (counts === undefined || (late > 0 && stopped === undefined)) return undefined;
  const shown: Readonly<Record<string, number>> = { no_status: stopped ?? 0, data_only: late - (stopped ?? 0) };
  return { total: counts.total, of: (status) => (late > 0 ? shown[status] : undefined) ?? counts.of(status) };
}

/** Reads the measures and properties of the models. */
export function useModels({ enabled }: { enabled: boolean }): UseQueryResult<ListAnswer<Model>> {
  return useList<Model>('/models/', { fields: 'id_developer,measures,properties', max: 1000 }, { enabled });
}

/** Reads a model; nothing for a device without one. */
export function useModel(id = ''): UseQueryResult<Model> {
  return useGet<Model>(pathOf('models', id), {}, { enabled: id !== '' });
}

interface MutationOptions<Input, Result> {
  run(input: Input): Promise<Result>;
  /** Announced after success; undefined: nothing is. */
  message?(result: Result, input: Input): string | undefined;
  onDone?(result: Result, input: Input): void;
  onError?(error: unknown): void;
}

/** Changes something through the interface; whatever the outcome, everything that is shown is read again. */
export function useApiMutation<Input = void, Result = unknown>(options: MutationOptions<Input, Result>) {
  const queryClient = useQueryClient();
  return useMutation<Result, Error, Input>({
    mutationFn: options.run,
    onSuccess(result, input) {
      const message = options.message?.(result, input);
      if (message !== undefined) announce(message);
      options.onDone?.(result, input);
    },
    onError: options.onError,
    onSettled: () => void queryClient.invalidateQueries(),
  });
}

/** Returns a function for a button. @param done text to announce after success, as a failure is; absent: nothing is */
export function useAction<Input = void, Result = unknown>(
  run: (input: Input) => Promise<Result>,
  done?: string | ((result: Result, input: Input) => string),
): (input: Input) => void {
  const message = typeof done === 'string' ? () => done : done;
  return useApiMutation({ run, message, onError: (error) => announce(describeError(error)) }).mutate;
}
