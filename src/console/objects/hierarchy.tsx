import './hierarchy.css';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { useCounts, useList } from '../api/queries.js';
import { countOf, findType, parentFields, type ResourceType, type StoredObject } from '../api/resources.js';
import { useSession } from '../api/session.js';
import { DeleteDialog } from '../edit/delete-dialog.js';
import { EditForm } from '../edit/edit-form.js';
import { fieldsOf } from '../forms/form.js';
import { formatNumber } from '../lib/format.js';
import { ObjectLink, useAddress } from '../ui/address.js';
import { Button } from '../ui/button.js';
import { Dialog } from '../ui/dialog.js';
import { Loaded } from '../ui/feedback.js';
import { Page } from '../ui/page.js';
import { StatusBadge } from '../ui/value.js';

const page_size = 50;
const refetch_ms = 10_000;
const max_page_size = 1000;

/** The tree from projects down to devices. Each level is read when it is opened; the address holds what is open. */
export function Hierarchy() {
  const { can } = useSession();
  const projects = findType('projects');
  return (
    <Page
      title="Hierarchy"
      actions={
        can('POST', '/projects/') && (
          <Link to="/$plural/new" params={{ plural: 'projects' }} className="button primary">
            New project
          </Link>
        )
      }
    >
      <div className="card panel tree">{projects && <Level type={projects} query={{}} />}</div>
    </Page>
  );
}

function useOpenNodes(): [ReadonlySet<string>, (key: string) => void] {
  const [search, setSearch] = useAddress();
  const open = new Set(readKeys(search.open));
  const toggle = (key: string) => {
    const keys = open.has(key) ? [...open].filter((other) => other !== key) : [...open, key];
    setSearch({ open: keys.length === 0 ? undefined : JSON.stringify(keys) }, { replace: true });
  };
  return [open, toggle];
}

function readKeys(text = '[]'): string[] {
  try {
    const keys: unknown = JSON.parse(text);
    return Array.isArray(keys) ? keys.map(String) : [];
  } catch {
    return [];
  }
}

function Level({ type, query }: { type: ResourceType; query: Record<string, string> }) {
  const [max, setMax] = useState(page_size);
  const answer = useList<StoredObject>(type.list_path, { ...query, max, sort: 'name' }, { refetch_ms });
  return (
    <Loaded of={answer} height="2rem">
      {({ total_documents: total, result }) => (
        <>
          {total === 0 && <p className="muted">No {type.plural}.</p>}
          <ul>
            {result.map((object) => (
              <TreeNode key={object.id_developer} type={type} object={object} siblings={query} />
            ))}
          </ul>
          {total > result.length && (
            <Button onClick={() => setMax(Math.min(max_page_size, max * 4))} disabled={max === max_page_size}>
              {max === max_page_size
                ? `The first ${formatNumber(result.length)} of ${formatNumber(total)}: see the list`
                : `More (${formatNumber(total - result.length)})`}
            </Button>
          )}
        </>
      )}
    </Loaded>
  );
}

interface TreeNodeProps {
  type: ResourceType;
  object: StoredObject;
  /** Query of the list that has it and its siblings. */
  siblings: Record<string, string>;
}

function TreeNode({ type, object, siblings }: TreeNodeProps) {
  const [open, toggle] = useOpenNodes();
  const key = `${type.plural}/${object.id_developer}`;
  const isOpen = open.has(key);
  const children = type.children.flatMap(({ plural, field }) => {
    const child = findType(plural);
    return child ? [{ child, field, query: { [field]: object.id_developer } }] : [];
  });
  return (
    <li>
      <div className="row tree-row">
        {children.length > 0 ? (
          <button type="button" className="quiet" aria-expanded={isOpen} onClick={() => toggle(key)}>
            <span aria-hidden="true">{isOpen ? '▾' : '▸'}</span>
            <span className="hidden">Contents of {object.name}</span>
          </button>
        ) : (
          <span className="leaf" />
        )}
        <ObjectLink plural={type.plural} id={object.id_developer}>
          {object.name}
        </ObjectLink>
        {object.status !== undefined && <StatusBadge status={object.status} />}
        {object.enabled === false && <span className="badge off">disabled</span>}
        {children.map(({ child, field }) => (
          <ChildCount key={child.plural} type={child} field={field} id={object.id_developer} siblings={siblings} />
        ))}
        <NodeActions type={type} object={object} />
      </div>
      {isOpen && (
        <div className="branch">
          {children.map(({ child, query }) => (
            <Level key={child.plural} type={child} query={query} />
          ))}
        </div>
      )}
    </li>
  );
}

interface ChildCountProps {
  type: ResourceType;
  /** Names the parent. */
  field: string;
  id: string;
  siblings: Record<string, string>;
}

/** The number of objects below another one. All siblings share one request. */
function ChildCount({ type, field, id, siblings }: ChildCountProps) {
  const count = useCounts(type.list_path, field, siblings, { refetch_ms })?.of(id);
  return <span className="muted">{count ? countOf(type, count) : ''}</span>;
}

function NodeActions({ type, object }: { type: ResourceType; object: StoredObject }) {
  const { bodyOf, can } = useSession();
  const [dialog, setDialog] = useState<'move' | 'delete'>();
  const close = () => setDialog(undefined);
  const parents = fieldsOf(bodyOf('PUT', type.object_path)).filter((field) => parentFields.includes(field));
  return (
    <span className="tree-actions">
      {can('PUT', type.object_path) && parents.length > 0 && (
        <Button kind="quiet" of={object.name} onClick={() => setDialog('move')}>
          Move
        </Button>
      )}
      {can('DELETE', type.object_path) && (
        <Button kind="quiet" of={object.name} onClick={() => setDialog('delete')}>
          Delete
        </Button>
      )}
      {dialog === 'move' && (
        <Dialog title={`Move ${object.name}`} onClose={close}>
          <EditForm type={type} object={object} fields={parents} onSaved={close} onCancel={close} />
        </Dialog>
      )}
      {dialog === 'delete' && <DeleteDialog type={type} object={object} onClose={close} onDeleted={close} />}
    </span>
  );
}
