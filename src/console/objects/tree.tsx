import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { open_states } from '../alarms/worst-alarms.js';
import { useList } from '../api/hooks.js';
import {
  countOf,
  deviceType,
  fieldFor,
  type OpenAlarms,
  type ResourceType,
  type StoredObject,
  shownStatuses,
  shownStatusOf,
} from '../api/resources.js';
import { formatNumber } from '../lib/format.js';
import { useAddress } from '../ui/address.js';
import { Button } from '../ui/button.js';
import { Loaded } from '../ui/page.js';
import { AlarmBadges, StatusBadge } from '../ui/value.js';

const page_size = 50;
const refetch_ms = 10_000;
const max_page_size = 1000;
const max_counts = 1000;
const device_fields = 'id_developer,name,enabled,status,last_status_at,alarms';

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
  const fields = type.name === 'device' ? { fields: device_fields } : {};
  const answer = useList<StoredObject>(type.list_path, { ...query, max, sort: 'name', ...fields }, { refetch_ms });
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
            <Button
              label={
                max === max_page_size
                  ? `The first ${formatNumber(result.length)} of ${formatNumber(total)}: see the list`
                  : `More (${formatNumber(total - result.length)})`
              }
              onClick={() => setMax(Math.min(max_page_size, max * 4))}
              disabled={max === max_page_size}
            />
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
  const [search, setSearch] = useAddress();
  const key = `${type.plural}/${object.id_developer}`;
  const open = readKeys(search.open);
  const isOpen = open.includes(key);
  const toggle = () => {
    const keys = isOpen ? open.filter((other) => other !== key) : [...open, key];
    setSearch({ open: keys.length === 0 ? undefined : JSON.stringify(keys) }, { replace: true });
  };
  const isChosen = search.at === key;
  return (
    <li>
      <div className={isChosen ? 'row tree-row chosen' : 'row tree-row'}>
        {type.children.length > 0 ? (
          <button type="button" className="quiet" aria-expanded={isOpen} onClick={toggle}>
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
            <BranchCounts type={type} object={object} siblings={siblings} />
          ) : (
            <>
              <AlarmBadges alarms={object.alarms as OpenAlarms | undefined} />
              <StatusBadge status={shownStatusOf(object)} />
            </>
          )}
        </span>
      </div>
      {isOpen && (
        <div className="branch">
          {type.children.map((child) => (
            <Level key={child.plural} type={child} query={{ [fieldFor(type)]: object.id_developer }} />
          ))}
        </div>
      )}
    </li>
  );
}

interface Branch {
  /** Field that names the branch, and its value. */
  field: string;
  id: string;
  by: string;
  query: Siblings;
}

/** Counts what is below an object by the values of a field. All siblings share one request. */
function useBranchCounts(path: string, { field, id, by, query }: Branch, enabled = true): Record<string, number> {
  const counted = { by: `${field},${by}`, ...query, max: max_counts };
  const { data } = useList<Record<string, unknown>>(path, counted, { refetch_ms, enabled });
  const rows = (data?.result ?? []).filter((row) => row[field] === id);
  return Object.fromEntries(rows.map((row) => [String(row[by]), Number(row.count)]));
}

/** The numbers of devices of a branch by status, and of its open alarms by severity. */
function BranchCounts({ type, object: { id_developer: id, name }, siblings }: TreeNodeProps) {
  const field = fieldFor(type);
  const devices = useBranchCounts('/devices/counts/', { field, id, by: 'status', query: siblings });
  // those that have stopped to send a status, as no filter selects those that have never sent one
  const withStatus = { field, id, by: 'status', query: { ...siblings, _t: 'sta' } };
  const stopped = useBranchCounts('/devices/counts/', withStatus, (devices.no_status ?? 0) > 0);
  const { no_status = 0 } = stopped;
  const shown: Record<string, number> = { ...devices, no_status, data_only: (devices.no_status ?? 0) - no_status };
  const query = { ...siblings, state: open_states };
  const alarms = useBranchCounts('/alarms/counts/', { field, id, by: 'severity', query });
  return (
    <>
      <AlarmBadges alarms={alarms} of={name} />
      {shownStatuses.map((status) => {
        const count = shown[status] ?? 0;
        return (
          count > 0 && (
            <StatusBadge key={status} status={status} of={countOf(deviceType, count)}>
              {formatNumber(count)}
            </StatusBadge>
          )
        );
      })}
    </>
  );
}
