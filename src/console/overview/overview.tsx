import './overview.css';
import { Link } from '@tanstack/react-router';
import { lazy } from 'react';
import { OpenAlarmCounts, useHasRules, WorstAlarms } from '../alarms/worst-alarms.js';
import { type Counts, type Freshness, useCount, useGet, useSession, useStatusCounts } from '../api/hooks.js';
import { type Entry, filtersOfStatus, type ShownStatus, shownStatuses } from '../api/resources.js';
import { LatestEvents, useLatestEvents } from '../events/latest-events.js';
import { formatNumber } from '../lib/format.js';
import { MapPreview } from '../map/map-preview.js';
import { Loading, Page, Panel } from '../ui/page.js';
import { ReadAt, StatusBadge } from '../ui/value.js';
import { LateDevices } from './late-devices.js';

const FirstRun = lazy(async () => ({ default: (await import('./first-run.js')).FirstRun }));

const refresh_ms = 30_000;
const minute_s = 60;
const rate_path = '/streams/rate/';
const line_height = 20;

/** Devices by status, and what needs attention: alarms where there are rules, else late devices. */
export function Overview() {
  const { can } = useSession();
  const hasEvents = can('GET', '/events/');
  const events = useLatestEvents();
  const fresh = useFreshness(events.data?.result);
  const isEnabled = can('GET', '/projects/') && fresh.ofObjects.enabled !== false;
  const projects = useCount('/projects/', {}, { ...fresh.ofObjects, enabled: isEnabled });
  const statusCounts = useStatusCounts({}, fresh.ofDevices);
  const hasRules = useHasRules(fresh.ofObjects);
  const isEmpty = projects === 0 && statusCounts?.total === 0;
  // the map is a third of the bytes of this view: everything else comes first
  const isDrawn = (!hasEvents || events.data !== undefined) && statusCounts !== undefined && hasRules !== undefined;
  return (
    <Page title="Overview" actions={<OpenAlarmCounts />}>
      {isEmpty ? (
        <FirstRun />
      ) : (
        <div className="stack">
          <StatusTiles counts={statusCounts} />
          <div className="columns">
            {hasRules === true && <WorstAlarms fresh={fresh.ofDevices} />}
            {hasRules === false && <LateDevices fresh={fresh.ofDevices} />}
            {hasRules === undefined && <Loading height="24rem" />}
            {/* nothing is below what grows while it is read */}
            <div className="stack">
              <Panel title="Map" actions={<Link to="/map">Whole map</Link>}>
                <MapPreview query={{}} since={fresh.ofDevices.since} isReady={isDrawn} />
              </Panel>
              {hasEvents && <LatestEvents />}
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

/** Late kinds of streams, for the statuses that are not well. */
const causes: Partial<Record<ShownStatus, string>> = {
  no_data: 'sent a status in time, but no data',
  no_status: 'sent data in time, but no status any more',
  disconnected: 'sent neither data nor a status in time',
};

function StatusTiles({ counts }: { counts: Counts | undefined }) {
  const { can } = useSession();
  return (
    <ul className="tiles" aria-label="Devices by status">
      {shownStatuses.map((status) => (
        <li key={status}>
          <Link
            to="/$plural"
            params={{ plural: 'devices' }}
            search={filtersOfStatus(status)}
            className="card tile"
            title={causes[status]}
          >
            <BigNumber value={counts?.of(status)} />
            <StatusBadge status={status} />
          </Link>
        </li>
      ))}
      {can('GET', rate_path) && <StreamsPerMinute />}
    </ul>
  );
}

function BigNumber({ value }: { value: number | undefined }) {
  return <span className="number">{value === undefined ? '…' : formatNumber(value)}</span>;
}

/** Streams received in the last whole minute, and a line of the last hour. */
function StreamsPerMinute() {
  const answer = useGet<{ counts: readonly number[] }>(rate_path, {}, { refetch_ms: minute_s * 1000 });
  const counts = answer.data?.counts;
  const top = Math.max(1, ...(counts ?? []));
  const points = counts?.map((count, index) => `${index},${(1 - count / top) * line_height}`).join(' ');
  return (
    <li>
      <Link to="/streams" className="card tile">
        <BigNumber value={counts?.at(-1)} />
        <span>streams in the last minute</span>
        <svg className="rate" viewBox={`0 0 ${minute_s - 1} ${line_height}`} preserveAspectRatio="none" role="img">
          <title>{counts && `Last hour: up to ${formatNumber(Math.max(...counts))} a minute`}</title>
          <polyline points={points} />
        </svg>
      </Link>
    </li>
  );
}
