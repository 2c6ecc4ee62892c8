import { type Entry, findTypeByName, shownStatusOf } from '../api/resources.js';
import { labelOf } from '../lib/format.js';
import { ObjectLink } from '../ui/address.js';
import { SeverityBadge, StatusBadge, Value } from '../ui/value.js';

/** A link to the object of an event, of an alarm to its device, unless it is of a type without a page, or gone. */
function EventSubject({ entry }: { entry: Entry }) {
  const plural = entry.resource === 'alarm' ? 'devices' : findTypeByName(entry.resource)?.plural;
  const id = String(entry.id_developer ?? '');
  const isGone = String(entry.type).endsWith('.deleted');
  return plural === undefined || isGone ? id : <ObjectLink plural={plural} id={id} />;
}

/**
 * Details of an event: an alarm, both statuses, the fields that were changed, or its data as they are.
 * @param isWithoutStatus true if the device has never sent a status; undefined: not known
 */
export function EventData({ entry: { data }, isWithoutStatus }: { entry: Entry; isWithoutStatus?: boolean }) {
  const { from, to, changed, severity, rule, ...rest } = (data ?? {}) as Entry;
  const badgeOf = (status: string, other: string) =>
    isWithoutStatus === undefined && status === 'no_status' && other === 'disconnected' ? (
      <span className="badge">Sends data, no status</span>
    ) : (
      <StatusBadge status={isWithoutStatus ? shownStatusOf({ status }) : status} />
    );
  if (typeof from === 'string' && typeof to === 'string')
    return (
      <span className="transition">
        {badgeOf(from, to)} → {badgeOf(to, from)}
      </span>
    );
  if (typeof severity === 'string' && typeof rule === 'string')
    return (
      <>
        <SeverityBadge severity={severity} /> <ObjectLink plural="alarmrules" id={rule} />
      </>
    );
  if (Array.isArray(changed) && changed.length > 0) return changed.map((field) => labelOf(String(field))).join(', ');
  const texts = Object.values(rest).filter((value) => typeof value === 'string');
  return texts.join(', ') || <Value field="data" value={data} />;
}

/** Cells of the table of events. */
export const renderEvent = {
  id_developer: (entry: Entry) => <EventSubject entry={entry} />,
  data: (entry: Entry) => <EventData entry={entry} />,
};
