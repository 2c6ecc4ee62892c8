import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { useList } from '../api/queries.js';
import { countOf, findType, type ResourceType, type StoredObject, statuses } from '../api/resources.js';
import { formatNumber } from '../lib/format.js';
import { useAddress } from '../ui/address.js';
import { Button } from '../ui/button.js';
import { Loaded } from '../ui/feedback.js';
import { StatusBadge } from '../ui/value.js';

const page_size = 50;
const refetch_ms = 10_000;
const max_page_size = 1000;
const max_counts = 1000;

/** The key of an object in addresses: its type and identifier. */
export function keyOf({ plural }: ResourceType, id: string): string {
  return `${plural}/${id}`;
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

type Siblings = Readonly<Record<string, string>>;

/** The objects of one type below another one. Each level is read when it is opened. */
export function Level({ type, query }: { type: ResourceType; query: Siblings }) {
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
  siblings: Siblings;
}

function TreeNode({ type, object, siblings }: TreeNodeProps) {
  const [open, toggle] = useOpenNodes();
  const [search] = useAddress();
  const key = keyOf(type, object.id_developer);
  const isOpen = open.has(key);
  const isChosen = search.at === key;
  const children = type.children.flatMap(({ plural, field }) => {
    const child = findType(plural);
    return child ? [{ child, query: { [field]: object.id_developer } }] : [];
  });
  return (
    <li>
      <div className={isChosen ? 'row tree-row chosen' : 'row tree-row'}>
        {children.length > 0 ? (
          <button type="button" className="quiet" aria-expanded={isOpen} onClick={() => toggle(key)}>
            <span aria-hidden="true">{isOpen ? '▾' : '▸'}</span>
            <span className="hidden">Contents of {object.name}</span>
          </button>
        ) : (
          <span className="leaf" />
        )}
        <Link
          to="."
          search={(old) => ({ ...old, at: key })}
          resetScroll={false}
          title={object.id_developer}
          activeOptions={{ includeSearch: true }}
          aria-current={isChosen ? 'true' : undefined}
        >
          {object.name}
        </Link>
        {object.enabled === false && <span className="badge off">disabled</span>}
        <span className="branch-counts">
          {object.status === undefined ? (
            <BranchCounts type={type} id={object.id_developer} siblings={siblings} />
          ) : (
            <StatusBadge status={object.status} />
          )}
        </span>
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

/** The numbers of devices of a branch by status. All siblings share one request. */
function BranchCounts({ type, id, siblings }: { type: ResourceType; id: string; siblings: Siblings }) {
  const field = `id_${type.name}`;
  const query = { by: `${field},status`, ...siblings, max: max_counts };
  const { data } = useList<Record<string, unknown>>('/devices/counts/', query, { refetch_ms });
  const device = findType('devices');
  const rows = (data?.result ?? []).filter((row) => row[field] === id);
  return statuses.map((status) => {
    const count = Number(rows.find((row) => row.status === status)?.count ?? 0);
    return (
      count > 0 &&
      device && (
        <StatusBadge key={status} status={status} of={countOf(device, count)}>
          {formatNumber(count)}
        </StatusBadge>
      )
    );
  });
}
