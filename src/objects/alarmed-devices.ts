import { buildAlarmConditions } from '../resources/device/alarms.js';
import { alarm } from '../resources/index.js';
import { createRelatedFilter } from './related-devices.js';

/** Filters of devices by their open alarms. */
export const alarmFilter = createRelatedFilter({
  plural: alarm.plural,
  param: 'alarm',
  buildConditions: (params) => buildAlarmConditions(String(params.alarm)),
  toDevice: { $group: { _id: '$parent' } },
  hints: {
    byCondition: { account: 1, state: 1, raised_at: 1, _id: 1 },
    byDevice: { account: 1, device: 1, raised_at: 1, _id: 1 },
  },
});
