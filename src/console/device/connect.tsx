import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { pathOf, request } from '../api/client.js';
import { useApiMutation, useSession } from '../api/hooks.js';
import type { Device, StatusAnswer } from '../api/interface.js';
import { useLive } from '../api/live.js';
import { pageSettings } from '../api/page-settings.js';
import { Button, Command, Toggle } from '../ui/button.js';
import { Failure, Panel } from '../ui/page.js';
import { Time } from '../ui/value.js';
import { generatePassword, saveCredentials } from './credentials.js';
import { buildSnippets } from './snippets.js';

const credentials_template = '/mqttdevices/{device_id_developer}/credentials/';
const live_template = '/devices/{device_id_developer}/streams/live/';
const loopback = ['127.0.0.1', 'localhost', '[::1]'];

/** Credentials of a device. */
interface Login {
  key?: string;
  username?: string;
  password?: string;
}

/** The way from a new device to its first message: a login, a program that sends, and a light. */
export function Connect({ device }: { device: Device }) {
  const [login, setLogin] = useState<Login>({});
  return (
    <div className="stack">
      <Panel title="Connection">
        <Light device={device} />
      </Panel>
      <LoginPanel device={device} login={login} onLogin={setLogin} />
      <SendPanel device={device} login={login} />
    </div>
  );
}

function Light({ device: { id_developer, last_stream_at, last_status_at } }: { device: Device }) {
  const queryClient = useQueryClient();
  const { can } = useSession();
  const path = pathOf('devices', id_developer);
  const refresh = () => void queryClient.invalidateQueries({ queryKey: [path] });
  useLive(`${path}streams/live/`, {}, can('GET', live_template), refresh);
  const last = Math.max(last_stream_at ?? 0, last_status_at ?? 0);
  return (
    <p role="status" className={last > 0 ? 'row light on' : 'row light'}>
      {last > 0 ? (
        <span>
          Connected: last message <Time seconds={last} />
        </span>
      ) : (
        'Waiting for the first message…'
      )}
    </p>
  );
}

interface LoginPanelProps {
  device: Device;
  login: Login;
  onLogin(login: Login): void;
}

function LoginPanel({ device: { id_developer, name }, login, onLogin }: LoginPanelProps) {
  const { can, self } = useSession();
  const createKey = useApiMutation({
    run: () => {
      const body = { username: self.username, scope: 'device', id_device: id_developer, description: `For ${name}` };
      return request<StatusAnswer>('POST', '/apikeys/', { body });
    },
    onDone: ({ details }) => onLogin({ ...login, key: String(details.key) }),
  });
  const createCredentials = useApiMutation({
    async run() {
      const credentials = { username: id_developer.slice(0, 100), password: generatePassword() };
      await saveCredentials(id_developer, credentials);
      return credentials;
    },
    onDone: (credentials) => onLogin({ ...login, ...credentials }),
  });
  const hasBroker = pageSettings.hasBroker && can('PUT', credentials_template);
  return (
    <Panel title="1. Let it log in">
      <div className="stack">
        <p>
          A key of the scope <strong>device</strong> is for HTTP, and opens nothing but this device. Credentials are for
          MQTT, and replace those that it has.
        </p>
        <div className="row">
          {can('POST', '/apikeys/') && (
            <Button
              label="Create a key for this device"
              kind="primary"
              disabled={createKey.isPending}
              onClick={() => createKey.mutate()}
            />
          )}
          {hasBroker && (
            <Button
              label="Create MQTT credentials"
              disabled={createCredentials.isPending}
              onClick={() => createCredentials.mutate()}
            />
          )}
        </div>
        {!can('POST', '/apikeys/') && <p className="muted">Keys are created by a key of the scope admin.</p>}
        <Failure error={createKey.error ?? createCredentials.error} />
        {login.key !== undefined && <Secret label="The key" text={login.key} />}
        {login.password !== undefined && (
          <Secret label={`The password of the user ${login.username}`} text={login.password} />
        )}
      </div>
    </Panel>
  );
}

function Secret({ label, text }: { label: string; text: string }) {
  return (
    <div>
      <p>{label}. This is the only time it is shown.</p>
      <Command text={text} />
    </div>
  );
}

function SendPanel({ device: { id_developer: id }, login }: { device: Device; login: Login }) {
  const snippets = buildSnippets({
    id,
    url: location.origin + pageSettings.base,
    host: location.hostname,
    mqtt_port: pageSettings.mqtt_port,
    mqtts_port: pageSettings.mqtts_port,
    key: login.key ?? 'KEY',
    username: login.username ?? 'USERNAME',
    password: login.password ?? 'PASSWORD',
  });
  const [chosen, setChosen] = useState<string>();
  const wanted = login.username === undefined || login.key !== undefined ? 'curl' : 'mosquitto_pub';
  const shown = snippets.find(({ name }) => name.startsWith(chosen ?? wanted)) ?? snippets[0];
  return (
    <Panel title="2. Send a message">
      <fieldset className="row choices">
        <legend className="hidden">Program</legend>
        {snippets.map(({ name }) => (
          <Toggle key={name} label={name} isOn={name === shown?.name} onChange={() => setChosen(name)} />
        ))}
      </fieldset>
      <Command text={shown?.text ?? ''} />
      {loopback.includes(location.hostname) && (
        <p className="help">
          A device on the network needs the address of this machine in place of {location.hostname}, and a service that
          listens there (HOST=0.0.0.0).
        </p>
      )}
    </Panel>
  );
}
