import { Link, ObjectLink } from '../address.js';
import type { Query } from '../api/client.js';
import { useCount, useList, useSession } from '../api/queries.js';
import { Loaded } from '../components/feedback.js';
import { Page, Panel } from '../components/page.js';
import { PlacedDevices } from '../components/placed-devices.js';
import { Table } from '../components/table.js';
import { StatusBadge } from '../components/value.js';
import { formatDuration, formatNumber } from '../format.js';
import { resourceTypes, type StoredObject, statuses } from '../resources.js';
import { LatestEvents } from './events.js';
import { FirstRun } from './first-run.js';

const refresh_ms = 10_000;
const max_late_devices = 10;
const max_previewed_devices = 5000;
const minute_s = 60;

/** Devices by status, the numbers of all objects, and the devices that need attention. */
export function Overview() {
  const projects = useCount('/projects/', {}, { refetch_ms: refresh_ms });
  const devices = useCount('/devices/', {}, { refetch_ms: refresh_ms });
  const { can } = useSession();
  const isEmpty = projects === 0 && devices === 0;
  return (
    <Page title="Overview">
      {isEmpty ? (
        <FirstRun />
      ) : (
        <div className="stack">
          <StatusTiles />
          <div className="columns">
            <div className="stack">
              <LateDevices />
              {can('GET', '/events/') && <LatestEvents refetch_ms={refresh_ms} />}
              <ObjectCounts />
            </div>
            <Panel title="Map" actions={<Link to="/map">Whole map</Link>}>
              <div className="map-preview">
                <PlacedDevices query={{}} max_devices={max_previewed_devices} />
              </div>
            </Panel>
          </div>
        </div>
      )}
    </Page>
  );
}

function StatusTiles() {
  return (
    <ul className="tiles" aria-label="Devices by status">
      {statuses.map((status) => (
        <li key={status}>
          <Link to="/$plural" params={{ plural: 'devices' }} search={{ status }} className="tile">
            <Count path="/devices/" query={{ status }} />
            <StatusBadge status={status} />
          </Link>
        </li>
      ))}
      {useSession().can('GET', '/streams/') && <StreamsPerMinute />}
    </ul>
  );
}

function Count({ path, query = {} }: { path: string; query?: Query }) {
  const count = useCount(path, query, { refetch_ms: refresh_ms });
  return <span className="number">{count === undefined ? '…' : formatNumber(count)}</span>;
}

/** Streams received in the last whole minute; the bounds move only with the minute, so that the answer can be reused. */
function StreamsPerMinute() {
  const minute = Math.floor(Date.now() / 1000 / minute_s) * minute_s;
  const query = { created_at_from: minute - minute_s, created_at_to: minute - 1 };
  return (
    <li>
      <Link to="/streams" className="tile">
        <Count path="/streams/" query={query} />
        <span>streams in the last minute</span>
      </Link>
    </li>
  );
}

function ObjectCounts() {
  return (
    <Panel title="Objects">
      <ul className="counts">
        {resourceTypes.map(({ plural, title }) => (
          <li key={plural}>
            <Link to="/$plural" params={{ plural }}>
              {title}
            </Link>
            <Count path={`/${plural}/`} />
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** The devices whose data is late, the one that has been late for longest first. */
function LateDevices() {
  const query = { sort: 'stream_due_at', max: max_late_devices };
  const refresh = { refetch_ms: refresh_ms };
  const answers = [
    useList<StoredObject>('/devices/', { ...query, status: 'no_data', _t: 'str' }, refresh),
    useList<StoredObject>('/devices/', { ...query, status: 'disconnected', _t: 'str' }, refresh),
  ];
  const late = answers
    .flatMap(({ data }) => data?.result ?? [])
    .sort((one, other) => dueOf(one) - dueOf(other))
    .slice(0, max_late_devices);
  const unanswered = answers.find(({ data }) => data === undefined) ?? answers[0];
  return (
    <Panel title="Needs attention">
      {unanswered && (
        <Loaded of={unanswered} height="20rem">
          {() =>
            late.length === 0 ? (
              <p className="muted">No device that has sent data is late.</p>
            ) : (
              <Table
                caption="Devices whose data is late"
                entries={late}
                keyOf={({ id_developer }) => id_developer}
                columns={[
                  {
                    field: 'name',
                    render: ({ name, id_developer }) => (
                      <ObjectLink plural="devices" id={id_developer}>
                        {name}
                      </ObjectLink>
                    ),
                  },
                  { field: 'status', render: ({ status }) => <StatusBadge status={String(status)} /> },
                  {
                    field: 'late',
                    label: 'Late by',
                    render: (device) => formatDuration(Date.now() / 1000 - dueOf(device)),
                  },
                ]}
              />
            )
          }
        </Loaded>
      )}
    </Panel>
  );
}

function dueOf({ stream_due_at }: StoredObject): number {
  return typeof stream_due_at === 'number' ? stream_due_at : 0;
}
