import { timestamp } from '../schema/fields/number.js';
import { max_identifier_length, text } from '../schema/fields/text.js';
import { required } from '../schema/fields.js';
import { defineStored } from '../schema/resource.js';

/** The numbers of a device's data streams in one hour (docs/decisions/0035-summaries-of-hours.md). */
export const streamsummary = defineStored({
  name: 'streamsummary',
  plural: 'stream_summaries',
  hidden: {
    device: required(text(max_identifier_length)),
    at: required(timestamp()),
  },
  parentCollections: { device: 'devices' },
  isDerived: true,
  clusteredBy: ['account', 'device', 'at', 'parent'],
});
