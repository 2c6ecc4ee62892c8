import { ReferenceLink } from '../address.js';
import { type Entry, ObjectTable } from '../components/object-table.js';
import { Page } from '../components/page.js';

const refresh_ms = 5000;
const render = { device: ({ device }: Entry) => <ReferenceLink field="device" id={String(device)} /> };

/** The streams of all devices. */
export function Streams() {
  return (
    <Page title="Streams">
      <ObjectTable
        caption="Streams"
        template="/streams/"
        columns={['at', 'device', '_t', 'data', 'protocol', 'created_at']}
        sorting={{ sort: 'at', order: -1 }}
        keyOf={({ id_developer }) => String(id_developer)}
        refetch_ms={refresh_ms}
        render={render}
        empty={<p className="muted">Nothing has been received yet.</p>}
      />
    </Page>
  );
}
