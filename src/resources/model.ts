import { freeform } from '../schema/fields/freeform.js';
import { list } from '../schema/fields/list.js';
import { integer } from '../schema/fields/number.js';
import { max_identifier_length, text } from '../schema/fields/text.js';
import { type Field, optional } from '../schema/fields.js';
import {
  buildMessages,
  defaultToStored,
  defineResource,
  description,
  enabled,
  uniqueName,
} from '../schema/resource.js';
import { filterPathsOf, measureList } from './measure.js';
import { deriveHidden, findSuffixedPaths, suffixedPaths } from './suffixed-paths.js';

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

/** A device model, from which devices inherit properties (reference/resources.md#types). */
export const model = defineResource({
  name: 'model',
  plural: 'models',
  forLimited: 'all',
  messages: buildMessages('model', 'model persisted'),
  example: {
    name: 'Pump P2',
    description: 'Two-stage pump',
    properties: { max_bar: 6 },
    measures: [{ path: 'bar', name: 'Pressure', unit: 'bar', decimals: 1, type: 'number', filter: true }],
    enabled: true,
  },
  fields: {
    name: uniqueName,
    description,
    properties: optional(freeform({ levels: 5 }), {
      about: 'What its devices have where they do not set the key themselves.',
    }),
    measures: optional(measureList(), { about: 'What its devices send.' }),
    stream_retention_days: streamRetention,
    summary_retention_days: summaryRetention,
    enabled,
  },
  // pointers of the measures that lists filter by
  hidden: { filter_paths: optional(list(text(1000), { max: 10 })), suffixed_paths: suffixedPaths },
  indexes: [['account', 'filter_paths']],
  toStored(values) {
    const change = deriveHidden(defaultToStored(values), 'measures', 'filter_paths', filterPathsOf);
    return deriveHidden(change, 'properties', 'suffixed_paths', findSuffixedPaths);
  },
  // overrides the common field: lists of models have no filter by identifier
  readOnly: {
    id_developer: optional(text(max_identifier_length), {
      about: 'Identifier: the name at creation, `@` and the account.',
      example: 'Pump P2@demo',
    }),
  },
});
