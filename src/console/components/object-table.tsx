import { type ReactNode, useMemo } from 'react';
import { ObjectLink, useAddress } from '../address.js';
import { entrySchemaOf, filtersOf, type InterfaceDocument, parameterOf, sortsOf } from '../api/document.js';
import { page_sizes, readListState, toQuery } from '../api/list-query.js';
import { useList, useSession } from '../api/queries.js';
import { labelOf } from '../format.js';
import { Loaded } from './feedback.js';
import { Filters } from './filters.js';
import { type Column, Pager, Table } from './table.js';
import { Value } from './value.js';

export type Entry = Record<string, unknown>;

export interface EntrySelection {
  selected: ReadonlySet<string>;
  /** Gets the entries of the page too, of which some are selected. */
  onSelect(selected: ReadonlySet<string>, page: readonly Entry[]): void;
}

interface ObjectTableProps {
  caption: string;
  /** Path of the list as the interface documents it, and as it is requested. */
  template: string;
  path?: string;
  columns: readonly string[];
  keyOf(entry: Entry): string;
  /** Type whose objects the first column links to. */
  linked?: string;
  selection?: EntrySelection;
  rowAction?: (entry: Entry) => ReactNode;
  /** Fields that are shown in another way than by `Value`. */
  render?: Readonly<Record<string, (entry: Entry) => ReactNode>>;
  /** Filters that the view sets by itself. */
  fixed?: Readonly<Record<string, string>>;
  /** Sorting unless the address names another one. */
  sorting?: { sort: string; order: 1 | -1 };
  refetch_ms?: number | false;
  empty?: ReactNode;
}

/** A list of the interface with its filters, sorts, columns and pages, all of them in the address. */
export function ObjectTable(props: ObjectTableProps) {
  const { caption, template, path = template, columns: defaultColumns, keyOf, linked, selection, rowAction } = props;
  const { document } = useSession();
  const [search, setSearch] = useAddress();
  const filters = filtersOf(document, template).filter(({ name }) => props.fixed?.[name] === undefined);
  const filterNames = filters.map(({ name }) => name);
  const state = readListState({ ...initialSorting(props), ...search }, filterNames);
  const schema = entrySchemaOf(document, template);
  const answer = useList<Entry>(path, { ...toQuery(state), ...props.fixed }, { refetch_ms: props.refetch_ms ?? false });
  const shown = search.columns?.split(',').filter((name) => schema.properties?.[name]) ?? [...defaultColumns];
  const columns = useColumns(shown.join(','), document, template, linked, props.render);
  const clearedFilters = Object.fromEntries(filterNames.map((name) => [name, undefined]));
  return (
    <>
      <div className="list-head">
        <Filters
          parameters={filters}
          active={state.filters}
          onChange={(changed) => setSearch({ ...clearedFilters, ...changed, offset: undefined })}
        />
        <ColumnChoice
          all={Object.keys(schema.properties ?? {})}
          shown={shown}
          onChange={(names) => setSearch({ columns: names.join(',') }, { replace: true })}
        />
      </div>
      <Loaded of={answer} height="24rem">
        {({ total_documents: total, result }) => (
          <div aria-busy={answer.isPlaceholderData}>
            {total === 0 && Object.keys(state.filters).length === 0 ? (
              <div className="empty">{props.empty ?? 'Nothing here yet.'}</div>
            ) : (
              <Table
                caption={caption}
                columns={columns}
                entries={result}
                keyOf={keyOf}
                sorting={{
                  fields: sortsOf(document, template),
                  sort: state.sort,
                  order: state.order,
                  onSort: (sort, order) => setSearch({ sort, order: String(order), offset: undefined }),
                }}
                {...(selection && {
                  selection: { ...selection, onSelect: (selected) => selection.onSelect(selected, result) },
                })}
                {...(rowAction && { rowAction })}
              />
            )}
            {total === 0 && Object.keys(state.filters).length > 0 && (
              <p className="empty">Nothing matches these filters.</p>
            )}
            {total > 0 && (
              <div className="list-foot">
                <Pager
                  of={caption}
                  offset={state.offset}
                  max={state.max}
                  total={total}
                  onMove={(offset) => setSearch({ offset: offset === 0 ? undefined : String(offset) })}
                />
                {parameterOf(document, template, 'max') && (
                  <PageSize max={state.max} onChange={(max) => setSearch({ max: String(max), offset: undefined })} />
                )}
              </div>
            )}
          </div>
        )}
      </Loaded>
    </>
  );
}

/** Builds the columns; they stay the same as long as their names do, so that rows need not be rendered again. */
function useColumns(
  names: string,
  document: InterfaceDocument,
  template: string,
  linked: string | undefined,
  custom: ObjectTableProps['render'],
): readonly Column<Entry>[] {
  return useMemo(() => {
    const { properties = {} } = entrySchemaOf(document, template);
    return names.split(',').map(
      (field, index): Column<Entry> => ({
        field,
        render: (entry) => {
          if (custom?.[field]) return custom[field](entry);
          const value = <Value field={field} value={entry[field]} schema={properties[field]} />;
          if (index > 0 || linked === undefined) return value;
          return (
            <ObjectLink plural={linked} id={String(entry.id_developer)}>
              {value}
            </ObjectLink>
          );
        },
      }),
    );
  }, [names, document, template, linked, custom]);
}

function initialSorting({ sorting }: ObjectTableProps): Record<string, string> {
  return sorting === undefined ? {} : { sort: sorting.sort, order: String(sorting.order) };
}

interface ColumnChoiceProps {
  all: readonly string[];
  shown: readonly string[];
  onChange(names: string[]): void;
}

function ColumnChoice({ all, shown, onChange }: ColumnChoiceProps) {
  return (
    <details className="column-choice">
      <summary>Columns</summary>
      <fieldset className="panel">
        <legend className="hidden">Columns</legend>
        {all.map((name) => (
          <label key={name}>
            <input
              type="checkbox"
              checked={shown.includes(name)}
              onChange={({ target }) =>
                onChange(target.checked ? [...shown, name] : shown.filter((other) => other !== name))
              }
            />
            {labelOf(name)}
          </label>
        ))}
      </fieldset>
    </details>
  );
}

function PageSize({ max, onChange }: { max: number; onChange(max: number): void }) {
  const sizes = [...new Set([...page_sizes, max])].sort((one, other) => one - other);
  return (
    <label className="page-size">
      Rows{' '}
      <select value={max} onChange={({ target }) => onChange(Number(target.value))}>
        {sizes.map((size) => (
          <option key={size}>{size}</option>
        ))}
      </select>
    </label>
  );
}
