import { useReducer } from 'react';
import { pathOf, request } from '../api/client.js';
import { useAction, useApiMutation, useSession } from '../api/hooks.js';
import { CreateForm } from '../forms/create-form.js';
import { SchemaForm, type Values } from '../forms/form.js';
import { ObjectTable } from '../lists/object-table.js';
import { Button } from '../ui/button.js';
import { ConfirmButton } from '../ui/dialog.js';
import { Panel } from '../ui/page.js';
import { isMissing, saveCredentials } from './credentials.js';

const credentials_template = '/mqttdevices/{device_id_developer}/credentials/';
const topics_template = '/mqttdevices/{device_id_developer}/topics/';

/** Lets a device log in at the broker: its credentials and its topics. */
export function DeviceMqtt({ id }: { id: string }) {
  const { can } = useSession();
  return (
    <div className="stack">
      {can('PUT', credentials_template) && <Credentials id={id} />}
      <Topics path={pathOf('mqttdevices', id, 'topics')} />
    </div>
  );
}

function Credentials({ id }: { id: string }) {
  const [round, startOver] = useReducer((count: number) => count + 1, 0);
  const save = useApiMutation({
    run: (body: Values) => saveCredentials(id, body),
    message: () => 'The credentials are set.',
    onDone: startOver,
  });
  const remove = useAction(
    () =>
      request('DELETE', pathOf('mqttdevices', id)).then(
        () => 'The credentials are deleted; the device is logged out.',
        (error: unknown) => {
          if (!isMissing(error)) throw error;
          return 'The device has no credentials.';
        },
      ),
    (text) => text,
  );
  const schema = useSession().bodyOf('POST', credentials_template);
  return (
    <Panel
      title="Credentials"
      actions={
        <ConfirmButton label="Delete credentials" heading="Delete credentials" onConfirm={remove}>
          The device is logged out at once and cannot log in until it has new ones.
        </ConfirmButton>
      }
    >
      <SchemaForm key={round} schema={schema} submitLabel="Set credentials" mutation={save} />
    </Panel>
  );
}

function Topics({ path }: { path: string }) {
  const { can } = useSession();
  const remove = useAction((name: string) => request('DELETE', path, { body: { name } }));
  const renderDelete = ({ name }: Values) => (
    <Button label="Delete" of={String(name)} onClick={() => remove(String(name))} />
  );
  return (
    <Panel title="Topics">
      <ObjectTable
        caption="Topics"
        template={topics_template}
        path={path}
        columns={['name', 'created_at']}
        keyOf={({ name }) => String(name)}
        rowAction={can('DELETE', topics_template) ? renderDelete : undefined}
        empty="None but its own two."
      />
      {can('POST', topics_template) && <CreateForm path={path} template={topics_template} submitLabel="Add topic" />}
    </Panel>
  );
}
