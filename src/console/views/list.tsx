import { useState } from 'react';
import { Link, useAddress } from '../address.js';
import { send } from '../api/client.js';
import { filtersOf, parameterOf } from '../api/document.js';
import { describeError } from '../api/errors.js';
import { readListState } from '../api/list-query.js';
import { useSession } from '../api/queries.js';
import { BulkDialog } from '../components/bulk-dialog.js';
import { announce } from '../components/feedback.js';
import { ObjectTable } from '../components/object-table.js';
import { Page } from '../components/page.js';
import { downloadBlob } from '../download.js';
import type { ResourceType } from '../resources.js';

/** The list of one type, with export and changes of all that match where the interface has them. */
export function ListView({ type }: { type: ResourceType }) {
  const { plural, title, singular, columns } = type;
  const { can, document } = useSession();
  const [search] = useAddress();
  const [bulk, setBulk] = useState<'change' | 'delete'>();
  const template = `/${plural}/`;
  const names = filtersOf(document, template).map(({ name }) => name);
  const { filters } = readListState(search, names);
  const hasFilter = Object.keys(filters).length > 0;
  const hint = hasFilter ? undefined : 'Set a filter first';
  return (
    <Page
      title={title}
      actions={
        <>
          {parameterOf(document, template, 'format') && (
            <button type="button" onClick={() => void exportCsv(template, filters, plural)}>
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
              New {singular}
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
        keyOf={({ id_developer }) => String(id_developer)}
      />
      {bulk && <BulkDialog type={type} filters={filters} kind={bulk} onClose={() => setBulk(undefined)} />}
    </Page>
  );
}

/** Downloads everything that matches. */
async function exportCsv(path: string, filters: Record<string, string>, name: string): Promise<void> {
  announce('Exporting…');
  try {
    const response = await send('GET', path, { query: { ...filters, format: 'csv' }, headers: { Accept: 'text/csv' } });
    downloadBlob(await response.blob(), `${name}.csv`);
  } catch (error) {
    announce(describeError(error));
  }
}
