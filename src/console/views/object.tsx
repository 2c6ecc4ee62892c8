import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { Link, ObjectLink } from '../address.js';
import { pathOf } from '../api/client.js';
import { entrySchemaOf } from '../api/document.js';
import { useGet, useList, useSession } from '../api/queries.js';
import { DeleteDialog } from '../components/delete-dialog.js';
import { EditForm } from '../components/edit-form.js';
import { Loaded } from '../components/feedback.js';
import { Page, Panel } from '../components/page.js';
import { Pager, Table } from '../components/table.js';
import { type Tab, Tabs } from '../components/tabs.js';
import { Trail } from '../components/trail.js';
import { FieldList, Value } from '../components/value.js';
import { findType, type ResourceType, type StoredObject, templateOf } from '../resources.js';
import { deviceTabs } from './device.js';
import { ObjectEvents } from './events.js';

const refresh_ms = 5000;

/** The page of one object. */
export function ObjectView({ type, id }: { type: ResourceType; id: string }) {
  const answer = useGet<StoredObject>(pathOf(type.plural, id), {}, { refetch_ms: refresh_ms });
  const object = answer.data;
  return (
    <Page
      title={object?.name ?? id}
      trail={
        object ? (
          <Trail type={type} object={object} />
        ) : (
          <Link to="/$plural" params={{ plural: type.plural }}>
            {type.title}
          </Link>
        )
      }
    >
      <Loaded of={answer} height="24rem">
        {(loaded) => <ObjectTabs type={type} object={loaded} />}
      </Loaded>
    </Page>
  );
}

function ObjectTabs({ type, object }: { type: ResourceType; object: StoredObject }) {
  const { can } = useSession();
  const template = templateOf(type);
  const tabs: Tab[] = [
    ...(type.name === 'device'
      ? deviceTabs(object, can)
      : [{ id: 'fields', label: 'Overview', render: () => <ObjectOverview type={type} object={object} /> }]),
    ...(can('GET', '/events/')
      ? [
          {
            id: 'history',
            label: 'History',
            render: () => <ObjectEvents plural={type.plural} id={object.id_developer} />,
          },
        ]
      : []),
    ...(can('PUT', template)
      ? [{ id: 'edit', label: 'Edit', render: () => <Editing type={type} object={object} /> }]
      : []),
    ...(can('DELETE', template)
      ? [{ id: 'danger', label: 'Danger zone', render: () => <DangerZone type={type} object={object} /> }]
      : []),
  ];
  return <Tabs tabs={tabs} />;
}

function ObjectOverview({ type, object }: { type: ResourceType; object: StoredObject }) {
  const { document } = useSession();
  return (
    <div className="stack">
      <Panel title="Fields">
        <FieldList schema={entrySchemaOf(document, `/${type.plural}/`)} values={object} />
      </Panel>
      {type.children.map(({ plural, field }) => (
        <Children key={plural} plural={plural} field={field} id={object.id_developer} />
      ))}
    </div>
  );
}

const max_children = 20;

/** The objects directly below, a page at a time. */
function Children({ plural, field, id }: { plural: string; field: string; id: string }) {
  const { can, document } = useSession();
  const [offset, setOffset] = useState(0);
  const type = findType(plural);
  const answer = useList<StoredObject>(`/${plural}/`, { [field]: id, max: max_children, offset });
  if (type === undefined) return null;
  const schema = entrySchemaOf(document, `/${plural}/`);
  const columns = type.columns.filter((name) => name !== field && name !== 'id_asset' && name !== 'id_group');
  return (
    <Panel
      title={type.title}
      actions={
        <>
          <Link to="/$plural" params={{ plural }} search={{ [field]: id }} className="button">
            Open as a list
          </Link>
          {can('POST', `/${plural}/`) && (
            <Link to="/$plural/new" params={{ plural }} search={{ [field]: id }} className="button">
              New {type.name}
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
            <>
              <Table
                caption={type.title}
                entries={result}
                keyOf={({ id_developer }) => id_developer}
                columns={columns.map((name) => ({
                  field: name,
                  render: (entry: StoredObject) =>
                    name === 'name' ? (
                      <ObjectLink plural={plural} id={entry.id_developer}>
                        {entry.name}
                      </ObjectLink>
                    ) : (
                      <Value field={name} value={entry[name]} schema={schema.properties?.[name]} />
                    ),
                }))}
              />
              <div className="list-foot">
                <Pager of={type.title} offset={offset} max={max_children} total={total} onMove={setOffset} />
              </div>
            </>
          )
        }
      </Loaded>
    </Panel>
  );
}

/** The form keeps the version that it was opened with, while the page around it is read again and again. */
function Editing({ type, object }: { type: ResourceType; object: StoredObject }) {
  const [round, setRound] = useState(0);
  const navigate = useNavigate();
  return (
    <Panel title="Edit">
      <EditForm
        key={round}
        type={type}
        object={object}
        onSaved={() => {
          setRound(round + 1);
          void navigate({ to: '.', search: {} });
        }}
      />
    </Panel>
  );
}

function DangerZone({ type, object }: { type: ResourceType; object: StoredObject }) {
  const [isDeleting, setDeleting] = useState(false);
  const navigate = useNavigate();
  return (
    <Panel title="Danger zone">
      <div className="actions">
        <p>Deletes this {type.name} with everything below it.</p>
        <button type="button" className="danger" onClick={() => setDeleting(true)}>
          Delete…
        </button>
      </div>
      {isDeleting && (
        <DeleteDialog
          type={type}
          object={object}
          onClose={() => setDeleting(false)}
          onDeleted={() => void navigate({ to: '/$plural', params: { plural: type.plural } as never })}
        />
      )}
    </Panel>
  );
}
