import { pathOf, request } from '../api/client.js';
import { useAction, useSession } from '../api/hooks.js';
import type { Entry } from '../api/resources.js';
import { CreateForm } from '../forms/create-form.js';
import { ObjectTable } from '../lists/object-table.js';
import { Button } from '../ui/button.js';
import { Panel } from '../ui/page.js';
import { idOf } from '../ui/table.js';

const commands_template = '/devices/{device_id_developer}/commands/';
const refetch_ms = 5000;

const isOpen = ({ status }: Entry) => status === 'queued' || status === 'sent';

/** The commands to a device with their progress, and a form for the next one. */
export function DeviceCommands({ id }: { id: string }) {
  const { can } = useSession();
  const path = pathOf('devices', id, 'commands');
  const cancel = useAction(
    (command: Entry) => request('DELETE', pathOf('devices', id, 'commands', idOf(command))),
    (_answer, { name }) => `Cancelled ${name}.`,
  );
  const renderCancel = (command: Entry) =>
    isOpen(command) && <Button label="Cancel" of={String(command.name)} onClick={() => cancel(command)} />;
  return (
    <div className="stack">
      {can('POST', commands_template) && (
        <Panel title="Send a command">
          <CreateForm
            path={path}
            template={commands_template}
            submitLabel="Send command"
            message={({ name }) => `Queued ${name}.`}
          />
        </Panel>
      )}
      <Panel title="Commands">
        <ObjectTable
          caption="Commands"
          template={commands_template}
          path={path}
          columns={['name', 'data', 'status', 'result', 'created_at', 'sent_at', 'finished_at', 'owner']}
          sorting={{ sort: 'created_at', order: '-1' }}
          refetch_ms={refetch_ms}
          rowAction={can('DELETE', `${commands_template}{command}/`) ? renderCancel : undefined}
          empty="No command yet."
        />
      </Panel>
    </div>
  );
}
