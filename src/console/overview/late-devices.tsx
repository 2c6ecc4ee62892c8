import { useCount, useList } from '../api/queries.js';
import type { StoredObject } from '../api/resources.js';
import { formatDuration, formatNumber } from '../lib/format.js';
import { Loaded } from '../ui/feedback.js';
import { Panel } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { columnsOf } from '../ui/value.js';

const max_late_devices = 10;
/** The kind of stream that is late, by the status of the device. */
const kinds = {
  no_data: { _t: 'str', sort: 'stream_due_at' },
  disconnected: { _t: 'str', sort: 'stream_due_at' },
  no_status: { _t: 'sta', sort: 'status_due_at' },
} as const;

const columns = [
  ...columnsOf<StoredObject>({}, ['name', 'status'], { linked: 'devices' }),
  {
    field: 'late',
    label: 'Late by',
    render: (device: StoredObject) => formatDuration(Math.max(0, Date.now() / 1000 - dueOf(device))),
  },
];

/** The devices that are late, the one that has been for longest first, and the number of those that never sent anything. */
export function LateDevices({ refetch_ms }: { refetch_ms: number }) {
  const [first, ...others] = [
    useLate('no_data', refetch_ms),
    useLate('disconnected', refetch_ms),
    useLate('no_status', refetch_ms),
  ] as const;
  const statuses = [first, ...others];
  const unread = statuses.find(({ answer }) => answer.data === undefined) ?? first;
  const late = statuses
    .flatMap(({ answer }) => answer.data?.result ?? [])
    .sort((left, right) => dueOf(left) - dueOf(right))
    .slice(0, max_late_devices);
  const never = statuses.reduce((sum, { silent = Number.NaN }) => sum + silent, 0);
  return (
    <Panel title="Needs attention">
      <Loaded of={unread.answer} height="20rem">
        {() => (
          <div className="stack">
            {late.length > 0 && (
              <Table
                caption="Late devices"
                entries={late}
                keyOf={({ id_developer }) => id_developer}
                columns={columns}
              />
            )}
            {never > 0 && (
              <p className="muted">
                {formatNumber(never)} {never === 1 ? 'device is' : 'devices are'} late without ever having sent data or
                a status.
              </p>
            )}
            {never === 0 && late.length === 0 && <p className="muted">No device is late.</p>}
          </div>
        )}
      </Loaded>
    </Panel>
  );
}

/** Reads the devices of a status that did send once what they are late with, and counts those that never did. */
function useLate(status: keyof typeof kinds, refetch_ms: number) {
  const query = { ...kinds[status], max: max_late_devices, status };
  const answer = useList<StoredObject>('/devices/', query, { refetch_ms });
  const total = useCount('/devices/', { status }, { refetch_ms });
  const silent = total !== undefined && answer.data ? total - answer.data.total_documents : undefined;
  return { answer, silent };
}

/** The deadline that has passed. */
function dueOf({ status, ...device }: StoredObject): number {
  return Number((status === 'no_status' ? device.status_due_at : device.stream_due_at) ?? 0);
}
