import { useState } from 'react';
import { Link, ObjectLink, useAddress } from '../address.js';
import { bodySchemaOf } from '../api/document.js';
import { useCount, useList, useSession } from '../api/queries.js';
import { DeleteDialog } from '../components/delete-dialog.js';
import { Dialog } from '../components/dialog.js';
import { EditForm } from '../components/edit-form.js';
import { Loaded } from '../components/feedback.js';
import { Page } from '../components/page.js';
import { StatusBadge } from '../components/value.js';
import { formatNumber } from '../format.js';
import { findType, type ResourceType, type StoredObject, templateOf } from '../resources.js';

const page_size = 50;

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
      <div className="panel tree">{projects && <Level type={projects} query={{}} />}</div>
    </Page>
  );
}

function useOpenNodes(): [ReadonlySet<string>, (key: string) => void] {
  const [search, setSearch] = useAddress();
  const open = new Set(readKeys(search.open));
  return [
    open,
    (key) => {
      const keys = open.has(key) ? [...open].filter((other) => other !== key) : [...open, key];
      setSearch({ open: keys.length === 0 ? undefined : JSON.stringify(keys) }, { replace: true });
    },
  ];
}

function readKeys(text: string | undefined): string[] {
  try {
    const keys: unknown = JSON.parse(text ?? '[]');
    return Array.isArray(keys) ? keys.map(String) : [];
  } catch {
    return [];
  }
}

/** The objects of one type below one parent. */
function Level({ type, query }: { type: ResourceType; query: Record<string, string> }) {
  const [max, setMax] = useState(page_size);
  const answer = useList<StoredObject>(`/${type.plural}/`, { ...query, max, sort: 'name' });
  return (
    <Loaded of={answer} height="2rem">
      {({ total_documents: total, result }) => (
        <>
          {total === 0 && <p className="muted">No {type.title.toLowerCase()}.</p>}
          <ul>
            {result.map((object) => (
              <TreeNode key={object.id_developer} type={type} object={object} />
            ))}
          </ul>
          {total > result.length && (
            <button type="button" onClick={() => setMax(Math.min(1000, max * 4))} disabled={max === 1000}>
              {max === 1000
                ? `The first ${formatNumber(result.length)} of ${formatNumber(total)}: see the list`
                : `More (${formatNumber(total - result.length)})`}
            </button>
          )}
        </>
      )}
    </Loaded>
  );
}

function TreeNode({ type, object }: { type: ResourceType; object: StoredObject }) {
  const [open, toggle] = useOpenNodes();
  const key = `${type.plural}/${object.id_developer}`;
  const isOpen = open.has(key);
  return (
    <li>
      <div className="tree-row">
        {type.children.length > 0 ? (
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
        {typeof object.status === 'string' && <StatusBadge status={object.status} />}
        {object.enabled === false && <span className="badge off">disabled</span>}
        {type.children.map(({ plural, field }) => (
          <ChildCount key={plural} plural={plural} query={{ [field]: object.id_developer }} />
        ))}
        <NodeActions type={type} object={object} />
      </div>
      {isOpen && (
        <div className="branch">
          {type.children.map(({ plural, field }) => {
            const child = findType(plural);
            return child && <Level key={plural} type={child} query={{ [field]: object.id_developer }} />;
          })}
        </div>
      )}
    </li>
  );
}

function ChildCount({ plural, query }: { plural: string; query: Record<string, string> }) {
  const count = useCount(`/${plural}/`, query);
  return <span className="muted">{count ? `${formatNumber(count)} ${plural}` : ''}</span>;
}

function NodeActions({ type, object }: { type: ResourceType; object: StoredObject }) {
  const { can, document } = useSession();
  const [dialog, setDialog] = useState<'move' | 'delete'>();
  const close = () => setDialog(undefined);
  const template = templateOf(type);
  const fields = Object.keys(bodySchemaOf(document, 'put', template)?.properties ?? {});
  const parents = fields.filter((field) => ['id_project', 'id_service', 'id_group', 'id_asset'].includes(field));
  return (
    <span className="tree-actions">
      {can('PUT', template) && parents.length > 0 && (
        <button type="button" className="quiet" onClick={() => setDialog('move')}>
          Move<span className="hidden"> {object.name}</span>
        </button>
      )}
      {can('DELETE', template) && (
        <button type="button" className="quiet" onClick={() => setDialog('delete')}>
          Delete<span className="hidden"> {object.name}</span>
        </button>
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
