import { Link } from '@tanstack/react-router';
import { type Counts, type Freshness, useList } from '../api/queries.js';
import { countOf, type DeviceStatus, findType, type StoredObject } from '../api/resources.js';
import { formatDuration } from '../lib/format.js';
import { Loaded } from '../ui/feedback.js';
import { Panel } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { columnsOf } from '../ui/value.js';

const max_late_devices = 10;

/** The ways in which devices are late, worst first. */
const lateStatuses: readonly (readonly [status: DeviceStatus, text: string])[] = [
  ['disconnected', 'sent neither data nor a status in time'],
  ['no_data', 'sent a status in time, but no data'],
  ['no_status', 'sent data in time, but no status'],
];

/** The devices that are late: how many in which way, and of those that ever sent data the ones that are late for longest. */
export function LateDevices({ counts, fresh }: { counts: Counts | undefined; fresh: Freshness }) {
  const query = { _t: 'str', sort: 'stream_due_at', max: max_late_devices, fields };
  const answer = useList<LateDevice>('/devices/', query, fresh);
  const now_s = Date.now() / 1000;
  const device = findType('devices');
  const rows = lateStatuses.filter(([status]) => (counts?.of(status) ?? 0) > 0);
  return (
    <Panel title="Needs attention">
      <Loaded of={answer} height="20rem">
        {({ result }) => {
          const late = result.filter(({ stream_due_at }) => stream_due_at <= now_s);
          return (
            <div className="stack">
              {device && counts && (
                <ul aria-label="Late devices by cause">
                  {rows.map(([status, text]) => (
                    <li key={status}>
                      <Link to="/$plural" params={{ plural: 'devices' }} search={{ status }}>
                        {countOf(device, counts.of(status))}
                      </Link>{' '}
                      {text}
                    </li>
                  ))}
                </ul>
              )}
              {late.length > 0 && (
                <Table
                  caption="Late devices"
                  entries={late}
                  keyOf={({ id_developer }) => id_developer}
                  columns={columns}
                />
              )}
              {counts && rows.length === 0 && <p className="muted">No device is late.</p>}
            </div>
          );
        }}
      </Loaded>
    </Panel>
  );
}

interface LateDevice extends StoredObject {
  stream_due_at: number;
}

const fields = 'id_developer,name,status,id_group,id_asset,stream_due_at';

const columns = [
  ...columnsOf<LateDevice>({}, ['name', 'status'], { linked: 'devices' }),
  {
    field: 'place',
    label: 'Place',
    render: ({ id_asset, id_group }: LateDevice) => String(id_asset ?? id_group ?? ''),
  },
  {
    field: 'late',
    label: 'Late by',
    render: ({ stream_due_at }: LateDevice) => formatDuration(Math.max(0, Date.now() / 1000 - stream_due_at)),
  },
];
