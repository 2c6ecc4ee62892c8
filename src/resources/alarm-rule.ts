import { list } from '../schema/fields/list.js';
import { flag, integer } from '../schema/fields/number.js';
import { reference } from '../schema/fields/reference.js';
import { choice } from '../schema/fields/text.js';
import { required, withDefault } from '../schema/fields.js';
import { buildMessages, defaultToStored, defineResource, description, uniqueName } from '../schema/resource.js';
import { alarmCondition } from './alarm-condition.js';
import { gravityOf, type Severity, severities } from './alarm-states.js';
import { asset } from './asset.js';
import { device } from './device/index.js';
import { group } from './group.js';
import { model } from './model.js';
import { project } from './project.js';
import { savedFilter } from './saved-filter.js';
import { service } from './service.js';

const max_conditions = 5;
export const max_rules = 200;

/** The fields that say which devices a rule covers. */
const coverageFields = ['id_model', 'id_project', 'id_service', 'id_group', 'id_asset', 'id_device', 'filter'] as const;

const owner = { owner: true } as const;

/** A rule on what devices send (reference/alarms.md#rules). */
export const alarmrule = defineResource({
  name: 'alarmrule',
  plural: 'alarmrules',
  title: 'AlarmRule',
  forLimited: 'all',
  messages: buildMessages('Alarm rule'),
  example: {
    name: 'Overpressure',
    severity: 'critical',
    conditions: [{ path: 'bar', op: '>', value: 8, clear: 7 }],
    match: 'all',
    for: 60,
    id_model: 'Pump P2@demo',
    description: 'More than 8 bar for a minute',
    enabled: true,
  },
  fields: {
    name: uniqueName,
    severity: required(choice(...severities), { filter: true, about: 'Severity of its alarms.' }),
    conditions: required(list(alarmCondition(), { min: 1, max: max_conditions }), {
      about: 'What has to hold for an alarm.',
    }),
    match: withDefault(choice('all', 'any'), 'all', {
      about: '`all`: every condition has to hold; `any`: one has to.',
    }),
    for: withDefault(integer({ min: 0, max: 86_400 }), 0, {
      about: 'Seconds for which it has to hold before an alarm is raised.',
      unit: 'seconds',
    }),
    id_model: reference(model, 'It covers the devices of this model.', { protects: true }),
    id_project: reference(project, 'It covers the devices below this project.', owner),
    id_service: reference(service, 'It covers the devices below this service.', owner),
    id_group: reference(group, 'It covers the devices below this group.', owner),
    id_asset: reference(asset, 'It covers the devices of this asset.', owner),
    id_device: reference(device, 'It covers this device.', owner),
    filter: reference(savedFilter, 'It covers the devices that this saved filter selects when it looks at them.', {
      protects: true,
    }),
    description,
    enabled: withDefault(flag(), true, { filter: true, about: 'A disabled rule raises no alarms.' }),
  },
  hidden: {
    /** Number of the severity, by which lists sort. */
    gravity: required(integer()),
    /** One of `max_rules` places in the account. */
    slot: required(integer()),
  },
  sorts: { severity: ['gravity'] },
  unique: [['account', 'slot']],
  atMostOne: coverageFields,
  toStored(values, { stored }) {
    const change = defaultToStored(values);
    if (typeof values.severity === 'string') change.set.gravity = gravityOf(values.severity as Severity);
    const named = coverageFields.filter((field) => {
      const value = field in values ? values[field] : stored?.[field];
      return value !== undefined && value !== null;
    });
    if (named.length > 1)
      for (const field of named)
        if (field in values) change.faults[field] = `at most one of ${named.join(' and ')} may be set`;
    return change;
  },
});
