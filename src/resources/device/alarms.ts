import { integer } from '../../schema/fields/number.js';
import { object } from '../../schema/fields/object.js';
import { choice } from '../../schema/fields/text.js';
import { optional, required, withDocumentation } from '../../schema/fields.js';
import type { Conditions, Filter } from '../../schema/filters.js';
import { openStates, severities } from '../alarm-states.js';

/** Devices by their open alarms, which are looked up before the list is read. */
export const byAlarm: Filter = {
  params: {
    alarm: withDocumentation(choice('open', ...openStates, ...severities), {
      about: 'Only devices that have an alarm that is open, in this open state, or open with this severity.',
      example: 'critical',
    }),
  },
  index: { paths: ['id_developer'] },
  conditions: () => ({}),
};

/** Conditions on alarms for a value of the filter. */
export function buildAlarmConditions(kind: string): Conditions {
  const isState = openStates.some((state) => state === kind);
  return {
    state: { $in: isState ? [kind] : openStates },
    ...(!isState && kind !== 'open' && { severity: { $eq: kind } }),
  };
}

const counts = Object.fromEntries(
  severities.map((severity) => [
    severity,
    required(integer({ min: 0 }), { about: `Number of its open alarms that are \`${severity}\`.`, example: 1 }),
  ]),
);
const about = 'The numbers of its open alarms. Only where `fields` names it.';

/** The open alarms of a device (reference/devices.md#open-alarms). */
export const openAlarms = optional(object(counts, undefined, { title: 'OpenAlarms', description: about }), {
  requested: true,
});
