import { useState } from 'react';
import { Link, ObjectLink, useAddress } from '../address.js';
import { filtersOf } from '../api/document.js';
import { readListState } from '../api/list-query.js';
import { useLive } from '../api/live.js';
import { useList, useSession } from '../api/queries.js';
import { Loaded } from '../components/feedback.js';
import { type Entry, ObjectTable } from '../components/object-table.js';
import { Page, Panel } from '../components/page.js';
import { Table } from '../components/table.js';
import { StatusBadge, Time, Value } from '../components/value.js';
import { labelOf } from '../format.js';
import { findType, resourceTypes } from '../resources.js';

const template = '/events/';
const live = '/events/live/';
const max_live_events = 200;

/** The log of all changes, and a live tail of it with the same filters. */
export function Events() {
  const { can } = useSession();
  const [{ live: isLive }, setSearch] = useAddress();
  return (
    <Page
      title="Events"
      actions={
        can('GET', live) && (
          <button
            type="button"
            className="toggle"
            aria-pressed={isLive === '1'}
            onClick={() => setSearch({ live: isLive === '1' ? undefined : '1' })}
          >
            Live
          </button>
        )
      }
    >
      {isLive === '1' && <LiveEvents />}
      <ObjectTable
        caption="Events"
        template={template}
        columns={['at', 'type', 'id_developer', 'user', 'data']}
        keyOf={({ id }) => String(id)}
        render={render}
        empty={<p className="muted">Nothing has happened yet.</p>}
      />
    </Page>
  );
}

const max_latest_events = 8;

const renderTime = ({ at }: Entry) => <Time seconds={Number(at)} />;
const renderData = (entry: Entry) => <EventData entry={entry} />;
const render = { at: renderTime, data: renderData, id_developer: (entry: Entry) => <EventSubject entry={entry} /> };
/** A change of status by its two statuses, all others by their type. */
const renderKind = (entry: Entry) => (entry.type === 'device.status_changed' ? renderData(entry) : String(entry.type));
const historyRender = { at: renderTime, data: renderData };

/** The latest events, as part of the overview. */
export function LatestEvents({ refetch_ms }: { refetch_ms: number }) {
  const answer = useList<Entry>(template, { max: max_latest_events }, { refetch_ms });
  return (
    <Panel title="Latest events" actions={<Link to="/events">All events</Link>}>
      <Loaded of={answer} height="12rem">
        {({ result }) => (
          <Table
            caption="Latest events"
            entries={result}
            keyOf={({ id }: Entry) => String(id)}
            columns={[
              { field: 'at', render: render.at },
              { field: 'id_developer', render: render.id_developer },
              { field: 'type', label: 'Event', render: renderKind },
            ]}
          />
        )}
      </Loaded>
    </Panel>
  );
}

function LiveTable({ events }: { events: readonly Entry[] }) {
  return (
    <Table
      caption="Live events"
      entries={events}
      keyOf={({ id }: Entry) => String(id)}
      columns={[
        { field: 'at', render: render.at },
        { field: 'type', render: ({ type }: Entry) => String(type) },
        { field: 'id_developer', render: render.id_developer },
        { field: 'data', label: 'Details', render: render.data },
      ]}
    />
  );
}

/** A link to the object of an event, unless it is of a type without a page, or gone. */
function EventSubject({ entry }: { entry: Entry }) {
  const type = resourceTypes.find(({ name }) => name === entry.resource);
  const id = String(entry.id_developer ?? '');
  const isGone = String(entry.type).endsWith('.deleted');
  return type === undefined || isGone ? id : <ObjectLink plural={type.plural} id={id} />;
}

/** Details of an event: both statuses, the fields that were changed, or its data as they are. */
function EventData({ entry: { data } }: { entry: Entry }) {
  const { from, to, changed, ...rest } = (data ?? {}) as Record<string, unknown>;
  if (typeof from === 'string' && typeof to === 'string')
    return (
      <span className="transition">
        <StatusBadge status={from} /> → <StatusBadge status={to} />
      </span>
    );
  if (Array.isArray(changed) && changed.length > 0) return changed.map((field) => labelOf(String(field))).join(', ');
  const values = Object.values(rest).filter((value) => typeof value === 'string');
  return data === undefined ? (
    <span className="muted">–</span>
  ) : (
    values.join(', ') || <Value field="data" value={data} />
  );
}

function LiveEvents() {
  const { document } = useSession();
  const [search] = useAddress();
  const names = filtersOf(document, live).map(({ name }) => name);
  const { filters } = readListState(search, names);
  const [events, setEvents] = useState<readonly Entry[]>([]);
  const isConnected = useLive(live, filters, true, ({ data }) => {
    const event = JSON.parse(data) as Entry;
    setEvents((old) => [event, ...old].slice(0, max_live_events));
  });
  return (
    <Panel title="Live">
      {events.length === 0 ? (
        <p className="muted">{isConnected ? 'Waiting for the next event…' : 'Connecting…'}</p>
      ) : (
        <LiveTable events={events} />
      )}
    </Panel>
  );
}

/** The history of one object, as part of its page. */
export function ObjectEvents({ plural, id }: { plural: string; id: string }) {
  return (
    <Panel title="History">
      <ObjectTable
        caption="History"
        template={template}
        fixed={{ resource: findType(plural)?.name ?? '', id_developer: id }}
        columns={['at', 'type', 'user', 'data']}
        keyOf={(entry) => String(entry.id)}
        render={historyRender}
        empty={<p className="muted">No events.</p>}
      />
    </Panel>
  );
}
