import { useList, useSession } from '../api/hooks.js';
import type { StoredObject } from '../api/resources.js';
import { CreateForm } from '../forms/create-form.js';
import { stringifySearch, useAddress } from '../ui/address.js';
import { LinkButton } from '../ui/button.js';
import { DialogButton } from '../ui/dialog.js';

const path = '/filters/';
const max_tabs = 20;
const allDevices = { id_developer: undefined, name: 'All devices', description: undefined };

/** The saved filters as tabs of the list of devices, and a way to save those that are set. */
export function SavedFilters({ filters }: { filters: Readonly<Record<string, string>> }) {
  const { can } = useSession();
  const [search] = useAddress();
  const query = { max: max_tabs, sort: 'name', fields: 'id_developer,name,description' };
  const { data } = useList<StoredObject>(path, query, { enabled: can('GET', path) });
  const saved = data?.result ?? [];
  const isSavable = Object.keys(filters).length > 0 && filters.filter === undefined && can('POST', path);
  if (saved.length === 0 && !isSavable) return null;
  return (
    <nav className="row tabs" aria-label="Saved filters">
      {saved.length > 0 &&
        [allDevices, ...saved].map(({ id_developer: filter, name, description }) => (
          <LinkButton
            key={filter ?? ''}
            to="."
            search={{ filter }}
            label={name}
            kind="tab"
            title={description as string | undefined}
            activeOptions={{ includeSearch: true, exact: true }}
            aria-current={search.filter === filter ? 'page' : undefined}
          />
        ))}
      {isSavable && (
        <DialogButton label="Save these filters…" heading="Save these filters" kind="quiet">
          {(close) => (
            <CreateForm
              path={path}
              fields={['name', 'description']}
              submitLabel="Save"
              complete={(values) => ({ ...values, query: stringifySearch(filters).slice(1) })}
              message={({ name }) => `Saved ${name}.`}
              onCreated={close}
              onCancel={close}
            />
          )}
        </DialogButton>
      )}
    </nav>
  );
}
