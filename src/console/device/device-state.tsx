import { useState } from 'react';
import { pathOf, request } from '../api/client.js';
import { RequestError } from '../api/errors.js';
import { useGet, useSession } from '../api/hooks.js';
import { findChanges } from '../edit/changes.js';
import { useVersionedSave } from '../edit/conflict.js';
import { SchemaForm, type Values } from '../forms/form.js';
import { Button } from '../ui/button.js';
import { Loaded, Panel } from '../ui/page.js';
import { type Column, Table } from '../ui/table.js';
import { ReadAt, Time } from '../ui/value.js';
import { compareStates, createMergePatch, type DeviceState, isObject, type StateRow } from './state-rows.js';

export const state_template = '/devices/{device_id_developer}/state/';
const refetch_ms = 5000;

/** The desired state of a device beside the reported one. */
export function DeviceStateView({ id }: { id: string }) {
  const { can } = useSession();
  const [edited, setEdited] = useState<DeviceState>();
  const answer = useGet<DeviceState>(pathOf('devices', id, 'state'), {}, { refetch_ms });
  return (
    <Loaded of={answer} height="24rem">
      {(state) => (
        <div className="stack">
          <Panel
            title="State"
            actions={
              can('PATCH', state_template) &&
              edited === undefined && <Button label="Edit desired state" onClick={() => setEdited(state)} />
            }
          >
            <StateTable state={state} />
            <ReadAt at_ms={answer.dataUpdatedAt} />
          </Panel>
          {edited && <EditDesired id={id} base={edited} onClose={() => setEdited(undefined)} />}
        </div>
      )}
    </Loaded>
  );
}

const columns: Column<StateRow>[] = [
  { field: 'path', label: 'Path', render: ({ path }) => path },
  { field: 'desired', label: 'Desired', render: ({ desired }) => <JsonValue value={desired} /> },
  { field: 'reported', label: 'Reported', render: ({ reported }) => <JsonValue value={reported} /> },
  { field: 'mark', label: 'Difference', render: (row) => <Difference {...row} /> },
];

function StateTable({ state }: { state: DeviceState }) {
  const { desired_at, reported_at } = state;
  const rows = compareStates(state);
  return (
    <>
      <p>
        Desired {desired_at === undefined ? 'never' : <Time seconds={desired_at} />}, reported{' '}
        {reported_at === undefined ? 'never' : <Time seconds={reported_at} />}
      </p>
      {rows.length === 0 ? (
        <p className="empty">Nothing is desired or reported yet.</p>
      ) : (
        <Table caption="State" columns={columns} entries={rows} keyOf={({ path }) => path} />
      )}
    </>
  );
}

function JsonValue({ value }: { value: unknown }) {
  if (value === undefined) return '–';
  return <code className="json">{JSON.stringify(value)}</code>;
}

function Difference({ mark, reason }: StateRow) {
  if (mark === undefined) return null;
  if (mark === 'pending') return <span className="badge status-no_data">not reported yet</span>;
  return (
    <>
      <span className="badge status-disconnected">rejected</span> {reason}
    </>
  );
}

/** The part of the desired state that people write; files have a path of their own. */
const writtenPartOf = ({ desired: { configs: _, ...written } }: DeviceState): Values => written;

/** Edits the desired state as JSON, and sends what was changed with the version that was shown. */
function EditDesired({ id, base, onClose }: { id: string; base: DeviceState; onClose(): void }) {
  const path = pathOf('devices', id, 'state');
  const written = writtenPartOf(base);
  const { mutation, dialog } = useVersionedSave({
    base,
    valuesOf: writtenPartOf,
    changesOf({ desired = {} }) {
      if (!isObject(desired))
        throw new RequestError(400, 4003, 'validation error', { desired: 'must be a JSON object' });
      return findChanges(written, desired, Object.keys({ ...written, ...desired }), []);
    },
    read: () => request<DeviceState>('GET', path),
    write(changes, onto) {
      const from = writtenPartOf(onto);
      const to = Object.entries({ ...from, ...changes }).filter(([, value]) => value !== null);
      const body = createMergePatch(from, Object.fromEntries(to));
      return request('PATCH', path, { query: { version: onto.desired_version }, body });
    },
    message: 'The desired state is saved.',
    onSaved: onClose,
  });
  return (
    <Panel title="Desired state">
      <SchemaForm
        schema={{ properties: { desired: { type: 'object', description: 'What the device shall be, as JSON.' } } }}
        initial={{ desired: written }}
        submitLabel="Save"
        mutation={mutation}
        onCancel={onClose}
      />
      {dialog}
    </Panel>
  );
}
