import { pathOf } from '../api/client.js';
import { ObjectTable } from '../lists/object-table.js';
import { Page } from '../ui/page.js';

const refresh_ms = 3000;

/** The streams of all devices. */
export function Streams() {
  return (
    <Page title="Streams">
      <ObjectTable
        caption="Streams"
        template="/streams/"
        columns={['at', 'device', '_t', 'data', 'protocol', 'created_at']}
        sorting={{ sort: 'at', order: '-1' }}
        keyOf={({ id_developer }) => String(id_developer)}
        refetch_ms={refresh_ms}
        empty="Nothing has been received yet."
      />
    </Page>
  );
}

/** The streams of one device. */
export function DeviceStreams({ id }: { id: string }) {
  return (
    <ObjectTable
      caption="Streams"
      template="/devices/{device_id_developer}/streams/"
      path={pathOf('devices', id, 'streams')}
      columns={['at', '_t', 'data', 'protocol', 'created_at']}
      sorting={{ sort: 'at', order: '-1' }}
      keyOf={({ id_developer }) => String(id_developer)}
      refetch_ms={refresh_ms}
      empty="This device has not sent anything yet."
    />
  );
}
