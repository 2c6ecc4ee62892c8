import { useState } from 'react';
import { useSession } from '../api/hooks.js';
import { countOf, type Entry, type ResourceType, type StoredObject } from '../api/resources.js';
import { useDeviceColumns } from '../device/columns.js';
import { config_counts_path, many_configs_path } from '../device/config-rows.js';
import { GiveFileDialog } from '../device/give-file.js';
import { SavedFilters } from '../device/saved-filters.js';
import { all_commands_path, SendToAllDialog } from '../device/send-to-all.js';
import { BulkDialog } from '../edit/bulk-dialog.js';
import type { BulkKind } from '../edit/preview-step.js';
import { SelectionDialog } from '../edit/selection-dialog.js';
import { readFilters } from '../lists/list-query.js';
import { ObjectTable } from '../lists/object-table.js';
import { useAddress } from '../ui/address.js';
import { Button, LinkButton, Menu } from '../ui/button.js';
import { Loading, Page } from '../ui/page.js';
import { idOf } from '../ui/table.js';

/** Objects by their identifiers. */
type Selected = ReadonlyMap<string, StoredObject>;
const methods = { change: 'PATCH', delete: 'DELETE' } as const;
const kinds = ['change', 'delete'] as const satisfies BulkKind[];
const labels = { change: 'Change', delete: 'Delete' };

/** The list of one type, with export and changes of all that match where the interface has them. */
export function ListView({ type }: { type: ResourceType }) {
  const { plural, noun, title, columns, list_path, object_path } = type;
  const { can, filtersOf } = useSession();
  const isDevice = type.name === 'device';
  const [search] = useAddress();
  const [dialog, setDialog] = useState<BulkKind | 'send' | 'give'>();
  const close = () => setDialog(undefined);
  const [selectionKind, setSelectionKind] = useState<BulkKind>();
  const [selected, setSelected] = useState<Selected>(new Map());
  const filters = readFilters(search, filtersOf(list_path));
  const deviceColumns = useDeviceColumns({ isOffered: isDevice, id_model: filters.id_model });
  const hasFilter = Object.keys(filters).length > 0;
  const filterHint = hasFilter ? undefined : 'Set a filter first';
  const selectionKinds = kinds.filter((kind) => can(kind === 'change' ? 'PUT' : 'DELETE', object_path));
  return (
    <Page
      title={title}
      actions={
        <>
          <Menu label="Actions">
            {isDevice && <LinkButton to="/map" search={filters} label="Show on the map" />}
            {isDevice && can('GET', config_counts_path) && (
              <LinkButton to="/configs" search={filters} label="Configuration files" />
            )}
            {(
              [
                ['give', 'Give file to all…', isDevice && can('POST', many_configs_path)],
                ['send', 'Send command to all…', isDevice && can('POST', all_commands_path)],
                ...kinds.map((kind) => [kind, `${labels[kind]} all…`, can(methods[kind], list_path)] as const),
              ] as const
            ).map(
              ([kind, label, isOffered]) =>
                isOffered && (
                  <Button
                    key={kind}
                    label={label}
                    disabled={!hasFilter}
                    title={filterHint}
                    onClick={() => setDialog(kind)}
                  />
                ),
            )}
          </Menu>
          {can('POST', list_path) && (
            <LinkButton to="/$plural/new" params={{ plural }} label={`New ${noun}`} kind="primary" />
          )}
        </>
      }
    >
      {isDevice && <SavedFilters filters={filters} />}
      {deviceColumns === undefined ? (
        <Loading height="24rem" />
      ) : (
        <ObjectTable
          caption={title}
          template={list_path}
          columns={columns.toSpliced(-1, 0, ...deviceColumns.shown)}
          linked={plural}
          requested={deviceColumns.requested}
          empty={
            can('POST', list_path)
              ? `No ${noun}s yet. “New ${noun}” makes one; “Import” above the devices reads a file.`
              : undefined
          }
          selection={
            selectionKinds.length === 0
              ? undefined
              : {
                  selected: new Set(selected.keys()),
                  onSelect: (ids, page) => setSelected((old) => keepSelected(old, ids, page)),
                }
          }
        />
      )}
      {selected.size > 0 && (
        <section className="row card floating selection-bar" aria-label="Selected rows">
          <p role="status">{countOf(type, selected.size)} selected</p>
          {selectionKinds.map((kind) => (
            <Button key={kind} label={`${labels[kind]}…`} onClick={() => setSelectionKind(kind)} />
          ))}
          <Button label="Clear" kind="quiet" onClick={() => setSelected(new Map())} />
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
      {dialog === 'send' && <SendToAllDialog filters={filters} onClose={close} />}
      {dialog === 'give' && <GiveFileDialog filters={filters} onClose={close} />}
      {(dialog === 'change' || dialog === 'delete') && (
        <BulkDialog type={type} filters={filters} kind={dialog} onClose={close} />
      )}
    </Page>
  );
}

/** Keeps what is selected on other pages, with the version that was shown when it was selected. */
function keepSelected(old: Selected, ids: ReadonlySet<string>, page: readonly Entry[]): Selected {
  const shown = new Map(page.map((entry) => [idOf(entry), entry as StoredObject]));
  const entries = [...ids].map((id) => [id, old.get(id) ?? shown.get(id)] as const);
  return new Map(entries.filter((entry): entry is [string, StoredObject] => entry[1] !== undefined));
}
