import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { pathOf } from '../api/client.js';
import { useGet, useSession, useStatusCounts } from '../api/hooks.js';
import {
  fieldFor,
  filtersOfStatus,
  findType,
  parentFields,
  type ResourceType,
  type StoredObject,
  shownStatuses,
} from '../api/resources.js';
import { DeleteDialog } from '../edit/delete-dialog.js';
import { EditForm } from '../edit/edit-form.js';
import { fieldsOf } from '../forms/form.js';
import { formatNumber } from '../lib/format.js';
import { MapPreview } from '../map/map-preview.js';
import { useAddress } from '../ui/address.js';
import { Button, LinkButton, Menu } from '../ui/button.js';
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

const deviceFields = ['status', 'type', 'id_model', 'description', 'last_stream_at', 'last_status_at', 'updated_at'];

function ChosenObject({ type, id }: { type: ResourceType; id: string }) {
  const schema = useSession().entryOf(type.list_path);
  const answer = useGet<StoredObject>(pathOf(type.plural, id), {}, { refetch_ms });
  return (
    <Loaded of={answer} height="24rem">
      {(object) => (
        <div className="stack">
          <Panel
            title={object.name}
            actions={
              <>
                <LinkButton to="/$plural/$id" params={{ plural: type.plural, id }} label="Open" kind="primary" />
                <ObjectMenu type={type} object={object} />
              </>
            }
          >
            {type.name === 'device' ? (
              <FieldList schema={schema} values={object} fields={deviceFields} />
            ) : (
              <DevicesBelow type={type} id={id} />
            )}
          </Panel>
          <AllChildren type={type} id={id} />
        </div>
      )}
    </Loaded>
  );
}

/** The devices below an object by status, and where they are. */
function DevicesBelow({ type, id }: { type: ResourceType; id: string }) {
  const query = { [fieldFor(type)]: id };
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
        {isMovable && <Button label="Move…" onClick={() => setDialog('move')} />}
        {isDeletable && <Button label="Delete…" onClick={() => setDialog('delete')} />}
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
