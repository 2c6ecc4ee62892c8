import { Link } from '@tanstack/react-router';
import { useModels } from '../api/models.js';
import { useNames } from '../api/names.js';
import { type Counts, type Freshness, useList } from '../api/queries.js';
import { countOf, type DeviceStatus, findType, type ResourceType } from '../api/resources.js';
import { fieldOf, findMeasuredPaths, lastValueOf, type MeasuredPath } from '../charts/measured-paths.js';
import { ObjectLink } from '../ui/address.js';
import { Loaded } from '../ui/feedback.js';
import { Panel } from '../ui/page.js';
import { type Column, Table } from '../ui/table.js';
import { StatusBadge, Time } from '../ui/value.js';
import { groupLateDevices, type LateDevice, type LateGroup } from './late-groups.js';

const max_read_devices = 100;
const max_rows = 10;
const max_measures = 3;
const fields = 'id_developer,name,status,id_group,id_asset,stream_due_at';

/** The ways in which devices are late, worst first. */
const lateStatuses: readonly (readonly [status: DeviceStatus, text: string])[] = [
  ['disconnected', 'sent neither data nor a status in time'],
  ['no_data', 'sent a status in time, but no data'],
  ['no_status', 'sent data in time, but no status'],
];

interface LateProps {
  counts: Counts | undefined;
  fresh: Freshness;
}

/** The numbers of late devices by cause, and the worst of them. */
export function LateDevices({ counts, fresh }: LateProps) {
  return (
    <Panel title="Needs attention">
      <div className="stack">
        <LateCauses counts={counts} />
        <WorstLate fresh={fresh} />
      </div>
    </Panel>
  );
}

/** The numbers of late devices by cause, each with a link to them. */
export function LateCauses({ counts }: { counts: Counts | undefined }) {
  const device = findType('devices');
  if (device === undefined || counts === undefined) return null;
  const rows = lateStatuses.filter(([status]) => counts.of(status) > 0);
  if (rows.length === 0) return <p className="muted">No device is late.</p>;
  return (
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
  );
}

/** The devices whose data are late for longest, then those that have never sent data, disconnected ones first. */
function WorstLate({ fresh }: Pick<LateProps, 'fresh'>) {
  const models = useModels({ enabled: true });
  const measured = findMeasuredPaths(models.data?.result ?? []).slice(0, max_measures);
  const query = {
    sort: 'stream_due_at',
    max: max_read_devices,
    fields: [fields, ...(measured.length > 0 ? ['id_model'] : []), ...measured.map(fieldOf)].join(','),
  };
  const isReady = fresh.enabled !== false && !models.isPending;
  const first = useList<LateDevice>('/devices/', query, { ...fresh, enabled: isReady });
  // those without a deadline come first, and may be all that fits
  const hasDeadlines = first.data?.result[max_read_devices - 1]?.stream_due_at !== undefined;
  const isComplete = first.data === undefined || first.data.result.length < max_read_devices || hasDeadlines;
  const others = useList<LateDevice>('/devices/', { ...query, _t: 'str' }, { ...fresh, enabled: !isComplete });
  const nameOf = useNames(['groups', 'assets']);
  const device = findType('devices');
  return (
    <Loaded of={first} height="20rem">
      {({ result }) => {
        const withDeadline = isComplete ? result.filter(hasDeadline) : (others.data?.result ?? []);
        const silent = statusesWithoutData.flatMap((status) =>
          result.filter((entry) => entry.status === status && !hasDeadline(entry)),
        );
        const groups = groupLateDevices([...withDeadline, ...silent], Date.now() / 1000).slice(0, max_rows);
        if (device === undefined || groups.length === 0) return null;
        return (
          <Table
            caption="Late devices"
            entries={groups}
            keyOf={({ key }) => key}
            columns={buildColumns(device, nameOf, measured)}
          />
        );
      }}
    </Loaded>
  );
}

const statusesWithoutData: readonly DeviceStatus[] = ['disconnected', 'no_data'];
const hasDeadline = ({ stream_due_at }: LateDevice) => stream_due_at !== undefined;

function buildColumns(
  device: ResourceType,
  nameOf: (plural: string, id: string) => string,
  measured: readonly MeasuredPath[],
): Column<LateGroup>[] {
  const pluralOf = (group: LateGroup) => (group.field === 'id_group' ? 'groups' : 'assets');
  return [
    { field: 'name', render: (group) => <LateNames type={device} group={group} /> },
    { field: 'status', render: ({ status }) => <StatusBadge status={status} /> },
    {
      field: 'place',
      label: 'Place',
      render: (group) => (
        <ObjectLink plural={pluralOf(group)} id={group.place}>
          {nameOf(pluralOf(group), group.place)}
        </ObjectLink>
      ),
    },
    {
      field: 'late',
      label: 'Late since',
      render: ({ since }) => (since === undefined ? 'no data yet' : <Time seconds={since} />),
    },
    ...(measured.length > 0
      ? [{ field: 'last', label: 'Last value', render: (group: LateGroup) => <LastValue {...{ group, measured }} /> }]
      : []),
  ];
}

/** The first measure that the device has sent; nothing for several devices. */
function LastValue({ group: { devices }, measured }: { group: LateGroup; measured: readonly MeasuredPath[] }) {
  const [device, ...others] = devices;
  const values = device && others.length === 0 ? measured.map((path) => lastValueOf(device, path)) : [];
  return values.find((value) => value !== undefined) ?? <span className="muted">–</span>;
}

/** The device, or how many there are, with a link to their list. */
function LateNames({ type, group }: { type: ResourceType; group: LateGroup }) {
  const { devices, field, place, status } = group;
  const [first] = devices;
  if (first === undefined || devices.length === 1)
    return (
      <ObjectLink plural={type.plural} id={first?.id_developer ?? ''}>
        {first?.name}
      </ObjectLink>
    );
  return (
    <Link
      to="/$plural"
      params={{ plural: type.plural }}
      search={{ [field]: place, status, sort: 'stream_due_at' }}
      title={devices.map(({ name }) => name).join(', ')}
    >
      {countOf(type, devices.length)}
    </Link>
  );
}
