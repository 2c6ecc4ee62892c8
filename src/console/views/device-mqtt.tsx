import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { pathOf, request } from '../api/client.js';
import { bodySchemaOf } from '../api/document.js';
import { describeError, RequestError } from '../api/errors.js';
import { useSession } from '../api/queries.js';
import { Command } from '../components/command.js';
import { ConfirmButton } from '../components/confirm-button.js';
import { announce } from '../components/feedback.js';
import { SchemaForm, type Values } from '../components/form.js';
import { ObjectTable } from '../components/object-table.js';
import { Panel } from '../components/page.js';
import { encodeForTopic, quoteForShell } from '../encode.js';

const credentialsTemplate = '/mqttdevices/{device_id_developer}/credentials/';
const topicsTemplate = '/mqttdevices/{device_id_developer}/topics/';
const default_mqtt_port = 1883;

/** Lets a device log in at the broker: its credentials, its topics, and a command that sends a stream as it would. */
export function DeviceMqtt({ id }: { id: string }) {
  const { can } = useSession();
  const [username, setUsername] = useState('USERNAME');
  return (
    <div className="stack">
      {can('PUT', credentialsTemplate) && <Credentials id={id} onSaved={setUsername} />}
      <Panel title="Send a stream">
        <p>
          With its credentials the device may publish and subscribe to its own two topics; what it publishes becomes a
          stream.
        </p>
        <Command text={publishCommand(id, username, 'streams', { temperature: 21.5 })} />
        <Command text={publishCommand(id, username, 'status', { battery: 87 })} />
        <p className="help">
          The port is the default of MQTT_PORT, and PASSWORD what you have set above: the service never shows it.
        </p>
      </Panel>
      <Topics id={id} />
    </div>
  );
}

function publishCommand(id: string, username: string, kind: string, data: object): string {
  const topic = `${encodeForTopic(id)}/${kind}`;
  const words = ['-h', location.hostname, '-p', String(default_mqtt_port), '-u', username, '-P', 'PASSWORD', '-q', '1'];
  return ['mosquitto_pub', ...words, '-t', topic, '-m', JSON.stringify(data)].map(quoteForShell).join(' ');
}

function Credentials({ id, onSaved }: { id: string; onSaved(username: string): void }) {
  const { document } = useSession();
  const [round, setRound] = useState(0);
  const path = pathOf('mqttdevices', id, 'credentials');

  async function save(body: Values): Promise<void> {
    try {
      await request('PUT', path, { body });
    } catch (error) {
      if (!(error instanceof RequestError) || error.code !== 4041) throw error;
      await request('POST', path, { body });
    }
    announce('The credentials are set.');
    onSaved(String(body.username));
    setRound(round + 1);
  }

  async function remove(): Promise<void> {
    try {
      await request('DELETE', pathOf('mqttdevices', id));
      announce('The credentials are deleted; the device is logged out.');
    } catch (error) {
      const isMissing = error instanceof RequestError && error.code === 4041;
      announce(isMissing ? 'The device has no credentials.' : describeError(error));
    }
  }

  return (
    <Panel
      title="Credentials"
      actions={
        <ConfirmButton label="Delete credentials" title="Delete credentials" onConfirm={() => void remove()}>
          The device is logged out at once and cannot log in until it has new ones.
        </ConfirmButton>
      }
    >
      <SchemaForm
        key={round}
        schema={bodySchemaOf(document, 'post', credentialsTemplate) ?? {}}
        submitLabel="Set credentials"
        onSubmit={save}
      />
    </Panel>
  );
}

function Topics({ id }: { id: string }) {
  const { document, can } = useSession();
  const queryClient = useQueryClient();
  const [round, setRound] = useState(0);
  const path = pathOf('mqttdevices', id, 'topics');
  const refresh = () => queryClient.invalidateQueries({ queryKey: [path] });

  async function add(body: Values): Promise<void> {
    await request('POST', path, { body });
    await refresh();
    setRound(round + 1);
  }

  async function remove(name: unknown): Promise<void> {
    await request('DELETE', path, { body: { name } }).catch((error: unknown) => announce(describeError(error)));
    await refresh();
  }

  return (
    <Panel title="Topics">
      <ObjectTable
        caption="Topics"
        template={topicsTemplate}
        path={path}
        columns={['name', 'created_at']}
        keyOf={({ name }) => String(name)}
        empty={<p className="muted">None but its own two.</p>}
        {...(can('DELETE', topicsTemplate) && {
          rowAction: ({ name }) => (
            <button type="button" onClick={() => void remove(name)}>
              Delete<span className="hidden"> {String(name)}</span>
            </button>
          ),
        })}
      />
      {can('POST', topicsTemplate) && (
        <SchemaForm
          key={round}
          schema={bodySchemaOf(document, 'post', topicsTemplate) ?? {}}
          submitLabel="Add topic"
          onSubmit={add}
        />
      )}
    </Panel>
  );
}
