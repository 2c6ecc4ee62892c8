import './table.css';
import { memo, type ReactNode, useCallback, useEffect, useRef } from 'react';
import type { Schema } from '../api/document.js';
import { type NameOf, shortenId } from '../api/names.js';
import { type Entry, shownStatusOf } from '../api/resources.js';
import { formatNumber, labelOf } from '../lib/format.js';
import { createStore, useStore } from '../lib/store.js';
import { ObjectLink } from './address.js';
import { Button, Toggle } from './button.js';
import { Value } from './value.js';

export interface Column<T> {
  field: string;
  label?: string;
  render(entry: T): ReactNode;
}

interface TableProps<T> {
  caption: string;
  columns: readonly Column<T>[];
  entries: readonly T[];
  /** Default: its `id` or `id_developer`. */
  keyOf?: ((entry: T) => string) | undefined;
  sorting?: Sorting;
  selection?: Selection | undefined;
  rowAction?: ((entry: T) => ReactNode) | undefined;
  /** Rows of one line, which are cards on a phone. */
  isDense?: boolean;
}

/** Names an object of a list. */
export function idOf(entry: object): string {
  return String(Reflect.get(entry, 'id') ?? Reflect.get(entry, 'id_developer'));
}

interface Sorting {
  fields: readonly string[];
  sort: string | undefined;
  order: 1 | -1;
  onSort(field: string, order: 1 | -1): void;
}

interface Selection {
  selected: ReadonlySet<string>;
  onSelect(selected: ReadonlySet<string>): void;
}

/** A table whose head sorts it, with boxes to select rows where `selection` is given. */
export function Table<T extends object>({ caption, columns, entries, keyOf = idOf, ...props }: TableProps<T>) {
  const { sorting, selection, rowAction, isDense } = props;
  const isCompact = useStore(compactStore);
  const className = `card table-frame${isCompact || isDense ? ' compact' : ''}${isDense ? ' dense' : ''}`;
  const select = useRowSelection(entries.map(keyOf), selection);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
    <section className={className} tabIndex={0} aria-label={caption}>
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
          {entries.map((entry) => {
            const key = keyOf(entry);
            return (
              <Row
                key={key}
                id={key}
                entry={entry}
                columns={columns}
                isSelected={selection?.selected.has(key)}
                onSelect={select}
                rowAction={rowAction}
              />
            );
          })}
        </tbody>
      </table>
    </section>
  );
}

type SelectRow = (id: string, isSelected: boolean, isRange: boolean) => void;

/** Returns a function that selects a row, or all from the one that was changed last; it stays the same. */
function useRowSelection(keys: readonly string[], selection: Selection | undefined): SelectRow {
  const latest = useRef({ keys, selection });
  useEffect(() => {
    latest.current = { keys, selection };
  });
  const last = useRef<string>(undefined);
  return useCallback((id, isSelected, isRange) => {
    const { keys: shown, selection: current } = latest.current;
    if (current === undefined) return;
    const [begin, end] = [shown.indexOf(isRange ? (last.current ?? id) : id), shown.indexOf(id)];
    last.current = id;
    const selected = new Set(current.selected);
    for (const key of shown.slice(Math.min(begin < 0 ? end : begin, end), Math.max(begin, end) + 1))
      if (isSelected) selected.add(key);
      else selected.delete(key);
    current.onSelect(selected);
  }, []);
}

interface RowProps<T> {
  id: string;
  entry: T;
  columns: readonly Column<T>[];
  /** Undefined: without a box. */
  isSelected: boolean | undefined;
  onSelect: SelectRow;
  rowAction: ((entry: T) => ReactNode) | undefined;
}

/** Memoized: of a thousand rows only those that have changed are rendered again. */
const Row = memo(function Row<T>({ id, entry, columns, isSelected, onSelect, rowAction }: RowProps<T>) {
  return (
    <tr className={isSelected ? 'selected' : undefined}>
      {isSelected !== undefined && (
        <td className="box">
          <input
            type="checkbox"
            aria-label={`Select ${id}`}
            checked={isSelected}
            onChange={({ target, nativeEvent }) =>
              onSelect(id, target.checked, nativeEvent instanceof MouseEvent && nativeEvent.shiftKey)
            }
          />
        </td>
      )}
      {columns.map(({ field, render }) => (
        <td key={field}>{render(entry)}</td>
      ))}
      {rowAction && <td className="row-action">{rowAction(entry)}</td>}
    </tr>
  );
}) as <T>(props: RowProps<T>) => ReactNode;

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
  const count = keys.filter((key) => selected.has(key)).length;
  const isAll = count > 0 && count === keys.length;
  return (
    <th scope="col" className="box">
      <input
        ref={(box) => {
          if (box) box.indeterminate = count > 0 && !isAll;
        }}
        type="checkbox"
        aria-label="Select all rows of this page"
        checked={isAll}
        onChange={() => {
          const shown = new Set(keys);
          onSelect(new Set(isAll ? [...selected].filter((key) => !shown.has(key)) : [...selected, ...keys]));
        }}
      />
    </th>
  );
}

interface ColumnOptions<T> {
  /** Type whose objects the first column links to. */
  linked?: string | undefined;
  /** Fields that are shown in another way than by `Value`. */
  render?: Readonly<Record<string, (entry: T) => ReactNode>> | undefined;
  /** Names of what the fields refer to, so that not every cell looks them up. */
  nameOf?: NameOf;
}

/** Builds the columns of a table of objects with this schema. */
export function columnsOf<T extends object>(
  { properties = {} }: Schema,
  fields: readonly string[],
  { linked, render = {}, nameOf = (_plural, id) => shortenId(id) }: ColumnOptions<T> = {},
): Column<T>[] {
  const show = (entry: T, field: string) => {
    const value = field === 'status' ? shownStatusOf(entry as Entry) : Reflect.get(entry, field);
    return <Value field={field} value={value} schema={properties[field]} nameOf={nameOf} />;
  };
  return fields.map((field, index) => ({
    field,
    label: labelOf(field, properties[field]?.['x-unit']),
    render(entry) {
      const value = render[field]?.(entry) ?? show(entry, field);
      if (index > 0 || linked === undefined) return value;
      return <ObjectLink plural={linked} id={String(Reflect.get(entry, 'id_developer'))} label={value} />;
    },
  }));
}

interface PagerProps {
  of: string;
  offset: number;
  max: number;
  total: number;
  onMove(offset: number): void;
}

export function Pager({ of, offset, max, total, onMove }: PagerProps) {
  const last = Math.min(offset + max, total);
  const isBehind = offset >= total;
  // from behind the end to the last page
  const previous = isBehind ? Math.floor((total - 1) / max) * max : offset - max;
  const shown = isBehind ? 'None on this page' : `${formatNumber(offset + 1)}–${formatNumber(last)}`;
  return (
    <nav className="row" aria-label={`Pages of ${of}`}>
      <Button label="Previous" disabled={offset === 0} onClick={() => onMove(Math.max(0, previous))} />
      <span>{total === 0 ? 'None' : `${shown} of ${formatNumber(total)}`}</span>
      <Button label="Next" disabled={last >= total} onClick={() => onMove(offset + max)} />
    </nav>
  );
}

type PagedTableProps<T> = Pick<TableProps<T>, 'caption' | 'columns' | 'entries' | 'keyOf'> & Omit<PagerProps, 'of'>;

/** A table of one page of a list, without sorting and selection. */
export function PagedTable<T extends object>({ offset, max, total, onMove, ...table }: PagedTableProps<T>) {
  return (
    <>
      <Table {...table} />
      <div className="row spread list-foot">
        <Pager of={table.caption} offset={offset} max={max} total={total} onMove={onMove} />
      </div>
    </>
  );
}

const item = 'device-platform.density';

/** Narrow table rows; the choice is kept in this browser. */
const compactStore = createStore(localStorage.getItem(item) === 'compact');

export function DensityChoice() {
  return (
    <Toggle
      label="Compact"
      isOn={useStore(compactStore)}
      onChange={(isCompact) => {
        localStorage.setItem(item, isCompact ? 'compact' : 'comfortable');
        compactStore.write(isCompact);
      }}
    />
  );
}
