import './lists.css';
import { type ReactNode, useMemo } from 'react';
import type { Query } from '../api/client.js';
import { useList, useSession } from '../api/hooks.js';
import { useNames } from '../api/names.js';
import type { Entry } from '../api/resources.js';
import { labelOf } from '../lib/format.js';
import { useAddress } from '../ui/address.js';
import { Button, Menu } from '../ui/button.js';
import { CheckBoxes, Select } from '../ui/choice.js';
import { CurlButton } from '../ui/curl.js';
import { startDownload } from '../ui/download.js';
import { Loaded } from '../ui/page.js';
import { columnsOf, DensityChoice, Pager, Table } from '../ui/table.js';
import { ReadAt } from '../ui/value.js';
import { Filters } from './filters.js';
import { page_sizes, readListState, toQuery } from './list-query.js';

/** Lists are read again after this time. */
const present_ms = 10_000;

interface EntrySelection {
  selected: ReadonlySet<string>;
  /** Gets the entries of the page too, of which some are selected. */
  onSelect(selected: ReadonlySet<string>, page: readonly Entry[]): void;
}

/** A column that shows what answers have only where `fields` names it. */
export interface RequestedColumn {
  field: string;
  label: string;
  /** The fields that it needs. */
  fields: readonly string[];
  /** The list can be sorted by it, though `sort` does not name it. */
  isSorted?: boolean;
  render(entry: Entry): ReactNode;
}

interface ObjectTableProps {
  caption: string;
  /** Path of the list as the interface documents it, and as it is requested. */
  template: string;
  path?: string;
  columns: readonly string[];
  keyOf?: (entry: Entry) => string;
  /** Type whose objects the first column links to. */
  linked?: string;
  selection?: EntrySelection | undefined;
  rowAction?: ((entry: Entry) => ReactNode) | undefined;
  /** Fields that are shown in another way than by `Value`; always the same object. */
  render?: Readonly<Record<string, (entry: Entry) => ReactNode>>;
  /** Columns to choose from, beside or in place of those of the schema; always the same array. */
  requested?: readonly RequestedColumn[];
  /** Filters that the view sets by itself. */
  fixed?: Readonly<Record<string, string>>;
  /** Sorting unless the address names another one. */
  sorting?: { sort: string; order: '1' | '-1' };
  refetch_ms?: number;
  empty?: string | undefined;
}

/** A list of the interface with its filters, sorts, columns and pages, all of them in the address. */
export function ObjectTable({ caption, template, path = template, fixed = {}, ...props }: ObjectTableProps) {
  const { columns, keyOf, linked, selection, rowAction, render, sorting, empty = 'Nothing here yet.' } = props;
  const { requested = noColumns } = props;
  const { entryOf, filtersOf, parameterOf, resolve } = useSession();
  const [search, setSearch] = useAddress();
  const filters = filtersOf(template).filter(({ name }) => fixed[name] === undefined);
  const state = readListState({ ...sorting, ...search }, filters);
  const schema = useMemo(() => entryOf(template), [entryOf, template]);
  const all = new Set([
    ...Object.keys(schema.properties ?? {}).filter(
      (name) => resolve(schema.properties?.[name])['x-requested'] !== true,
    ),
    ...requested.map(({ field }) => field),
  ]);
  const shown = search.columns?.split(',').filter((name) => all.has(name)) ?? columns;
  const names = shown.join(',');
  const query = { ...toQuery(state), ...fixed, ...fieldsFor(shown, requested, schema.properties) };
  const exported = [...(schema.properties?.id_developer ? ['id_developer'] : []), ...shown];
  const exportedFields = parameterOf(template, 'fields') && { fields: [...new Set(exported)].join(',') };
  const answer = useList<Entry>(path, query, { refetch_ms: props.refetch_ms ?? present_ms });
  const nameOf = useNames(shown.flatMap((name) => schema.properties?.[name]?.['x-references'] ?? []));
  // as long as the columns stay the same, rows need not be rendered again
  const tableColumns = useMemo(
    () =>
      columnsOf<Entry>(schema, names.split(','), { linked, render, nameOf }).map(
        (column) => requested.find(({ field }) => field === column.field) ?? column,
      ),
    [schema, names, linked, render, nameOf, requested],
  );
  const hasFilter = Object.keys(state.filters).length > 0;
  const clearedFilters = Object.fromEntries(Object.keys(state.filters).map((name) => [name, undefined]));
  return (
    <>
      <div className="row spread list-head">
        <Filters
          parameters={filters}
          active={state.filters}
          onChange={(changed) => setSearch({ ...clearedFilters, ...changed, offset: undefined })}
        />
        <Menu label="View" isKept>
          {parameterOf(template, 'format') && (
            <Button label="Export CSV" onClick={() => exportCsv(caption, path, { ...query, ...exportedFields })} />
          )}
          <CurlButton callOf={() => ({ method: 'GET', path, query })} />
          <DensityChoice />
          <fieldset className="column-choice">
            <legend>Columns</legend>
            <CheckBoxes
              options={[...all].map((field) => [
                field,
                requested.find((other) => other.field === field)?.label ?? labelOf(field),
              ])}
              chosen={shown}
              onChange={(fields) => setSearch({ columns: fields.join(',') }, { replace: true })}
            />
          </fieldset>
        </Menu>
      </div>
      <Loaded of={answer} height="24rem">
        {({ total_documents: total, result }) => (
          <div aria-busy={answer.isPlaceholderData}>
            {total === 0 && !hasFilter ? (
              <p className="empty">{empty}</p>
            ) : (
              <Table
                caption={caption}
                columns={tableColumns}
                entries={result}
                keyOf={keyOf}
                sorting={{
                  fields: [
                    ...(parameterOf(template, 'sort')?.schema.enum?.map(String) ?? []),
                    ...requested.flatMap(({ field, isSorted }) => (isSorted ? [field] : [])),
                  ],
                  sort: state.sort,
                  order: state.order,
                  onSort: (sort, order) => setSearch({ sort, order: String(order), offset: undefined }),
                }}
                selection={selection && { ...selection, onSelect: (selected) => selection.onSelect(selected, result) }}
                rowAction={rowAction}
              />
            )}
            {total === 0 && hasFilter && <p className="empty">Nothing matches these filters.</p>}
            {total > 0 && (
              <div className="row spread list-foot">
                <ReadAt at_ms={answer.dataUpdatedAt} />
                <Pager
                  of={caption}
                  offset={state.offset}
                  max={state.max}
                  total={total}
                  onMove={(offset) => setSearch({ offset: offset === 0 ? undefined : String(offset) })}
                />
                {parameterOf(template, 'max') && (
                  <span>
                    Rows{' '}
                    <Select
                      aria-label="Rows"
                      value={state.max}
                      options={sizesWith(state.max)}
                      onChange={(max) => setSearch({ max, offset: undefined })}
                    />
                  </span>
                )}
              </div>
            )}
          </div>
        )}
      </Loaded>
    </>
  );
}

/** Downloads all that matches, not only the page that is shown. */
function exportCsv(caption: string, path: string, { max: _, offset: __, ...query }: Query): void {
  const name = `${caption.toLowerCase()}.csv`;
  void startDownload({ path, query: { ...query, format: 'csv' }, accept: 'text/csv', name });
}

const noColumns: readonly RequestedColumn[] = [];
/** Fields that dialogs about rows need. */
const rowFields = ['id_developer', 'name', 'version'];

/** Names the fields to answer; none if all that are shown come without. */
function fieldsFor(shown: readonly string[], requested: readonly RequestedColumn[], known: object = {}): Query {
  const chosen = requested.filter(({ field }) => shown.includes(field));
  if (chosen.length === 0) return {};
  const plain = shown.filter((name) => chosen.every(({ field }) => field !== name));
  const always = rowFields.filter((name) => Object.hasOwn(known, name));
  return { fields: [...new Set([...always, ...plain, ...chosen.flatMap(({ fields }) => fields)])].join(',') };
}

/** The sizes of pages to choose from, with any other one that is chosen. */
function sizesWith(max: number): [string, string][] {
  const sizes = [...new Set([...page_sizes, max])].sort((left, right) => left - right);
  return sizes.map((size) => [String(size), String(size)]);
}
