import {
  keepPreviousData,
  MutationCache,
  QueryCache,
  QueryClient,
  type UseQueryResult,
  useQuery,
} from '@tanstack/react-query';
import { createContext, use } from 'react';
import { type Query, request } from './client.js';
import { type InterfaceDocument, isAllowed, type Scope } from './document.js';
import { isKeyRejected, isTemporary, RequestError } from './errors.js';
import { dropKey } from './key-store.js';
import type { ListAnswer } from './list-answer.js';

/** First part of the key of the query that finds the scope, at the sign-in. */
export const scope_query = 'scope';

const max_retries = 4;
const first_retry_ms = 1000;
const max_retry_ms = 30_000;

/** Creates the cache of answers. A rejected key leads to the sign-in, wherever the request came from. */
export function createQueryClient(): QueryClient {
  const onError = (error: unknown, isSignIn = false) => {
    if (!isKeyRejected(error)) return;
    dropKey(isSignIn ? 'This key is not valid.' : 'The key is no longer valid: it was revoked or has expired.');
  };
  return new QueryClient({
    queryCache: new QueryCache({ onError: (error, { queryKey }) => onError(error, queryKey[0] === scope_query) }),
    mutationCache: new MutationCache({ onError: (error) => onError(error) }),
    defaultOptions: {
      queries: {
        retry: (count, error) => isTemporary(error) && count < max_retries,
        retryDelay: (count, error) =>
          error instanceof RequestError && error.retry_after_s !== undefined
            ? Math.min(error.retry_after_s * 1000, max_retry_ms)
            : Math.min(first_retry_ms * 2 ** count, max_retry_ms),
        staleTime: 2000,
        networkMode: 'always',
      },
      mutations: { retry: false, networkMode: 'always' },
    },
  });
}

/** State that all views share after the sign-in. */
export interface Session {
  document: InterfaceDocument;
  scope: Scope;
}

export const SessionContext = createContext<Session | undefined>(undefined);

/** Returns the session. @throws Error outside of the signed-in part */
export function useSession(): Session & { can(method: string, path: string): boolean } {
  const session = use(SessionContext);
  if (session === undefined) throw new Error('not signed in');
  return { ...session, can: (method, path) => isAllowed(session.document, session.scope, method, path) };
}

interface Options {
  /** Default: true. */
  enabled?: boolean;
  refetch_ms?: number | false;
  /** Shows the last answer until the next one is there. */
  keep?: boolean;
}

/** Reads a path of the interface. */
export function useGet<T>(path: string, query: Query = {}, options: Options = {}): UseQueryResult<T> {
  return useQuery<T>({
    queryKey: [path, query],
    queryFn: ({ signal }) => request<T>('GET', path, { query, signal }),
    enabled: options.enabled ?? true,
    refetchInterval: options.refetch_ms ?? false,
    ...(options.keep && { placeholderData: keepPreviousData }),
  });
}

/** Reads one page of a list. */
export function useList<T>(path: string, query: Query = {}, options: Options = {}): UseQueryResult<ListAnswer<T>> {
  return useGet<ListAnswer<T>>(path, query, { keep: true, ...options });
}

/** Reads only the number of objects that match. */
export function useCount(path: string, query: Query = {}, options: Options = {}): number | undefined {
  return useList<unknown>(path, { ...query, max: 1 }, options).data?.total_documents;
}
