import { Link } from '@tanstack/react-router';
import { useList, useSession } from '../api/hooks.js';
import type { Entry } from '../api/resources.js';
import { Loaded, Panel } from '../ui/page.js';
import { columnsOf, Table } from '../ui/table.js';
import { renderEvent } from './event-cells.js';

const template = '/events/';
const refetch_ms = 30_000;
const max_latest_events = 8;
/** A change of status by its two statuses, all others by their type. */
const renderLatest = {
  ...renderEvent,
  type: (entry: Entry) => (entry.type === 'device.status_changed' ? renderEvent.data(entry) : String(entry.type)),
};

/** Reads the latest events again and again. */
export function useLatestEvents() {
  const enabled = useSession().can('GET', template);
  return useList<Entry>(template, { max: max_latest_events }, { refetch_ms, enabled });
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
