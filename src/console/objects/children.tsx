import { useState } from 'react';
import { useList, useSession } from '../api/hooks.js';
import { useNames } from '../api/names.js';
import { fieldFor, parentFields, type ResourceType, type StoredObject } from '../api/resources.js';
import { config_counts_path } from '../device/config-rows.js';
import { LinkButton } from '../ui/button.js';
import { Loaded, Panel } from '../ui/page.js';
import { columnsOf, PagedTable } from '../ui/table.js';

const present_ms = 10_000;
const max_children = 20;

/** The objects of each type directly below an object. */
export function AllChildren({ type, id }: { type: ResourceType; id: string }) {
  return type.children.map((child) => (
    <Children key={`${child.plural} ${id}`} type={child} field={fieldFor(type)} id={id} />
  ));
}

/** The objects directly below, a page at a time. */
function Children({ type, field, id }: { type: ResourceType; field: string; id: string }) {
  const { plural, title, name, columns, list_path } = type;
  const { can, entryOf } = useSession();
  const [offset, setOffset] = useState(0);
  const query = { [field]: id, max: max_children, offset };
  const answer = useList<StoredObject>(list_path, query, { refetch_ms: present_ms });
  const shown = columns.filter((column) => column !== field && !parentFields.includes(column));
  const schema = entryOf(list_path);
  const nameOf = useNames(shown.flatMap((column) => schema.properties?.[column]?.['x-references'] ?? []));
  return (
    <Panel
      title={title}
      actions={
        <>
          <LinkButton to="/$plural" params={{ plural }} search={{ [field]: id }} label="Open as a list" />
          {plural === 'devices' && can('GET', config_counts_path) && (
            <LinkButton to="/configs" search={{ [field]: id }} label="Configuration files" />
          )}
          {can('POST', list_path) && (
            <LinkButton to="/$plural/new" params={{ plural }} search={{ [field]: id }} label={`New ${name}`} />
          )}
        </>
      }
    >
      <Loaded of={answer}>
        {({ total_documents: total, result }) =>
          total === 0 ? (
            <p className="muted">None.</p>
          ) : (
            <PagedTable
              caption={title}
              entries={result}
              columns={columnsOf<StoredObject>(schema, shown, { linked: plural, nameOf })}
              offset={offset}
              max={max_children}
              total={total}
              onMove={setOffset}
            />
          )
        }
      </Loaded>
    </Panel>
  );
}
