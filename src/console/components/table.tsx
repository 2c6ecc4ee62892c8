import type { ReactNode } from 'react';
import { labelOf } from '../format.js';

export interface Column<T> {
  field: string;
  label?: string;
  render(entry: T): ReactNode;
}

interface TableProps<T> {
  caption: string;
  columns: readonly Column<T>[];
  entries: readonly T[];
  keyOf(entry: T): string;
  sorting?: Sorting;
  selection?: Selection;
  rowAction?: (entry: T) => ReactNode;
}

export interface Sorting {
  fields: readonly string[];
  sort: string | undefined;
  order: 1 | -1;
  onSort(field: string, order: 1 | -1): void;
}

export interface Selection {
  selected: ReadonlySet<string>;
  onSelect(selected: ReadonlySet<string>): void;
}

/** A table whose head sorts it, with boxes to select rows where `selection` is given. */
export function Table<T>({ caption, columns, entries, keyOf, sorting, selection, rowAction }: TableProps<T>) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
    <section className="table-frame" tabIndex={0} aria-label={caption}>
      <table>
        <caption className="hidden">{caption}</caption>
        <thead>
          <tr>
            {selection && <SelectAll selection={selection} keys={entries.map(keyOf)} />}
            {columns.map(({ field, label }) => (
              <Head key={field} field={field} label={label ?? labelOf(field)} sorting={sorting} />
            ))}
            {rowAction && (
              <th scope="col">
                <span className="hidden">Actions</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {entries.map((entry) => (
            <tr key={keyOf(entry)}>
              {selection && <SelectRow selection={selection} id={keyOf(entry)} />}
              {columns.map(({ field, render }) => (
                <td key={field}>{render(entry)}</td>
              ))}
              {rowAction && <td className="row-action">{rowAction(entry)}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Head({ field, label, sorting }: { field: string; label: string; sorting: Sorting | undefined }) {
  if (!sorting?.fields.includes(field)) return <th scope="col">{label}</th>;
  const isSorted = sorting.sort === field;
  const direction = sorting.order === 1 ? 'ascending' : 'descending';
  return (
    <th scope="col" aria-sort={isSorted ? direction : undefined}>
      <button
        type="button"
        className="sort"
        onClick={() => sorting.onSort(field, isSorted && sorting.order === 1 ? -1 : 1)}
      >
        {label}
        <span aria-hidden="true">{isSorted ? (sorting.order === 1 ? ' ↑' : ' ↓') : ''}</span>
      </button>
    </th>
  );
}

function SelectAll({ selection: { selected, onSelect }, keys }: { selection: Selection; keys: readonly string[] }) {
  const isAll = keys.length > 0 && keys.every((key) => selected.has(key));
  return (
    <th scope="col" className="box">
      <input
        type="checkbox"
        aria-label="Select all rows of this page"
        checked={isAll}
        onChange={() => onSelect(new Set(isAll ? [] : keys))}
      />
    </th>
  );
}

function SelectRow({ selection: { selected, onSelect }, id }: { selection: Selection; id: string }) {
  return (
    <td className="box">
      <input
        type="checkbox"
        aria-label={`Select ${id}`}
        checked={selected.has(id)}
        onChange={({ target }) => {
          const changed = new Set(selected);
          if (target.checked) changed.add(id);
          else changed.delete(id);
          onSelect(changed);
        }}
      />
    </td>
  );
}

interface PagerProps {
  /** Caption of the list. */
  of: string;
  offset: number;
  max: number;
  total: number;
  onMove(offset: number): void;
}

/** Leads to the other pages of a list. */
export function Pager({ of, offset, max, total, onMove }: PagerProps) {
  const last = Math.min(offset + max, total);
  return (
    <nav className="pager" aria-label={`Pages of ${of}`}>
      <button type="button" disabled={offset === 0} onClick={() => onMove(Math.max(0, offset - max))}>
        Previous
      </button>
      <span>
        {total === 0
          ? 'None'
          : `${(offset + 1).toLocaleString()}–${last.toLocaleString()} of ${total.toLocaleString()}`}
      </span>
      <button type="button" disabled={last >= total} onClick={() => onMove(offset + max)}>
        Next
      </button>
    </nav>
  );
}
