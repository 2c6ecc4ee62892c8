import { pathOf, request } from '../api/client.js';
import { useAction, useSession } from '../api/hooks.js';
import type { Entry } from '../api/resources.js';
import { ObjectTable } from '../lists/object-table.js';
import { ObjectLink } from '../ui/address.js';
import { ConfirmButton } from '../ui/dialog.js';
import { Page } from '../ui/page.js';

const idOf = ({ client_id }: Entry) => String(client_id);
const render = {
  device: ({ device }: Entry) => (typeof device === 'string' ? <ObjectLink plural="devices" id={device} /> : null),
};

/** The clients that are connected to the broker. */
export function Connections() {
  const { can } = useSession();
  const end = useAction(
    (id: string) => request('DELETE', pathOf('mqtt', 'connections', id)),
    'The connection is being closed.',
  );
  return (
    <Page title="MQTT connections">
      <ObjectTable
        caption="MQTT connections"
        template="/mqtt/connections/"
        columns={['client_id', 'device', 'connected_at', 'address', 'messages', 'drops']}
        keyOf={idOf}
        render={render}
        rowAction={
          can('DELETE', '/mqtt/connections/{client_id}/')
            ? (entry) => (
                <ConfirmButton
                  label="Disconnect"
                  heading="Disconnect a client"
                  of={idOf(entry)}
                  onConfirm={() => end(idOf(entry))}
                >
                  The connection of <strong>{idOf(entry)}</strong> is closed. The client may connect again.
                </ConfirmButton>
              )
            : undefined
        }
        empty="No client is connected."
      />
    </Page>
  );
}
