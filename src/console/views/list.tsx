import { useState } from 'react';
import { Link, useAddress } from '../address.js';
import { filtersOf, parameterOf } from '../api/document.js';
import { readListState } from '../api/list-query.js';
import { useSession } from '../api/queries.js';
import { BulkDialog } from '../components/bulk-dialog.js';
import { type Entry, ObjectTable } from '../components/object-table.js';
import { Page } from '../components/page.js';
import { SelectionDialog } from '../components/selection-dialog.js';
import { startDownload } from '../download.js';
import { countOf, type ResourceType, type StoredObject, templateOf } from '../resources.js';

/** The list of one type, with export and changes of all that match where the interface has them. */
export function ListView({ type }: { type: ResourceType }) {
  const { plural, name, title, columns } = type;
  const { can, document } = useSession();
  const [search] = useAddress();
  const [bulk, setBulk] = useState<'change' | 'delete'>();
  const template = `/${plural}/`;
  const names = filtersOf(document, template).map(({ name }) => name);
  const { filters } = readListState(search, names);
  const hasFilter = Object.keys(filters).length > 0;
  const [selected, setSelected] = useState<ReadonlyMap<string, StoredObject>>(new Map());
  const [selectionKind, setSelectionKind] = useState<'change' | 'delete'>();
  const [canChange, canDelete] = [can('PUT', templateOf(type)), can('DELETE', templateOf(type))];
  const hint = hasFilter ? undefined : 'Set a filter first';
  return (
    <Page
      title={title}
      actions={
        <>
          {parameterOf(document, template, 'format') && (
            <button
              type="button"
              onClick={() =>
                void startDownload({
                  path: template,
                  query: { ...filters, format: 'csv' },
                  accept: 'text/csv',
                  name: `${plural}.csv`,
                })
              }
            >
              Export CSV
            </button>
          )}
          {can('PATCH', template) && (
            <button type="button" disabled={!hasFilter} title={hint} onClick={() => setBulk('change')}>
              Change all…
            </button>
          )}
          {can('DELETE', template) && (
            <button type="button" disabled={!hasFilter} title={hint} onClick={() => setBulk('delete')}>
              Delete all…
            </button>
          )}
          {can('POST', template) && (
            <Link to="/$plural/new" params={{ plural }} className="button primary">
              New {name}
            </Link>
          )}
        </>
      }
    >
      <ObjectTable
        caption={title}
        template={template}
        columns={columns}
        linked={plural}
        keyOf={idOf}
        {...((canChange || canDelete) && {
          selection: {
            selected: new Set(selected.keys()),
            onSelect: (ids, page) => setSelected((old) => keepSelected(old, ids, page)),
          },
        })}
      />
      {selected.size > 0 && (
        <section className="selection-bar" aria-label="Selected rows">
          <p role="status">{countOf(type, selected.size)} selected</p>
          {canChange && (
            <button type="button" onClick={() => setSelectionKind('change')}>
              Change…
            </button>
          )}
          {canDelete && (
            <button type="button" onClick={() => setSelectionKind('delete')}>
              Delete…
            </button>
          )}
          <button type="button" className="quiet" onClick={() => setSelected(new Map())}>
            Clear
          </button>
        </section>
      )}
      {selectionKind && (
        <SelectionDialog
          type={type}
          objects={[...selected.values()]}
          kind={selectionKind}
          onClose={() => setSelectionKind(undefined)}
          onDone={(ids) => setSelected((old) => new Map([...old].filter(([id]) => !ids.includes(id))))}
        />
      )}
      {bulk && <BulkDialog type={type} filters={filters} kind={bulk} onClose={() => setBulk(undefined)} />}
    </Page>
  );
}

const idOf = ({ id_developer }: Entry) => String(id_developer);

/** Keeps what is selected on other pages, with the version that was shown when it was selected. */
function keepSelected(
  old: ReadonlyMap<string, StoredObject>,
  ids: ReadonlySet<string>,
  page: readonly Entry[],
): ReadonlyMap<string, StoredObject> {
  const shown = new Map(page.map((entry) => [idOf(entry), entry as StoredObject]));
  const entries = [...ids].map((id) => [id, old.get(id) ?? shown.get(id)] as const);
  return new Map(entries.filter((entry): entry is [string, StoredObject] => entry[1] !== undefined));
}
