import { Link } from '@tanstack/react-router';
import { useMemo, useState } from 'react';
import { pathOf } from '../api/client.js';
import { useList, useSession } from '../api/hooks.js';
import type { Alarm } from '../api/interface.js';
import { countOf, severities } from '../api/resources.js';
import { formatNumber } from '../lib/format.js';
import { Button } from '../ui/button.js';
import { Loaded, Panel } from '../ui/page.js';
import { columnsOf, Table } from '../ui/table.js';
import { ReadAt } from '../ui/value.js';
import { useAnswers } from './answer-dialog.js';
import { keyOf, max_shown, open_states, refetch_ms, renderAlarm, useOldest } from './worst-alarms.js';

const template = '/alarms/';

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
          {lists.map(({ total_documents: total }, index) => {
            const severity = severities[index];
            if (total <= max_shown) return null;
            // those for which the table has no room
            return (
              <p key={severity}>
                <Link to="/alarms" search={{ tab: 'all', severity, state: open_states, sort: 'raised_at', order: '1' }}>
                  All {formatNumber(total)} open alarms of severity {severity}
                </Link>
              </p>
            );
          })}
          <ReadAt at_ms={Math.min(...answers.map(({ dataUpdatedAt }) => dataUpdatedAt))} />
        </>
      )}
    </Loaded>
  );
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
}

function AlarmTable({ alarms, isOfDevice = false }: AlarmTableProps) {
  const schema = useSession().entryOf(template);
  const { rowAction, buttonsFor, dialog } = useAnswers();
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const columns = useMemo(() => {
    const subject = isOfDevice ? [] : ['device'];
    const details = ['values', 'raised_at', 'state', 'note'];
    return columnsOf<Alarm>(schema, ['severity', ...subject, 'rule', ...details], { render: renderAlarm });
  }, [schema, isOfDevice]);
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
          selection={rowAction ? { selected, onSelect: setSelected } : undefined}
          rowAction={rowAction}
          isDense
        />
      )}
      {chosen.length > 0 && (
        <section className="row card floating selection-bar" aria-label="Selected alarms">
          <p role="status">{countOf({ noun: 'alarm' }, chosen.length)} selected</p>
          {buttonsFor(chosen)}
          <Button label="Clear" kind="quiet" onClick={() => setSelected(new Set())} />
        </section>
      )}
      {dialog}
    </>
  );
}
