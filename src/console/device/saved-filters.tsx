import '../ui/tabs.css';
import { Link } from '@tanstack/react-router';
import { request } from '../api/client.js';
import { useApiMutation, useList } from '../api/queries.js';
import type { StoredObject } from '../api/resources.js';
import { useSession } from '../api/session.js';
import { SchemaForm, type Values } from '../forms/form.js';
import { stringifySearch, useAddress } from '../ui/address.js';
import { DialogButton } from '../ui/dialog.js';

const path = '/filters/';
const max_tabs = 20;

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
      {saved.length > 0 && <FilterTab label="All devices" isShown={search.filter === undefined} />}
      {saved.map(({ id_developer: id, name, description }) => (
        <FilterTab
          key={id}
          id={id}
          label={name}
          isShown={search.filter === id}
          title={description as string | undefined}
        />
      ))}
      {isSavable && (
        <DialogButton label="Save these filters…" heading="Save these filters" kind="quiet">
          {(close) => <SaveForm filters={filters} onClose={close} />}
        </DialogButton>
      )}
    </nav>
  );
}

interface FilterTabProps {
  id?: string;
  label: string;
  isShown: boolean;
  title?: string | undefined;
}

function FilterTab({ id, label, isShown, title }: FilterTabProps) {
  return (
    <Link
      to="."
      search={id === undefined ? {} : { filter: id }}
      className="button tab"
      title={title}
      activeOptions={{ includeSearch: true, exact: true }}
      aria-current={isShown ? 'page' : undefined}
    >
      {label}
    </Link>
  );
}

function SaveForm({ filters, onClose }: { filters: Readonly<Record<string, string>>; onClose(): void }) {
  const schema = useSession().bodyOf('POST', path);
  const withQuery = (values: Values) => ({ ...values, query: stringifySearch(filters).slice(1) });
  const save = useApiMutation({
    run: (values: Values) => request('POST', path, { body: withQuery(values) }),
    message: (_answer, { name }) => `Saved ${name}.`,
    onDone: onClose,
  });
  return (
    <SchemaForm
      schema={schema}
      fields={['name', 'description']}
      submitLabel="Save"
      mutation={save}
      onCancel={onClose}
      callOf={(values) => ({ method: 'POST', path, body: withQuery(values) })}
    />
  );
}
