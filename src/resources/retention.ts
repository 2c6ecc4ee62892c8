import { integer } from '../schema/fields/number.js';
import { type Field, optional } from '../schema/fields.js';

/** Days after which summaries are removed (reference/series.md#summaries). */
export const summaryRetention: Field = optional(integer({ min: 1, max: 36_500 }), {
  about: 'Days after which summaries of removed streams are removed. That of a device wins over that of its model.',
  unit: 'days',
  example: 3650,
});

/** Days after which streams are removed (reference/streams.md#retention). */
export const streamRetention: Field = optional(integer({ min: 1, max: 36_500 }), {
  about: 'Days after which streams are removed, by `at`. That of a device wins over that of its model.',
  unit: 'days',
  example: 365,
});
