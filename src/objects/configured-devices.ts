import { buildEntryConditions } from '../resources/device/configs.js';
import { devicestate } from '../resources/index.js';
import { createRelatedFilter } from './related-devices.js';

/** Index of states by their configuration files. */
export const statesByEntry = {
  account: 1,
  'configs.name': 1,
  'configs.status': 1,
  'configs.desired': 1,
  'configs.reported': 1,
} as const;

/** Index of states by their devices. */
export const statesByDevice = { account: 1, device: 1 } as const;

/** Filters of devices by a configuration file. A device has one state. */
export const configFilter = createRelatedFilter({
  plural: devicestate.plural,
  param: 'config',
  buildConditions: (params) => ({ configs: { $elemMatch: buildEntryConditions(params) } }),
  toDevice: { $project: { _id: '$parent' } },
  hints: { byCondition: statesByEntry, byDevice: statesByDevice },
});
