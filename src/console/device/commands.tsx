import { useReducer } from 'react';
import { pathOf, request } from '../api/client.js';
import { useApiMutation } from '../api/queries.js';
import type { Entry } from '../api/resources.js';
import { useSession } from '../api/session.js';
import { SchemaForm, type Values } from '../forms/form.js';
import { ObjectTable } from '../lists/object-table.js';
import { Button } from '../ui/button.js';
import { Panel } from '../ui/page.js';
import { idOf } from '../ui/table.js';

export const commands_template = '/devices/{device_id_developer}/commands/';
const refetch_ms = 5000;

const isOpen = ({ status }: Entry) => status === 'queued' || status === 'sent';

/** The commands to a device with their progress, and a form for the next one. */
export function DeviceCommands({ id }: { id: string }) {
  const { bodyOf, can } = useSession();
  const [round, startOver] = useReducer((count: number) => count + 1, 0);
  const path = pathOf('devices', id, 'commands');
  const create = useApiMutation({
    run: (body: Values) => request('POST', path, { body }),
    message: (_answer, { name }) => `Queued ${name}.`,
    onDone: startOver,
  });
  const cancel = useApiMutation({
    run: (command: Entry) => request('DELETE', pathOf('devices', id, 'commands', idOf(command))),
    message: (_answer, { name }) => `Cancelled ${name}.`,
    announcesFailure: true,
  });
  const renderCancel = (command: Entry) =>
    isOpen(command) && (
      <Button of={String(command.name)} onClick={() => cancel.mutate(command)}>
        Cancel
      </Button>
    );
  return (
    <div className="stack">
      {can('POST', commands_template) && (
        <Panel title="Send a command">
          <SchemaForm
            key={round}
            schema={bodyOf('POST', commands_template)}
            submitLabel="Send command"
            mutation={create}
            callOf={(body) => ({ method: 'POST', path, body })}
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
