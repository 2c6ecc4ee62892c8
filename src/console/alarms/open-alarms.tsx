import { Link } from '@tanstack/react-router';
import { useMemo, useState } from 'react';
import { pathOf } from '../api/client.js';
import type { Alarm } from '../api/interface.js';
import { type Counts, type Freshness, useCount, useCounts, useList } from '../api/queries.js';
import { countOf, severities } from '../api/resources.js';
import { useSession } from '../api/session.js';
import type { ListAnswer } from '../api/types.js';
import { formatNumber } from '../lib/format.js';
import { Button } from '../ui/button.js';
import { Loaded, Loading, Panel } from '../ui/page.js';
import { Table } from '../ui/table.js';
import { columnsOf, ReadAt, SeverityBadge } from '../ui/value.js';
import { renderAlarm, useAnswers } from './answer-dialog.js';

const template = '/alarms/';
export const open_states = 'active,acknowledged';
const refetch_ms = 10_000;
const counts_ms = 30_000;
/** Alarms of each severity. */
const max_shown = 100;

/** At most one alarm of a rule and a device is open. */
const keyOf = ({ device, rule }: Alarm) => `${device}, ${rule}`;

interface OldestOptions {
  max?: number;
  fresh?: Freshness;
}

export function useOldest(
  severity: Alarm['severity'],
  { max = max_shown, fresh = { refetch_ms } }: OldestOptions = {},
) {
  const query = { state: open_states, severity, sort: 'raised_at', order: 1, max };
  return useList<Alarm>(template, query, fresh);
}

/** The open alarms of the account, the worst and oldest first. */
export function OpenAlarms() {
  const answers = [useOldest('critical'), useOldest('warning'), useOldest('info')];
  const lists = answers.flatMap(({ data }) => data ?? []);
  const combined = {
    data: lists.length === answers.length ? lists : undefined,
    error: answers.find(({ error }) => error)?.error,
    refetch: () => Promise.all(answers.map(({ refetch }) => refetch())),
  };
  return (
    <Loaded of={combined} height="24rem">
      {() => (
        <>
          <AlarmTable alarms={lists.flatMap(({ result }) => result)} />
          <Others lists={lists} />
          <ReadAt at_ms={Math.min(...answers.map(({ dataUpdatedAt }) => dataUpdatedAt))} />
        </>
      )}
    </Loaded>
  );
}

/** Links to the alarms for which the table has no room. */
function Others({ lists }: { lists: readonly ListAnswer<Alarm>[] }) {
  return lists.map(({ total_documents: total }, index) => {
    const severity = severities[index];
    if (total <= max_shown) return null;
    return (
      <p key={severity}>
        <Link to="/alarms" search={{ tab: 'all', severity, state: open_states, sort: 'raised_at', order: '1' }}>
          All {formatNumber(total)} open alarms of severity {severity}
        </Link>
      </p>
    );
  });
}

/** The open alarms of a device; nothing without any. */
export function OpenAlarmsOfDevice({ id }: { id: string }) {
  const isOffered = useSession().can('GET', template);
  const query = { state: open_states, sort: 'raised_at', order: 1, max: 1000 };
  const { data } = useList<Alarm>(pathOf('devices', id, 'alarms'), query, { refetch_ms, enabled: isOffered });
  if (data === undefined || data.result.length === 0) return null;
  const rankOf = ({ severity }: Alarm) => severities.indexOf(severity);
  return (
    <Panel title="Open alarms">
      <AlarmTable alarms={data.result.toSorted((left, right) => rankOf(left) - rankOf(right))} isOfDevice />
    </Panel>
  );
}

interface AlarmTableProps {
  alarms: readonly Alarm[];
  isOfDevice?: boolean;
  /** Beside other things on a page: with fewer columns, and only to look at. */
  isPreview?: boolean;
}

export function AlarmTable({ alarms, isOfDevice = false, isPreview = false }: AlarmTableProps) {
  const schema = useSession().entryOf(template);
  const { rowAction, buttonsFor, dialog } = useAnswers();
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const columns = useMemo(() => {
    const subject = isOfDevice ? [] : ['device'];
    const details = isPreview ? ['raised_at'] : ['values', 'raised_at', 'state', 'note'];
    return columnsOf<Alarm>(schema, ['severity', ...subject, 'rule', ...details], { render: renderAlarm });
  }, [schema, isOfDevice, isPreview]);
  const chosen = alarms.filter((alarm) => selected.has(keyOf(alarm)));
  return (
    <>
      {alarms.length === 0 ? (
        <p className="empty">No alarm is open.</p>
      ) : (
        <Table
          caption="Open alarms"
          columns={columns}
          entries={alarms}
          keyOf={keyOf}
          selection={rowAction && !isPreview ? { selected, onSelect: setSelected } : undefined}
          rowAction={isPreview ? undefined : rowAction}
          isDense
        />
      )}
      {chosen.length > 0 && (
        <section className="row card floating selection-bar" aria-label="Selected alarms">
          <p role="status">{countOf({ noun: 'alarm' }, chosen.length)} selected</p>
          {buttonsFor(chosen)}
          <Button kind="quiet" onClick={() => setSelected(new Set())}>
            Clear
          </Button>
        </section>
      )}
      {dialog}
    </>
  );
}

/** Counts the open alarms by severity. */
export function useOpenCounts(): Counts | undefined {
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
  const counts = useOpenCounts();
  const [critical = 0, warning = 0, info = 0] = severities.map((severity) => counts?.of(severity));
  const isShown = [critical > 0, warning > 0 && critical < max_worst, info > 0 && critical + warning < max_worst];
  const optionsOf = (index: number) => ({
    max: max_worst,
    fresh: { ...fresh, enabled: isShown[index] === true && fresh.enabled !== false },
  });
  const answers = [
    useOldest('critical', optionsOf(0)),
    useOldest('warning', optionsOf(1)),
    useOldest('info', optionsOf(2)),
  ];
  const alarms = answers.flatMap(({ data }, index) => (isShown[index] ? (data?.result ?? []) : []));
  return (
    <Panel title="Open alarms" actions={<Link to="/alarms">All open alarms</Link>}>
      {counts === undefined ? <Loading height="20rem" /> : <AlarmTable alarms={alarms.slice(0, max_worst)} isPreview />}
    </Panel>
  );
}
