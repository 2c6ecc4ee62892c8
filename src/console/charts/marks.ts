import { pathOf } from '../api/client.js';
import { useList, useSession } from '../api/hooks.js';
import type { Alarm, Device } from '../api/interface.js';
import { shortenId } from '../api/names.js';
import { type Entry, shownStatusOf, statusLabels } from '../api/resources.js';

/** Something that happened to a device, marked in its charts. */
export interface Mark {
  id: string;
  at: number;
  text: string;
  /** The alarm that the mark shows as a band. */
  alarm?: Pick<Alarm, 'severity' | 'closed_at'> & { paths: readonly string[] };
}

const refetch_ms = 10_000;
const max_marks = 200;

/** Reads the alarms and the changes of status and configuration of a device, within a span whose end may be open. */
export function useMarks({ id_developer, last_status_at }: Device, at_from: number, at_to: number | undefined): Mark[] {
  const { can } = useSession();
  const query = { id_developer, at_from, at_to, max: max_marks, fields: 'id,at,type,data' };
  const events = useList<Entry>('/events/', query, { enabled: can('GET', '/events/'), refetch_ms });
  const raised = { raised_at_to: at_to, sort: 'raised_at', order: -1, max: max_marks };
  const hasAlarms = can('GET', '/devices/{device_id_developer}/alarms/');
  const alarms = useList<Alarm>(pathOf('devices', id_developer, 'alarms'), raised, { enabled: hasAlarms, refetch_ms });
  return [
    ...(alarms.data?.result ?? []).filter(({ closed_at = at_from }) => closed_at >= at_from).map(markAlarm),
    ...(events.data?.result ?? []).flatMap(({ id, at, type, data: details }) => {
      const text = describe(String(type), (details ?? {}) as Entry, last_status_at);
      return text === undefined ? [] : [{ id: String(id), at: Number(at), text }];
    }),
  ];
}

function markAlarm({ id, rule, severity, values, raised_at, closed_at }: Alarm): Mark {
  const text = `${severity} alarm ${shortenId(rule)}, ${closed_at === undefined ? 'open' : 'closed'}`;
  const paths = Object.keys(values).filter((path) => path !== 'status');
  return { id, at: raised_at, text, alarm: { severity, paths, ...(closed_at !== undefined && { closed_at }) } };
}

function describe(type: string, { from, to, name, version }: Entry, last_status_at?: number): string | undefined {
  const labelOf = (status: unknown) => statusLabels[shownStatusOf({ status, last_status_at })];
  if (type === 'device.status_changed') return `${labelOf(from)} → ${labelOf(to)}`;
  if (type === 'deviceconfig.created') return `${name} ${version} stored`;
  const [, outcome] = /^config\.(\w+)$/.exec(type) ?? [];
  return outcome && `${name} ${version} ${outcome}`;
}
