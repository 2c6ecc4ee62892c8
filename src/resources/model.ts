import { freeform } from '../schema/fields/freeform.js';
import { max_identifier_length, name, text } from '../schema/fields/text.js';
import { optional, required } from '../schema/fields.js';
import { buildMessages, defineResource, description, enabled } from '../schema/resource.js';

/** A device model, from which devices inherit properties (reference/resources.md#model). */
export const model = defineResource({
  name: 'model',
  plural: 'models',
  messages: buildMessages('model', 'model persisted'),
  fields: {
    name: required(name(), { filter: true }),
    description,
    properties: optional(freeform({ levels: 5 })),
    enabled,
  },
  // overrides the common field: lists of models have no filter by identifier
  readOnly: { id_developer: optional(text(max_identifier_length)) },
});
