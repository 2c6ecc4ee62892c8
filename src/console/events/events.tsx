import { useState } from 'react';
import { useSession } from '../api/hooks.js';
import { useLive } from '../api/live.js';
import type { Entry, ResourceType, StoredObject } from '../api/resources.js';
import { readFilters } from '../lists/list-query.js';
import { ObjectTable } from '../lists/object-table.js';
import { useAddress } from '../ui/address.js';
import { Toggle } from '../ui/button.js';
import { Page, Panel } from '../ui/page.js';
import { columnsOf, Table } from '../ui/table.js';
import { EventData, renderEvent } from './event-cells.js';

const template = '/events/';
const live_template = '/events/live/';
const max_live_events = 200;

const renderKnown = (isWithoutStatus: boolean) => ({
  ...renderEvent,
  data: (entry: Entry) => <EventData entry={entry} isWithoutStatus={isWithoutStatus} />,
});
const [renderWithStatus, renderWithoutStatus] = [renderKnown(false), renderKnown(true)];

/** The log of all changes, and a live tail of it with the same filters. */
export function Events() {
  const { can } = useSession();
  const [{ live }, setSearch] = useAddress();
  return (
    <Page
      title="Events"
      actions={
        can('GET', live_template) && (
          <Toggle label="Live" isOn={live === '1'} onChange={(isOn) => setSearch({ live: isOn ? '1' : undefined })} />
        )
      }
    >
      {live === '1' && <LiveEvents />}
      <ObjectTable
        caption="Events"
        template={template}
        columns={['at', 'type', 'id_developer', 'user', 'data']}
        render={renderEvent}
        empty="Nothing has happened yet."
      />
    </Page>
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
        render={isWithoutStatus ? renderWithoutStatus : renderWithStatus}
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
          columns={columnsOf(entryOf(template), ['at', 'type', 'id_developer', 'data'], { render: renderEvent })}
        />
      )}
    </Panel>
  );
}
