import { pathOf } from '../api/client.js';
import { entrySchemaOf } from '../api/document.js';
import { useSession } from '../api/queries.js';
import { DeviceChart } from '../components/device-chart.js';
import { DeviceProperties } from '../components/device-properties.js';
import { ObjectTable } from '../components/object-table.js';
import { Panel } from '../components/page.js';
import type { Tab } from '../components/tabs.js';
import { FieldList, StatusBadge, Time } from '../components/value.js';
import { formatDistance, formatDuration } from '../format.js';
import type { StoredObject } from '../resources.js';
import { DeviceConfigs } from './device-configs.js';
import { DeviceMqtt } from './device-mqtt.js';

type Can = (method: string, path: string) => boolean;

const streams = '/devices/{device_id_developer}/streams/';
const configs = '/devices/{device_id_developer}/deviceconfigs/';
const topics = '/mqttdevices/{device_id_developer}/topics/';

/** The parts of a device's page that no other type has. */
export function deviceTabs(device: StoredObject, can: Can): Tab[] {
  const id = device.id_developer;
  return [
    { id: 'device', label: 'Overview', render: () => <DeviceOverview device={device} /> },
    ...(can('GET', streams) ? [{ id: 'streams', label: 'Streams', render: () => <DeviceStreams id={id} /> }] : []),
    ...(can('GET', configs) ? [{ id: 'configs', label: 'Configs', render: () => <DeviceConfigs id={id} /> }] : []),
    ...(can('GET', topics) ? [{ id: 'mqtt', label: 'MQTT', render: () => <DeviceMqtt id={id} /> }] : []),
  ];
}

const shownElsewhere = new Set([
  'properties',
  'status',
  'last_stream_at',
  'last_status_at',
  'stream_due_at',
  'status_due_at',
  'name',
  'networking',
]);

function DeviceOverview({ device }: { device: StoredObject }) {
  const { document } = useSession();
  const schema = entrySchemaOf(document, '/devices/');
  const fields = Object.keys(schema.properties ?? {}).filter((field) => !shownElsewhere.has(field));
  return (
    <div className="stack">
      <DeviceStatus device={device} />
      <DeviceChart device={device} />
      <div className="columns">
        <Panel title="Fields">
          <FieldList schema={schema} values={device} fields={fields} />
        </Panel>
        <div className="stack">
          {device.networking !== undefined && (
            <Panel title="Networking">
              <FieldList
                schema={{}}
                values={device.networking as object}
                fields={Object.keys(device.networking as object)}
              />
            </Panel>
          )}
          <DeviceProperties device={device} />
        </div>
      </div>
    </div>
  );
}

function DeviceStatus({ device }: { device: StoredObject }) {
  return (
    <Panel title="Status" actions={<StatusBadge status={String(device.status)} />}>
      <div className="columns">
        <Deadline label="Data" device={device} last="last_stream_at" due="stream_due_at" />
        <Deadline label="Status" device={device} last="last_status_at" due="status_due_at" />
      </div>
    </Panel>
  );
}

interface DeadlineProps {
  label: string;
  device: StoredObject;
  last: string;
  due: string;
}

/** The time from the last stream of a kind to its deadline, and now. */
function Deadline({ label, device, last, due }: DeadlineProps) {
  const [from, to] = [device[last], device[due]];
  const timeZone = typeof device.time_zone === 'string' ? device.time_zone : undefined;
  if (typeof from !== 'number' || typeof to !== 'number')
    return (
      <div>
        <h3>{label}</h3>
        <p className="muted">Never received, so it counts as late.</p>
      </div>
    );
  const now_s = Date.now() / 1000;
  const isLate = now_s > to;
  // the scale ends at the deadline, or now if that has passed
  const end = Math.max(to, now_s);
  const percent = (time: number) => `${Math.min(100, Math.max(0, ((time - from) / Math.max(end - from, 1)) * 100))}%`;
  return (
    <div>
      <h3>{label}</h3>
      <p>
        Last <Time seconds={from} timeZone={timeZone} />
        {isLate ? `, late by ${formatDuration(now_s - to)}` : `, next due ${formatDistance(to)}`}
      </p>
      <div className={isLate ? 'deadline late' : 'deadline'} aria-hidden="true">
        <div className="elapsed" style={{ width: percent(now_s) }} />
        <div className="due" style={{ left: percent(to) }} />
      </div>
    </div>
  );
}

function DeviceStreams({ id }: { id: string }) {
  return (
    <ObjectTable
      caption="Streams"
      template={streams}
      path={pathOf('devices', id, 'streams')}
      columns={['at', '_t', 'data', 'protocol', 'created_at']}
      sorting={{ sort: 'at', order: -1 }}
      refetch_ms={refresh_ms}
      keyOf={({ id_developer }) => String(id_developer)}
      empty={<p className="muted">This device has not sent anything yet.</p>}
    />
  );
}

const refresh_ms = 3000;
