import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { pathOf } from '../api/client.js';
import { useGet, useStatusCounts } from '../api/queries.js';
import {
  filtersOfStatus,
  findType,
  parentFields,
  type ResourceType,
  type StoredObject,
  shownStatuses,
} from '../api/resources.js';
import { useSession } from '../api/session.js';
import { DeleteDialog } from '../edit/delete-dialog.js';
import { EditForm } from '../edit/edit-form.js';
import { fieldsOf } from '../forms/form.js';
import { formatNumber } from '../lib/format.js';
import { MapPreview } from '../map/map-preview.js';
import { useAddress } from '../ui/address.js';
import { Button, Menu } from '../ui/button.js';
import { Dialog } from '../ui/dialog.js';
import { Loaded, Panel } from '../ui/page.js';
import { FieldList, StatusBadge } from '../ui/value.js';
import { AllChildren } from './children.js';

const refetch_ms = 10_000;

/** The object that is chosen in the tree: what it has, and what can be done with it. */
export function Chosen({ at }: { at: string }) {
  const [plural = '', ...rest] = at.split('/');
  const [type, id] = [findType(plural), rest.join('/')];
  if (type === undefined) return null;
  return <ChosenObject key={at} type={type} id={id} />;
}

function ChosenObject({ type, id }: { type: ResourceType; id: string }) {
  const answer = useGet<StoredObject>(pathOf(type.plural, id), {}, { refetch_ms });
  return (
    <Loaded of={answer} height="24rem">
      {(object) => (
        <div className="stack">
          <Panel
            title={object.name}
            actions={
              <>
                <Link to="/$plural/$id" params={{ plural: type.plural, id }} className="button primary">
                  Open
                </Link>
                <ObjectMenu type={type} object={object} />
              </>
            }
          >
            {type.name === 'device' ? <DeviceFacts device={object} /> : <DevicesBelow type={type} id={id} />}
          </Panel>
          <AllChildren type={type} id={id} />
        </div>
      )}
    </Loaded>
  );
}

function DeviceFacts({ device }: { device: StoredObject }) {
  const schema = useSession().entryOf('/devices/');
  return (
    <FieldList
      schema={schema}
      values={device}
      fields={['status', 'type', 'id_model', 'description', 'last_stream_at', 'last_status_at', 'updated_at']}
    />
  );
}

/** The devices below an object by status, and where they are. */
function DevicesBelow({ type, id }: { type: ResourceType; id: string }) {
  const query = { [`id_${type.name}`]: id };
  const counts = useStatusCounts(query, { refetch_ms });
  if (counts === undefined) return null;
  if (counts.total === 0) return <p className="muted">No devices below.</p>;
  return (
    <div className="stack">
      <ul className="row" aria-label="Devices below by status">
        {shownStatuses.map((status) => (
          <li key={status}>
            <Link to="/$plural" params={{ plural: 'devices' }} search={{ ...query, ...filtersOfStatus(status) }}>
              {formatNumber(counts.of(status))} <StatusBadge status={status} />
            </Link>
          </li>
        ))}
      </ul>
      <MapPreview query={query} isSmall isFitted />
    </div>
  );
}

/** Moves and deletes an object. */
function ObjectMenu({ type, object }: { type: ResourceType; object: StoredObject }) {
  const { bodyOf, can } = useSession();
  const [, setSearch] = useAddress();
  const [dialog, setDialog] = useState<'move' | 'delete'>();
  const close = () => setDialog(undefined);
  const parents = fieldsOf(bodyOf('PUT', type.object_path)).filter((field) => parentFields.includes(field));
  const isMovable = can('PUT', type.object_path) && parents.length > 0;
  const isDeletable = can('DELETE', type.object_path);
  if (!isMovable && !isDeletable) return null;
  return (
    <>
      <Menu label="Actions">
        {isMovable && <Button onClick={() => setDialog('move')}>Move…</Button>}
        {isDeletable && <Button onClick={() => setDialog('delete')}>Delete…</Button>}
      </Menu>
      {dialog === 'move' && (
        <Dialog title={`Move ${object.name}`} onClose={close}>
          <EditForm type={type} object={object} fields={parents} onSaved={close} onCancel={close} />
        </Dialog>
      )}
      {dialog === 'delete' && (
        <DeleteDialog
          type={type}
          object={object}
          onClose={close}
          onDeleted={() => {
            close();
            setSearch({ at: undefined }, { replace: true });
          }}
        />
      )}
    </>
  );
}
