import { timestamp } from '../schema/fields/number.js';
import { max_identifier_length, text } from '../schema/fields/text.js';
import { internal, required } from '../schema/fields.js';
import { defineStored } from '../schema/resource.js';

/**
 * The last value of a device at a path that lists filter by (reference/lists.md#paths): of the data stream with the greatest
 * `at` that has the path and whose time has come. MongoDB orders numbers before texts before booleans, as lists do.
 */
export const devicevalue = defineStored({
  name: 'devicevalue',
  plural: 'device_values',
  hidden: {
    device: required(text(max_identifier_length)),
    /** Internal id of the path in `measured_paths`. */
    path: required(internal()),
    /** Number, text or boolean; null for everything else. */
    value: required(internal()),
    at: required(timestamp()),
    /** The number of the stream: of equal times the greatest counts. */
    n: required(internal()),
    /** Differs after every write. */
    revision: required(internal()),
  },
  parentCollections: { device: 'devices' },
  isDerived: true,
  indexes: [['path', 'value', 'parent'], ['parent']],
});

/** Devices whose values are to be computed again from their streams, once `due_at` has come. */
export const valuereview = defineStored({
  name: 'valuereview',
  plural: 'device_value_reviews',
  hidden: { devices: required(internal('ids')), due_at: required(timestamp()), revision: required(internal()) },
  indexes: [['due_at']],
});
