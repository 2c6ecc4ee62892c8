import { freeform } from '../../schema/fields/freeform.js';
import { timestamp } from '../../schema/fields/number.js';
import { object } from '../../schema/fields/object.js';
import { optional, required } from '../../schema/fields.js';

/** Values of `data` that `latest` shows at most. */
export const max_latest_leaves = 100;

const members = {
  at: required(timestamp(), { about: 'When they were measured.', example: 1700000000.25 }),
  data: required(freeform({ levels: 16 }), {
    about: `The first ${max_latest_leaves} values, or those at the paths that \`fields\` names.`,
    example: { bar: 2.4, valve: 'open' },
  }),
};
const about =
  'The last data stream, `at` now or before. Only where `fields` names it, as `latest` or for one path as `latest.bar`.';

/** The last data stream of a device (reference/devices.md#latest-values). */
export const latest = optional(
  { ...object(members, undefined, { title: 'LatestValues', description: about }), leadsTo: 'data' },
  { requested: true },
);
