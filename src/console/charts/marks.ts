import { useList } from '../api/queries.js';
import { type DeviceStatus, type Entry, statusLabels } from '../api/resources.js';
import { useSession } from '../api/session.js';

/** Something that happened to a device, marked in its charts. */
export interface Mark {
  id: string;
  at: number;
  text: string;
}

const refetch_ms = 10_000;
const max_marks = 200;

/** Reads the changes of status and configuration of a device, within a span whose end may be open. */
export function useMarks(id_developer: string, at_from: number, at_to: number | undefined): Mark[] {
  const query = { id_developer, at_from, at_to, max: max_marks, fields: 'id,at,type,data' };
  const isAllowed = useSession().can('GET', '/events/');
  const { data } = useList<Entry>('/events/', query, { enabled: isAllowed, refetch_ms });
  return (data?.result ?? []).flatMap(({ id, at, type, data: details }) => {
    const text = describe(String(type), (details ?? {}) as Entry);
    return text === undefined ? [] : [{ id: String(id), at: Number(at), text }];
  });
}

function describe(type: string, { from, to, name, version }: Entry): string | undefined {
  const labelOf = (status: unknown) => statusLabels[status as DeviceStatus] ?? String(status);
  if (type === 'device.status_changed') return `${labelOf(from)} → ${labelOf(to)}`;
  if (type === 'deviceconfig.created') return `${name} ${version} stored`;
  const [, outcome] = /^config\.(\w+)$/.exec(type) ?? [];
  return outcome && `${name} ${version} ${outcome}`;
}
