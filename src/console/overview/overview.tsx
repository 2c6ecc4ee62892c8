import './overview.css';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { OpenAlarmCounts } from '../alarms/open-alarms.js';
import { useHasRules, WorstAlarms } from '../alarms/worst-alarms.js';
import { type Counts, type Freshness, useCount, useCounts } from '../api/queries.js';
import { type Entry, resourceTypes, statuses } from '../api/resources.js';
import { useReadable, useSession } from '../api/session.js';
import { LatestEvents, useLatestEvents } from '../events/events.js';
import { useNow } from '../lib/clock.js';
import { formatNumber } from '../lib/format.js';
import { PlacedDevices } from '../map/placed-devices.js';
import { ListLink } from '../ui/address.js';
import { Loading } from '../ui/feedback.js';
import { Page, Panel } from '../ui/page.js';
import { ReadAt, StatusBadge } from '../ui/value.js';
import { FirstRun } from './first-run.js';
import { LateCauses, LateDevices } from './late-devices.js';
import { loadStatusEvents, type StatusEvents } from './status-changes.js';
import { countStatusChanges, type StatusChange } from './status-count.js';

const refresh_ms = 10_000;
const max_previewed_devices = 5000;
const minute_s = 60;
const day_s = 86_400;

/** Devices by status, the numbers of all objects, and what needs attention: alarms where there are rules, else late devices. */
export function Overview() {
  const { can } = useSession();
  const hasEvents = can('GET', '/events/');
  const events = useLatestEvents();
  const fresh = useFreshness(events.data?.result);
  const isEnabled = can('GET', '/projects/') && fresh.ofObjects.enabled !== false;
  const projects = useCount('/projects/', {}, { ...fresh.ofObjects, enabled: isEnabled });
  const statusCounts = useCounts('/devices/', 'status', {}, fresh.ofDevices);
  const hasRules = useHasRules(fresh.ofObjects);
  const isEmpty = projects === 0 && statusCounts?.total === 0;
  return (
    <Page title="Overview" actions={<OpenAlarmCounts />}>
      {isEmpty ? (
        <FirstRun />
      ) : (
        <div className="stack">
          <StatusTiles counts={statusCounts} />
          <div className="columns">
            <div className="stack">
              {hasRules === true && (
                <>
                  <WorstAlarms fresh={fresh.ofDevices} />
                  <Panel title="Late devices">
                    <LateCauses counts={statusCounts} />
                  </Panel>
                </>
              )}
              {hasRules === false && <LateDevices counts={statusCounts} fresh={fresh.ofDevices} />}
              {hasRules === undefined && <Loading height="24rem" />}
              {hasEvents && <LatestEvents />}
            </div>
            <div className="stack">
              <Panel title="Map" actions={<Link to="/map">Whole map</Link>}>
                <div className="map-preview">
                  {(!hasEvents || events.data) && (
                    <PlacedDevices
                      query={{}}
                      max_devices={max_previewed_devices}
                      isPreview
                      since={fresh.ofDevices.since}
                    />
                  )}
                </div>
              </Panel>
              <ObjectCounts devices={statusCounts?.total} fresh={fresh.ofObjects} />
            </div>
          </div>
        </div>
      )}
      {hasEvents && events.data && <ReadAt at_ms={events.dataUpdatedAt} />}
    </Page>
  );
}

/**
 * What the overview shows changes only with an event: statuses with any, numbers of objects with the creation or deletion of
 * one. So only the events are read again and again, or everything by a key that may not read them.
 */
function useFreshness(events: readonly Entry[] | undefined): { ofDevices: Freshness; ofObjects: Freshness } {
  const { can } = useSession();
  if (!can('GET', '/events/')) return { ofDevices: { refetch_ms: refresh_ms }, ofObjects: { refetch_ms: refresh_ms } };
  const change = events?.find(({ type }) => /\.(?:created|deleted)$/.test(String(type)));
  const keep = { enabled: events !== undefined, refetch_ms: minute_s * 1000 };
  return {
    ofDevices: { ...keep, since: String(events?.[0]?.id ?? '') },
    ofObjects: { ...keep, since: String(change?.id ?? '') },
  };
}

/** One function, so that events are counted again only when they change. */
const countChanges = (events: StatusEvents) => events && countStatusChanges(events.flat());

function StatusTiles({ counts }: { counts: Counts | undefined }) {
  const { can } = useSession();
  const hasEvents = can('GET', '/events/');
  const { data: changes } = useQuery({
    queryKey: ['status changes'],
    queryFn: ({ signal, client, queryKey }) =>
      loadStatusEvents(Math.floor(Date.now() / 1000) - day_s, client.getQueryData<StatusEvents>(queryKey), signal),
    select: countChanges,
    enabled: hasEvents,
    refetchInterval: minute_s * 1000,
    staleTime: minute_s * 1000,
  });
  return (
    <ul className="tiles" aria-label="Devices by status">
      {statuses.map((status) => (
        <li key={status}>
          <Link to="/$plural" params={{ plural: 'devices' }} search={{ status }} className="card tile">
            <BigNumber value={counts?.of(status)} />
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

function BigNumber({ value }: { value: number | undefined }) {
  return <span className="number">{value === undefined ? '…' : formatNumber(value)}</span>;
}

/** Streams received in the last whole minute; the bounds move only with the minute, so that the answer can be reused. */
function StreamsPerMinute() {
  const minute = useNow(minute_s);
  const query = { created_at_from: minute - minute_s, created_at_to: minute - 1 };
  return (
    <li>
      <Link to="/streams" className="card tile">
        <BigNumber value={useCount('/streams/', query)} />
        <span>streams in the last minute</span>
      </Link>
    </li>
  );
}

function ObjectCounts({ devices, fresh }: { devices: number | undefined; fresh: Freshness }) {
  const types = useReadable(resourceTypes);
  return (
    <Panel title="Objects">
      <ul className="counts">
        {types.map(({ plural, title, list_path }) => (
          <li key={plural}>
            <ListLink plural={plural}>{title}</ListLink>
            {plural === 'devices' ? <BigNumber value={devices} /> : <Count path={list_path} fresh={fresh} />}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Count({ path, fresh }: { path: string; fresh: Freshness }) {
  return <BigNumber value={useCount(path, {}, fresh)} />;
}
