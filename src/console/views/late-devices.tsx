import { ObjectLink } from '../address.js';
import { useCount, useList } from '../api/queries.js';
import { Loaded } from '../components/feedback.js';
import { Panel } from '../components/page.js';
import { Table } from '../components/table.js';
import { StatusBadge } from '../components/value.js';
import { formatDuration, formatNumber } from '../format.js';
import type { StoredObject } from '../resources.js';

const max_late_devices = 10;
/** The kind of stream that is late, by the status of the device. */
const kinds = {
  no_data: { _t: 'str', sort: 'stream_due_at' },
  disconnected: { _t: 'str', sort: 'stream_due_at' },
  no_status: { _t: 'sta', sort: 'status_due_at' },
} as const;
type LateStatus = keyof typeof kinds;

/** The devices that are late, the one that has been for longest first, and the number of those that never sent anything. */
export function LateDevices({ refetch_ms }: { refetch_ms: number }) {
  const answers = [
    useLate('no_data', refetch_ms),
    useLate('disconnected', refetch_ms),
    useLate('no_status', refetch_ms),
  ];
  const late = answers
    .flatMap(({ answer }) => answer.data?.result ?? [])
    .sort((one, other) => dueOf(one) - dueOf(other))
    .slice(0, max_late_devices);
  const never = answers.reduce((sum, { total, answer }) => sum + (total ?? 0) - (answer.data?.total_documents ?? 0), 0);
  const isCounted = answers.every(({ total, answer }) => total !== undefined && answer.data !== undefined);
  const unanswered = answers.find(({ answer }) => answer.data === undefined) ?? answers[0];
  return (
    <Panel title="Needs attention">
      {unanswered && (
        <Loaded of={unanswered.answer} height="20rem">
          {() => (
            <div className="stack">
              {late.length > 0 && (
                <Table
                  caption="Late devices"
                  entries={late}
                  keyOf={({ id_developer }) => id_developer}
                  columns={[
                    {
                      field: 'name',
                      render: ({ name, id_developer }) => (
                        <ObjectLink plural="devices" id={id_developer}>
                          {name}
                        </ObjectLink>
                      ),
                    },
                    { field: 'status', render: ({ status }) => <StatusBadge status={String(status)} /> },
                    {
                      field: 'late',
                      label: 'Late by',
                      render: (device) => formatDuration(Math.max(0, Date.now() / 1000 - dueOf(device))),
                    },
                  ]}
                />
              )}
              {isCounted && <Remark late={late.length} never={never} />}
            </div>
          )}
        </Loaded>
      )}
    </Panel>
  );
}

function Remark({ late, never }: { late: number; never: number }) {
  if (never > 0)
    return (
      <p className="muted">
        {formatNumber(never)} {never === 1 ? 'device is' : 'devices are'} late without ever having sent data or a
        status.
      </p>
    );
  return late === 0 ? <p className="muted">No device is late.</p> : null;
}

/** Reads the devices of a status that did send once what they are late with, and counts all of this status. */
function useLate(status: LateStatus, refetch_ms: number) {
  return {
    answer: useList<StoredObject>('/devices/', { ...kinds[status], max: max_late_devices, status }, { refetch_ms }),
    total: useCount('/devices/', { status }, { refetch_ms }),
  };
}

/** The deadline that has passed. */
function dueOf({ status, ...device }: StoredObject): number {
  const due = status === 'no_status' ? device.status_due_at : device.stream_due_at;
  return typeof due === 'number' ? due : 0;
}
