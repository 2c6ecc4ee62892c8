import { Link } from '@tanstack/react-router';
import { type Counts, type Freshness, useCount, useCounts, useList, useSession } from '../api/hooks.js';
import type { Alarm } from '../api/interface.js';
import { type Entry, severities } from '../api/resources.js';
import { formatNumber } from '../lib/format.js';
import { ObjectLink } from '../ui/address.js';
import { Loading, Panel } from '../ui/page.js';
import { columnsOf, Table } from '../ui/table.js';
import { SeverityBadge } from '../ui/value.js';

const template = '/alarms/';
export const open_states = 'active,acknowledged';
export const refetch_ms = 10_000;
const counts_ms = 30_000;
/** Alarms of each severity. */
export const max_shown = 100;

/** Names an open alarm: at most one of a rule and a device is. */
export const keyOf = ({ device, rule }: Alarm) => `${device}, ${rule}`;

/** Fields of an alarm that are shown in another way than by their schema. */
export const renderAlarm = {
  device: ({ device }: Entry | Alarm) => <ObjectLink plural="devices" id={String(device)} />,
  rule: ({ rule }: Entry | Alarm) => <ObjectLink plural="alarmrules" id={String(rule)} />,
  values: ({ values }: Entry | Alarm) =>
    Object.entries(values ?? {})
      .map(([path, value]) => `${path} ${typeof value === 'number' ? formatNumber(value) : String(value)}`)
      .join(', '),
  state: ({ state, acknowledged_by: user }: Entry | Alarm) =>
    state === 'acknowledged' && user !== undefined ? `acknowledged by ${user}` : String(state),
};

/** Reads the open alarms of a severity, the oldest first. */
export function useOldest(severity: Alarm['severity'], max = max_shown, fresh: Freshness = { refetch_ms }) {
  const query = { state: open_states, severity, sort: 'raised_at', order: 1, max };
  return useList<Alarm>(template, query, fresh);
}

/** Counts the open alarms by severity. */
function useOpenCounts(): Counts | undefined {
  const isOffered = useSession().can('GET', `${template}counts/`);
  return useCounts(template, 'severity', { state: open_states }, { refetch_ms: counts_ms, enabled: isOffered });
}

/** The numbers of open alarms by severity, with a link to them; nothing without any. */
export function OpenAlarmCounts() {
  const counts = useOpenCounts();
  if (counts === undefined || counts.total === 0) return null;
  return (
    <ul className="row" aria-label="Open alarms by severity">
      {severities
        .filter((severity) => counts.of(severity) > 0)
        .map((severity) => (
          <li key={severity}>
            <Link to="/alarms">
              <SeverityBadge severity={severity}>
                {formatNumber(counts.of(severity))} {severity}
              </SeverityBadge>
            </Link>
          </li>
        ))}
    </ul>
  );
}

const max_worst = 10;
const rules_path = '/alarmrules/';

/** Reports whether the account has alarm rules; undefined until that is known. */
export function useHasRules(fresh: Freshness): boolean | undefined {
  const isOffered = useSession().can('GET', rules_path);
  const count = useCount(rules_path, {}, { ...fresh, enabled: isOffered && fresh.enabled !== false });
  if (!isOffered) return false;
  return count === undefined ? undefined : count > 0;
}

/** The worst and oldest open alarms, as part of the overview; only severities that have room are read. */
export function WorstAlarms({ fresh }: { fresh: Freshness }) {
  const schema = useSession().entryOf(template);
  const counts = useOpenCounts();
  const [critical = 0, warning = 0, info = 0] = severities.map((severity) => counts?.of(severity));
  const isShown = [critical > 0, warning > 0 && critical < max_worst, info > 0 && critical + warning < max_worst];
  const freshOf = (index: number) => ({ ...fresh, enabled: isShown[index] === true && fresh.enabled !== false });
  const answers = [
    useOldest('critical', max_worst, freshOf(0)),
    useOldest('warning', max_worst, freshOf(1)),
    useOldest('info', max_worst, freshOf(2)),
  ];
  const alarms = answers.flatMap(({ data }, index) => (isShown[index] ? (data?.result ?? []) : []));
  const columns = columnsOf<Alarm>(schema, ['severity', 'device', 'rule', 'raised_at'], { render: renderAlarm });
  return (
    <Panel title="Open alarms" actions={<Link to="/alarms">All open alarms</Link>}>
      {counts === undefined ? (
        <Loading height="20rem" />
      ) : alarms.length === 0 ? (
        <p className="empty">No alarm is open.</p>
      ) : (
        <Table caption="Open alarms" columns={columns} entries={alarms.slice(0, max_worst)} keyOf={keyOf} isDense />
      )}
    </Panel>
  );
}
