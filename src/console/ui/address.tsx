import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { type ReactNode, useCallback } from 'react';
import { useSession } from '../api/hooks.js';
import { shortenId } from '../api/names.js';
import { findType } from '../api/resources.js';

/** The parameters of an address. All state of a view that is worth a link is in them. */
export type Search = Readonly<Record<string, string | undefined>>;

export function parseSearch(text: string): Search {
  return Object.fromEntries(new URLSearchParams(text));
}

/** Writes the query of an address, without empty parameters. */
export function stringifySearch(search: Readonly<Record<string, unknown>>): string {
  const parameters = Object.entries(search).filter(([, value]) => value !== undefined && value !== '');
  const text = new URLSearchParams(parameters.map(([name, value]) => [name, String(value)])).toString();
  return text === '' ? '' : `?${text}`;
}

type ChangeSearch = (patch: Search, options?: { replace?: boolean }) => void;

/** Returns the parameters of the address, a function that changes some of them, and one that replaces them all. */
export function useAddress(): [Search, ChangeSearch, (search: Search) => void] {
  const search = useSearch({ strict: false });
  const navigate = useNavigate();
  const change: ChangeSearch = useCallback(
    (patch, { replace = false } = {}) =>
      void navigate({ to: '.', search: (old) => ({ ...old, ...patch }), replace, resetScroll: false }),
    [navigate],
  );
  const replaceAll = useCallback(
    (next: Search) => void navigate({ to: '.', search: next, resetScroll: false }),
    [navigate],
  );
  return [search, change, replaceAll];
}

interface ObjectLinkProps {
  plural: string;
  id: string;
  /** Default: the identifier without its account. */
  label?: ReactNode;
}

/** A link to an object by its name, or the name alone if the key may not see it; its identifier is in the title. */
export function ObjectLink({ plural, id, label = shortenId(id) }: ObjectLinkProps) {
  const { can } = useSession();
  const type = findType(plural);
  if (type !== undefined && !can('GET', type.object_path)) return <span title={id}>{label}</span>;
  return (
    <Link to="/$plural/$id" params={{ plural, id }} title={id}>
      {label}
    </Link>
  );
}

export function ListLink({ plural, children }: { plural: string; children: ReactNode }) {
  return (
    <Link to="/$plural" params={{ plural }}>
      {children}
    </Link>
  );
}
