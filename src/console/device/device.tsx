import './device.css';
import { OpenAlarmsOfDevice } from '../alarms/open-alarms.js';
import { useModel, useSession } from '../api/hooks.js';
import type { Device } from '../api/interface.js';
import { type Entry, type StoredObject, shownStatusOf } from '../api/resources.js';
import { DeviceChart } from '../charts/device-chart.js';
import { isDeepEqual } from '../lib/compare.js';
import { formatDistance, formatDuration } from '../lib/format.js';
import { MapPreview } from '../map/map-preview.js';
import { ObjectLink } from '../ui/address.js';
import { Facts, Panel } from '../ui/page.js';
import type { Tab } from '../ui/tabs.js';
import { FieldList, StatusBadge, Time } from '../ui/value.js';
import { DeviceCommands } from './commands.js';
import { Connect } from './connect.js';
import { DeviceConfigs } from './device-configs.js';
import { DeviceMqtt } from './device-mqtt.js';
import { DeviceStateView, state_template } from './device-state.js';
import { DeviceStreams } from './streams.js';

/** The parts of a device's page that no other type has. */
export function deviceTabs(object: StoredObject): Tab[] {
  const id = object.id_developer;
  return [
    { id: 'device', label: 'Overview', render: () => <DeviceOverview device={object as StoredObject & Device} /> },
    {
      id: 'connect',
      label: 'Connect',
      aliases: ['mqtt'],
      needs: ['GET', '/mqttdevices/{device_id_developer}/topics/'],
      render: () => <Connection device={object as StoredObject & Device} />,
    },
    {
      id: 'streams',
      label: 'Streams',
      needs: ['GET', '/devices/{device_id_developer}/streams/'],
      render: () => <DeviceStreams device={object as StoredObject & Device} />,
    },
    {
      id: 'state',
      label: 'State and commands',
      aliases: ['commands'],
      needs: ['GET', state_template],
      render: () => (
        <div className="stack">
          <DeviceStateView id={id} />
          <DeviceCommands id={id} />
        </div>
      ),
    },
    {
      id: 'configs',
      label: 'Files',
      needs: ['GET', '/devices/{device_id_developer}/deviceconfigs/'],
      render: () => <DeviceConfigs id={id} />,
    },
  ];
}

/** The way from a new device to its first message, and what it may do at the broker. */
function Connection({ device }: { device: StoredObject & Device }) {
  const { can } = useSession();
  return (
    <div className="stack">
      {can('PUT', '/mqttdevices/{device_id_developer}/credentials/') && (
        <div className="columns">
          <Connect device={device} />
          <DeviceChart device={device} />
        </div>
      )}
      <DeviceMqtt id={device.id_developer} />
    </div>
  );
}

const shownElsewhere = [
  'properties',
  'status',
  'last_stream_at',
  'last_status_at',
  'stream_due_at',
  'status_due_at',
  'name',
  'networking',
];

function DeviceOverview({ device }: { device: StoredObject & Device }) {
  const schema = useSession().entryOf('/devices/');
  const fields = Object.keys(schema.properties ?? {}).filter((field) => !shownElsewhere.includes(field));
  const { networking } = device;
  return (
    <div className="stack">
      <OpenAlarmsOfDevice id={device.id_developer} />
      <Panel title="Status" actions={<StatusBadge status={shownStatusOf(device)} />}>
        <div className="columns">
          <Deadline device={device} kind="stream" />
          <Deadline device={device} kind="status" />
        </div>
      </Panel>
      <DeviceChart device={device} />
      <div className="columns">
        <Panel title="Fields">
          <FieldList schema={schema} values={device} fields={fields} />
        </Panel>
        <div className="stack">
          {device.lon !== undefined && (
            <Panel title="Place">
              <MapPreview query={{ id_developer: device.id_developer }} isSmall isFitted />
            </Panel>
          )}
          {networking !== undefined && (
            <Panel title="Networking">
              <FieldList schema={{}} values={networking as Entry} fields={Object.keys(networking)} />
            </Panel>
          )}
          <DeviceProperties device={device} />
        </div>
      </div>
    </div>
  );
}

/** The time from the last stream of a kind to its deadline, and now. */
function Deadline({ device, kind }: { device: Device; kind: 'stream' | 'status' }) {
  const label = kind === 'stream' ? 'Data' : 'Status';
  const [last_at, due_at] = [device[`last_${kind}_at`], device[`${kind}_due_at`]];
  if (last_at === undefined || due_at === undefined)
    return (
      <div>
        <h3>{label}</h3>
        <p className="muted">Never received.</p>
      </div>
    );
  const now_s = Date.now() / 1000;
  const isLate = now_s > due_at;
  // the scale ends at the deadline, or now if that has passed
  const length_s = Math.max(due_at, now_s) - last_at;
  const percent = (time: number) => `${Math.min(100, Math.max(0, ((time - last_at) / Math.max(length_s, 1)) * 100))}%`;
  return (
    <div>
      <h3>{label}</h3>
      <p>
        Last <Time seconds={last_at} timeZone={device.time_zone} />
        {isLate ? `, late by ${formatDuration(now_s - due_at)}` : `, next due ${formatDistance(due_at)}`}
      </p>
      <div className={isLate ? 'deadline late' : 'deadline'} aria-hidden="true">
        <div className="elapsed" style={{ width: percent(now_s) }} />
        <div className="due" style={{ left: percent(due_at) }} />
      </div>
    </div>
  );
}

/** The properties of a device; those that its model gives are marked. */
export function DeviceProperties({ device: { id_model, properties = {} } }: { device: Device }) {
  const model = useModel(id_model);
  const inherited = model.data?.properties ?? {};
  const isInherited = (name: string) =>
    Object.hasOwn(inherited, name) && isDeepEqual(inherited[name], properties[name]);
  return (
    <Panel title="Properties">
      {Object.keys(properties).length === 0 && <p className="muted">None.</p>}
      <Facts
        entries={Object.entries(properties).map(([name, value]) => [
          name,
          <div key={name}>
            <code className="json">{JSON.stringify(value)}</code>{' '}
            {id_model !== undefined && isInherited(name) && (
              <span className="muted">
                from <ObjectLink plural="models" id={id_model} />
              </span>
            )}
          </div>,
        ])}
      />
    </Panel>
  );
}
