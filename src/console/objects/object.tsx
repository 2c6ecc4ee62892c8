import { Link, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { pathOf } from '../api/client.js';
import { useGet, useList } from '../api/queries.js';
import { findType, parentFields, type ResourceType, type StoredObject } from '../api/resources.js';
import { useSession } from '../api/session.js';
import { deviceTabs } from '../device/device.js';
import { DeleteDialog } from '../edit/delete-dialog.js';
import { EditForm } from '../edit/edit-form.js';
import { ObjectEvents } from '../events/events.js';
import { ListLink } from '../ui/address.js';
import { Button } from '../ui/button.js';
import { Loaded } from '../ui/feedback.js';
import { Page, Panel } from '../ui/page.js';
import { PagedTable } from '../ui/table.js';
import { type Tab, Tabs } from '../ui/tabs.js';
import { columnsOf, FieldList } from '../ui/value.js';
import { Trail } from './trail.js';

const refresh_ms = 5000;

export function ObjectView({ type, id }: { type: ResourceType; id: string }) {
  const { plural, title, object_path } = type;
  const answer = useGet<StoredObject>(pathOf(plural, id), {}, { refetch_ms: refresh_ms });
  const tabsOf = (object: StoredObject): Tab[] => [
    ...(type.name === 'device'
      ? deviceTabs(object)
      : [{ id: 'fields', label: 'Overview', render: () => <ObjectOverview type={type} object={object} /> }]),
    {
      id: 'history',
      label: 'History',
      needs: ['GET', '/events/'],
      render: () => <ObjectEvents type={type} id={object.id_developer} />,
    },
    {
      id: 'edit',
      label: 'Edit',
      needs: ['PUT', object_path],
      render: () => <Editing type={type} object={object} />,
    },
    {
      id: 'danger',
      label: 'Danger zone',
      needs: ['DELETE', object_path],
      render: () => <DangerZone type={type} object={object} />,
    },
  ];
  return (
    <Page
      title={answer.data?.name ?? id}
      trail={answer.data ? <Trail type={type} object={answer.data} /> : <ListLink plural={plural}>{title}</ListLink>}
    >
      <Loaded of={answer} height="24rem">
        {(object) => <Tabs tabs={tabsOf(object)} />}
      </Loaded>
    </Page>
  );
}

function ObjectOverview({ type, object }: { type: ResourceType; object: StoredObject }) {
  const { entryOf } = useSession();
  return (
    <div className="stack">
      <Panel title="Fields">
        <FieldList schema={entryOf(type.list_path)} values={object} />
      </Panel>
      {type.children.map(({ plural, field }) => {
        const child = findType(plural);
        return child && <Children key={plural} type={child} field={field} id={object.id_developer} />;
      })}
    </div>
  );
}

const max_children = 20;

/** The objects directly below, a page at a time. */
function Children({ type, field, id }: { type: ResourceType; field: string; id: string }) {
  const { plural, title, name, columns, list_path } = type;
  const { can, entryOf } = useSession();
  const [offset, setOffset] = useState(0);
  const answer = useList<StoredObject>(list_path, { [field]: id, max: max_children, offset });
  const shown = columns.filter((column) => column !== field && !parentFields.includes(column));
  return (
    <Panel
      title={title}
      actions={
        <>
          <Link to="/$plural" params={{ plural }} search={{ [field]: id }} className="button">
            Open as a list
          </Link>
          {can('POST', list_path) && (
            <Link to="/$plural/new" params={{ plural }} search={{ [field]: id }} className="button">
              New {name}
            </Link>
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
              keyOf={({ id_developer }) => id_developer}
              columns={columnsOf<StoredObject>(entryOf(list_path), shown, { linked: plural })}
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

/** The form keeps the version that it was opened with, while the page around it is read again and again. */
function Editing({ type, object }: { type: ResourceType; object: StoredObject }) {
  const navigate = useNavigate();
  return (
    <Panel title="Edit">
      <EditForm type={type} object={object} onSaved={() => void navigate({ to: '.', search: {} })} />
    </Panel>
  );
}

function DangerZone({ type, object }: { type: ResourceType; object: StoredObject }) {
  const [isDeleting, setDeleting] = useState(false);
  const navigate = useNavigate();
  return (
    <Panel title="Danger zone">
      <div className="row">
        <p>Deletes this {type.name} with everything below it.</p>
        <Button kind="danger" onClick={() => setDeleting(true)}>
          Delete…
        </Button>
      </div>
      {isDeleting && (
        <DeleteDialog
          type={type}
          object={object}
          onClose={() => setDeleting(false)}
          onDeleted={() => void navigate({ to: '/$plural', params: { plural: type.plural } })}
        />
      )}
    </Panel>
  );
}
