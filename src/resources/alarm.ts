import { freeform } from '../schema/fields/freeform.js';
import { commaSeparated } from '../schema/fields/list.js';
import { flag, integer, recordedTime, timestamp } from '../schema/fields/number.js';
import { choice, identifierText, text } from '../schema/fields/text.js';
import { type Field, internal, optional, required, type Values, withDocumentation } from '../schema/fields.js';
import { defineFilter, type Filter } from '../schema/filters.js';
import { defineListed, defineStored } from '../schema/resource.js';
import { type AlarmState, alarmStates, severities } from './alarm-states.js';

/** An id, as examples show it. */
export const alarmId = '01a201a7-a8d1-798a-9484-a211201349cf';

/** Reports whether a value is a state of an alarm. */
export function isAlarmState(value: unknown): value is AlarmState {
  return (alarmStates as readonly unknown[]).includes(value);
}

/** All that can be chosen, in the order of the states; another order is taken too. */
const stateLists: string[] = [];
for (const state of alarmStates) stateLists.push(state, ...stateLists.map((list) => `${list},${state}`));
const stateHint = `different ones of ${alarmStates.join(', ')}, separated by commas`;

const byState: Filter = {
  ...defineFilter('state', 'state', choice(...alarmStates)),
  params: {
    state: withDocumentation(
      commaSeparated(choice(...stateLists), {
        parse: (word) => (isAlarmState(word) ? word : undefined),
        hint: stateHint,
        max: alarmStates.length,
      }),
      { about: `Only alarms in one of these states: ${stateHint}.`, example: 'active' },
    ),
  },
  conditions: ({ state }) => ({ state: { $in: state as readonly string[] } }),
};

const ancestor = (name: string, presence: typeof required, example: string): Field =>
  presence(identifierText(), {
    filter: true,
    about: `The ${name} that the device belonged to, directly or through others, when the alarm was raised.`,
    example,
  });

/** Matches the alarms of the devices that a limited key sees. */
export function buildPlaceFilter({ field, id_developer }: { field: string; id_developer: string }): Values {
  return { [field === 'id_device' ? 'device' : field]: { $eq: id_developer } };
}

/**
 * An alarm (reference/alarms.md#alarm-fields). The document of a rule and device is `is_current` from the moment at which one of the
 * conditions is met; it has an `account`, and so is listed, from the moment at which the alarm is raised.
 */
export const alarm = defineListed({
  name: 'alarm',
  plural: 'alarms',
  example: { note: 'Valve replaced' },
  fields: {
    state: required(choice(...alarmStates), {
      about: '`active`, `acknowledged`, or `closed`. An update can acknowledge and close.',
      example: 'acknowledged',
    }),
    note: optional(text(200, { min: 0 }), { about: 'Any text.' }),
  },
  readOnly: {
    id: required(text(36), { about: 'Identifies the alarm.', example: alarmId }),
    rule: required(identifierText(), { filter: true, about: 'Identifier of its rule.', example: 'Overpressure@demo' }),
    device: required(identifierText(), { filter: true, about: 'Identifier of its device.', example: 'Pump@demo' }),
    severity: required(choice(...severities), {
      filter: true,
      about: 'Severity of the rule when it was raised.',
      example: 'critical',
    }),
    values: required(freeform({ levels: 16 }), {
      about: 'The last values that the conditions saw, by path, when it was raised; of texts the first 200 characters.',
      example: { bar: 8.4 },
    }),
    at: optional(timestamp(), { about: '`at` of the stream that raised it; absent where a deadline did.' }),
    raised_at: required(recordedTime(), { filter: true, about: 'When it was raised.' }),
    acknowledged_at: optional(recordedTime(), { about: 'When it was acknowledged.' }),
    acknowledged_by: optional(text(50), { about: 'The user who acknowledged it.', example: 'admin' }),
    closed_at: optional(recordedTime(), { about: 'When it was closed.' }),
    closed_by: optional(text(50), { about: 'The user who closed it; absent where the service did.', example: 'admin' }),
    id_project: ancestor('project', required, 'Factory@demo'),
    id_service: ancestor('service', required, 'Cooling@demo'),
    id_group: ancestor('group', optional, 'Hall 1@demo'),
    id_asset: ancestor('asset', optional, 'Chiller 3@demo'),
  },
  hidden: {
    /** Number of the severity, by which lists sort; set with it. */
    gravity: optional(integer()),
    /** The account, also before the alarm is raised. */
    tenant: required(text(60)),
    rule_id: required(internal()),
    /** A digest of the conditions that `met` is of. */
    conditions_key: required(text(43)),
    ancestors: required(internal('ids')),
    is_current: optional(flag()),
    /** Unique: of a rule and a device one document at most is current. */
    watch_key: required(text(80)),
    /** Which conditions were met when they were last looked at. */
    met: optional(internal()),
    /** When the path of each condition on absence was last received. */
    seen: optional(internal()),
    /** Since when the rule holds. */
    since: optional(timestamp()),
    /** When it has to be looked at again without a stream. */
    due_at: optional(timestamp()),
    /** Another one after each write, which is conditional on the one before. */
    revision: required(integer()),
  },
  forLimited: buildPlaceFilter,
  filters: [byState],
  unique: [['watch_key']],
  indexes: [
    ['parent', 'is_current'],
    ['tenant', 'rule', 'is_current', '_id'],
    ['tenant', 'device', 'is_current', '_id'],
    ['ancestors', 'is_current', '_id'],
    ['due_at', 'tenant'],
    ['closed_at'],
  ],
  defaultSort: 'raised_at',
  sorts: { severity: ['gravity'] },
  events: { named: ['alarm.raised', 'alarm.acknowledged', 'alarm.closed'] },
});

/** A device that has sent streams of the future, which count when their time has come. Its `_id` is that of the device. */
export const alarmdevice = defineStored({
  name: 'alarmdevice',
  plural: 'alarm_devices',
  hidden: { due_at: required(timestamp()) },
  indexes: [['due_at', 'account']],
});

/** A request to look at records and devices after a change of rules, devices, or what is above them. */
export const alarmscan = defineStored({
  name: 'alarmscan',
  plural: 'alarm_scans',
  hidden: { due_at: required(timestamp()) },
  indexes: [['due_at', 'account']],
});
