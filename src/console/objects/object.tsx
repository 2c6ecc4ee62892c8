import { useNavigate } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import { AllAlarms } from '../alarms/alarms.js';
import { pathOf } from '../api/client.js';
import { useGet, useSession } from '../api/hooks.js';
import { fieldFor, limitFields, type Measure, type ResourceType, type StoredObject } from '../api/resources.js';
import { noteVisited } from '../api/visited.js';
import { deviceTabs } from '../device/device.js';
import { DeleteDialog } from '../edit/delete-dialog.js';
import { EditForm } from '../edit/edit-form.js';
import { ObjectEvents } from '../events/events.js';
import { CreateWithSecret } from '../forms/create-form.js';
import { ListLink } from '../ui/address.js';
import { Button, copy } from '../ui/button.js';
import { CurlButton } from '../ui/curl.js';
import { Loaded, Page, Panel } from '../ui/page.js';
import { columnsOf, Table } from '../ui/table.js';
import { type Tab, Tabs } from '../ui/tabs.js';
import { FieldList, ReadAt } from '../ui/value.js';
import { AllChildren } from './children.js';
import { formOf } from './form-extras.js';
import { Trail } from './trail.js';

const refresh_ms = 5000;
const keys_path = '/apikeys/';
const alarms_template = '/devices/{device_id_developer}/alarms/';

export function ObjectView({ type, id }: { type: ResourceType; id: string }) {
  const { plural, title, object_path } = type;
  const { can } = useSession();
  const answer = useGet<StoredObject>(pathOf(plural, id), {}, { refetch_ms: refresh_ms });
  const name = answer.data?.name;
  useEffect(() => {
    if (name !== undefined) noteVisited({ plural, id, name });
  }, [plural, id, name]);
  const tabsOf = (object: StoredObject): Tab[] => [
    ...(type.name === 'device'
      ? deviceTabs(object)
      : [{ id: 'fields', label: 'Overview', render: () => <ObjectOverview type={type} object={object} /> }]),
    {
      id: 'history',
      label: type.name === 'device' ? 'Alarms and events' : 'History',
      aliases: ['alarms'],
      needs: ['GET', '/events/'],
      render: () => (
        <div className="stack">
          {type.name === 'device' && can('GET', alarms_template) && (
            <Panel title="Alarms">
              <AllAlarms template={alarms_template} path={pathOf(plural, id, 'alarms')} />
            </Panel>
          )}
          <ObjectEvents type={type} object={object} />
        </div>
      ),
    },
    {
      id: 'edit',
      label: 'Edit',
      aliases: ['danger'],
      needs: ['PUT', object_path],
      render: () => <Editing type={type} object={object} />,
    },
  ];
  return (
    <Page
      title={answer.data?.name ?? id}
      actions={
        <>
          <CurlButton callOf={() => ({ method: 'GET', path: pathOf(plural, id) })} />
          <Button label="Copy identifier" onClick={() => copy(id)} />
          {can('POST', keys_path) && Object.hasOwn(limitFields, fieldFor(type)) && (
            <CreateWithSecret
              label={`New key for this ${type.noun}`}
              path={keys_path}
              initial={{ [fieldFor(type)]: id }}
              secret="key"
              secret_title="The new key"
            />
          )}
        </>
      }
      trail={answer.data ? <Trail type={type} object={answer.data} /> : <ListLink plural={plural}>{title}</ListLink>}
    >
      <Loaded of={answer} height="24rem">
        {(object) => (
          <>
            <Tabs tabs={tabsOf(object)} />
            <ReadAt at_ms={answer.dataUpdatedAt} />
          </>
        )}
      </Loaded>
    </Page>
  );
}

function ObjectOverview({ type, object }: { type: ResourceType; object: StoredObject }) {
  const { entryOf, resolve } = useSession();
  const schema = entryOf(type.list_path);
  const { properties = {} } = schema;
  const measure = resolve(resolve(properties.measures).items);
  const fields = Object.keys(properties).filter((field) => field !== 'measures');
  return (
    <div className="stack">
      <Panel title="Fields">
        <FieldList schema={schema} values={object} fields={fields} />
      </Panel>
      {Array.isArray(object.measures) && (
        <Panel title="Measures">
          <Table
            caption="Measures"
            entries={object.measures as Measure[]}
            keyOf={({ path }) => path}
            columns={columnsOf<Measure>(measure, Object.keys(measure.properties ?? {}))}
          />
        </Panel>
      )}
      <AllChildren type={type} id={object.id_developer} />
    </div>
  );
}

/** The form keeps the version that it was opened with, while the page around it is read again and again. */
function Editing({ type, object }: { type: ResourceType; object: StoredObject }) {
  const [isDeleting, setDeleting] = useState(false);
  const navigate = useNavigate();
  const { bodyOf, can } = useSession();
  return (
    <div className="stack">
      <Panel title="Edit">
        <EditForm
          {...formOf(type, bodyOf('PUT', type.object_path))}
          type={type}
          object={object}
          onSaved={() => void navigate({ to: '.', search: {} })}
        />
      </Panel>
      {can('DELETE', type.object_path) && (
        <Panel title="Danger zone">
          <div className="row">
            <p>Deletes this {type.noun} with everything below it.</p>
            <Button label="Delete…" kind="danger" onClick={() => setDeleting(true)} />
          </div>
        </Panel>
      )}
      {isDeleting && (
        <DeleteDialog
          type={type}
          object={object}
          onClose={() => setDeleting(false)}
          onDeleted={() => void navigate({ to: '/$plural', params: { plural: type.plural } })}
        />
      )}
    </div>
  );
}
