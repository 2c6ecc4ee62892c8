import './events.css';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { useLive } from '../api/live.js';
import { useList } from '../api/queries.js';
import { type Entry, findTypeByName, type ResourceType, type StoredObject, shownStatusOf } from '../api/resources.js';
import { useSession } from '../api/session.js';
import { labelOf } from '../lib/format.js';
import { readFilters } from '../lists/list-query.js';
import { ObjectTable } from '../lists/object-table.js';
import { ObjectLink, useAddress } from '../ui/address.js';
import { Toggle } from '../ui/button.js';
import { Loaded, Page, Panel } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { columnsOf, StatusBadge, Value } from '../ui/value.js';

const template = '/events/';
const live_template = '/events/live/';
const max_live_events = 200;
const refetch_ms = 30_000;
const max_latest_events = 8;

const render = {
  id_developer: (entry: Entry) => <EventSubject entry={entry} />,
  data: (entry: Entry) => <EventData entry={entry} />,
};
/** Statuses of a device that has never sent one, in the words of its page. */
const renderWithoutStatus = { ...render, data: (entry: Entry) => <EventData entry={entry} statusOf={shownStatusOf} /> };
/** A change of status by its two statuses, all others by their type. */
const renderLatest = {
  ...render,
  type: (entry: Entry) => (entry.type === 'device.status_changed' ? render.data(entry) : String(entry.type)),
};

/** The log of all changes, and a live tail of it with the same filters. */
export function Events() {
  const { can } = useSession();
  const [{ live }, setSearch] = useAddress();
  return (
    <Page
      title="Events"
      actions={
        can('GET', live_template) && (
          <Toggle isOn={live === '1'} onChange={(isOn) => setSearch({ live: isOn ? '1' : undefined })}>
            Live
          </Toggle>
        )
      }
    >
      {live === '1' && <LiveEvents />}
      <ObjectTable
        caption="Events"
        template={template}
        columns={['at', 'type', 'id_developer', 'user', 'data']}
        render={render}
        empty="Nothing has happened yet."
      />
    </Page>
  );
}

/** Reads the latest events again and again. */
export function useLatestEvents() {
  return useList<Entry>(
    template,
    { max: max_latest_events },
    { refetch_ms, enabled: useSession().can('GET', template) },
  );
}

/** The latest events, as part of the overview. */
export function LatestEvents() {
  const answer = useLatestEvents();
  const columns = columnsOf(useSession().entryOf(template), ['at', 'id_developer', 'type'], { render: renderLatest });
  return (
    <Panel title="Latest events" actions={<Link to="/events">All events</Link>}>
      <Loaded of={answer} height="12rem">
        {({ result }) => <Table caption="Latest events" entries={result} columns={columns} />}
      </Loaded>
    </Panel>
  );
}

export function ObjectEvents({ type, object }: { type: ResourceType; object: StoredObject }) {
  const isWithoutStatus = type.name === 'device' && object.last_status_at === undefined;
  return (
    <Panel title="History">
      <ObjectTable
        caption="History"
        template={template}
        fixed={{ resource: type.name, id_developer: object.id_developer }}
        columns={['at', 'type', 'user', 'data']}
        render={isWithoutStatus ? renderWithoutStatus : render}
        empty="No events."
      />
    </Panel>
  );
}

function LiveEvents() {
  const { entryOf, filtersOf } = useSession();
  const [search] = useAddress();
  const filters = readFilters(search, filtersOf(live_template));
  const [events, setEvents] = useState<readonly Entry[]>([]);
  const isConnected = useLive(live_template, filters, true, ({ data }) => {
    const event = JSON.parse(data) as Entry;
    setEvents((old) => [event, ...old].slice(0, max_live_events));
  });
  return (
    <Panel title="Live">
      {events.length === 0 ? (
        <p className="muted">{isConnected ? 'Waiting for the next event…' : 'Connecting…'}</p>
      ) : (
        <Table
          caption="Live events"
          entries={events}
          columns={columnsOf(entryOf(template), ['at', 'type', 'id_developer', 'data'], { render })}
        />
      )}
    </Panel>
  );
}

/** A link to the object of an event, unless it is of a type without a page, or gone. */
function EventSubject({ entry }: { entry: Entry }) {
  const type = findTypeByName(entry.resource);
  const id = String(entry.id_developer ?? '');
  const isGone = String(entry.type).endsWith('.deleted');
  return type === undefined || isGone ? id : <ObjectLink plural={type.plural} id={id} />;
}

interface EventDataProps {
  entry: Entry;
  statusOf?: (device: Entry) => unknown;
}

/** Details of an event: both statuses, the fields that were changed, or its data as they are. */
function EventData({ entry: { data }, statusOf = ({ status }) => status }: EventDataProps) {
  const { from, to, changed, ...rest } = (data ?? {}) as Entry;
  if (typeof from === 'string' && typeof to === 'string')
    return (
      <span className="transition">
        <StatusBadge status={statusOf({ status: from })} /> → <StatusBadge status={statusOf({ status: to })} />
      </span>
    );
  if (Array.isArray(changed) && changed.length > 0) return changed.map((field) => labelOf(String(field))).join(', ');
  const texts = Object.values(rest).filter((value) => typeof value === 'string');
  return texts.join(', ') || <Value field="data" value={data} />;
}
