import { Link as RouterLink, useNavigate, useSearch } from '@tanstack/react-router';
import { type ReactNode, useCallback } from 'react';
import { referredType } from './resources.js';

/** The parameters of an address. All state of a view that is worth a link is in them. */
export type Search = Readonly<Record<string, string>>;
export type SearchPatch = Readonly<Record<string, string | undefined>>;

/** Reads the query of an address. */
export function parseSearch(text: string): Search {
  return Object.fromEntries(new URLSearchParams(text));
}

/** Writes the query of an address, without empty parameters. */
export function stringifySearch(search: Record<string, unknown>): string {
  const parameters = Object.entries(search).filter(([, value]) => value !== undefined && value !== '');
  const text = new URLSearchParams(parameters.map(([name, value]) => [name, String(value)])).toString();
  return text === '' ? '' : `?${text}`;
}

type ChangeSearch = (patch: SearchPatch, options?: { replace?: boolean }) => void;

/** Returns the parameters of the address, a function that changes some of them, and one that replaces them all. */
export function useAddress(): [Search, ChangeSearch, (search: Search) => void] {
  const search = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const go = useCallback(
    (next: (old: object) => object, replace = false) =>
      void navigate({ to: '.', search: next, replace, resetScroll: false }),
    [navigate],
  );
  const change: ChangeSearch = useCallback(
    (patch, { replace } = {}) => go((old) => ({ ...old, ...patch }), replace),
    [go],
  );
  const replaceAll = useCallback((next: Search) => go(() => next), [go]);
  return [search, change, replaceAll];
}

interface LinkProps {
  /** Path below the console, with parameters as `$name`. */
  to: string;
  params?: Record<string, string>;
  search?: SearchPatch;
  className?: string;
  children: ReactNode;
  exact?: boolean;
}

/** A link inside of the console. */
export function Link({ to, params = {}, search = {}, className, children, exact = false }: LinkProps) {
  return (
    <RouterLink
      to={to}
      params={params}
      search={search as never}
      className={className}
      activeOptions={{ exact, includeSearch: false }}
    >
      {children}
    </RouterLink>
  );
}

/** A link to the page of an object. */
export function ObjectLink({ plural, id, children }: { plural: string; id: string; children?: ReactNode }) {
  return (
    <Link to="/$plural/$id" params={{ plural, id }}>
      {children ?? id}
    </Link>
  );
}

/** A link to the object that a field such as `id_group` names. */
export function ReferenceLink({ field, id }: { field: string; id: string }) {
  const plural = referredType(field);
  return plural === undefined ? id : <ObjectLink plural={plural} id={id} />;
}
