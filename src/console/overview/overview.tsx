import './overview.css';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { Query } from '../api/client.js';
import { useCount } from '../api/queries.js';
import { resourceTypes, statuses } from '../api/resources.js';
import { useSession } from '../api/session.js';
import { LatestEvents } from '../events/events.js';
import { formatNumber } from '../lib/format.js';
import { PlacedDevices } from '../map/placed-devices.js';
import { ListLink } from '../ui/address.js';
import { Page, Panel } from '../ui/page.js';
import { StatusBadge } from '../ui/value.js';
import { FirstRun } from './first-run.js';
import { LateDevices } from './late-devices.js';
import { loadStatusChanges } from './status-changes.js';
import type { StatusChange } from './status-count.js';

const refresh_ms = 10_000;
const max_previewed_devices = 5000;
const minute_s = 60;
const day_s = 86_400;

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
              <LateDevices refetch_ms={refresh_ms} />
              {can('GET', '/events/') && <LatestEvents refetch_ms={refresh_ms} />}
            </div>
            <div className="stack">
              <Panel title="Map" actions={<Link to="/map">Whole map</Link>}>
                <div className="map-preview">
                  <PlacedDevices query={{}} max_devices={max_previewed_devices} />
                </div>
              </Panel>
              <ObjectCounts />
            </div>
          </div>
        </div>
      )}
    </Page>
  );
}

function StatusTiles() {
  const { can } = useSession();
  const hasEvents = can('GET', '/events/');
  const { data: changes } = useQuery({
    queryKey: ['status changes'],
    queryFn: ({ signal }) => loadStatusChanges(Math.floor(Date.now() / 1000) - day_s, signal),
    enabled: hasEvents,
    refetchInterval: minute_s * 1000,
    staleTime: minute_s * 1000,
  });
  return (
    <ul className="tiles" aria-label="Devices by status">
      {statuses.map((status) => (
        <li key={status}>
          <Link to="/$plural" params={{ plural: 'devices' }} search={{ status }} className="card tile">
            <Count path="/devices/" query={{ status }} />
            <StatusBadge status={status} />
            {hasEvents && <Change change={changes?.[status]} isUnknown={changes === null} />}
          </Link>
        </li>
      ))}
      {can('GET', '/streams/') && <StreamsPerMinute />}
    </ul>
  );
}

/** The devices that have come to a status and left it since this time yesterday. */
function Change({ change, isUnknown }: { change: StatusChange | undefined; isUnknown: boolean }) {
  if (change === undefined) return <span className="change muted">{isUnknown ? 'many changes today' : '…'}</span>;
  const { gained, lost } = change;
  if (gained === 0 && lost === 0) return <span className="change muted">as yesterday</span>;
  return (
    <span className="change muted">
      {gained > 0 && <strong>+{formatNumber(gained)}</strong>} {lost > 0 && <strong>−{formatNumber(lost)}</strong>}{' '}
      since yesterday
    </span>
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
      <Link to="/streams" className="card tile">
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
        {resourceTypes.map(({ plural, title, list_path }) => (
          <li key={plural}>
            <ListLink plural={plural}>{title}</ListLink>
            <Count path={list_path} />
          </li>
        ))}
      </ul>
    </Panel>
  );
}
