import { freeform } from '../schema/fields/freeform.js';
import { max_identifier_length, name, text } from '../schema/fields/text.js';
import { optional, required } from '../schema/fields.js';
import { buildMessages, defineResource, description, enabled } from '../schema/resource.js';

/** A device model, from which devices inherit properties (reference/resources.md#types). */
export const model = defineResource({
  name: 'model',
  plural: 'models',
  messages: buildMessages('model', 'model persisted'),
  example: { name: 'Pump P2', description: 'Two-stage pump', properties: { max_bar: 6 }, enabled: true },
  fields: {
    name: required(name(), { filter: true, about: 'Unique in the account.' }),
    description,
    properties: optional(freeform({ levels: 5 }), {
      about: 'What its devices have where they do not set the key themselves.',
    }),
    enabled,
  },
  // overrides the common field: lists of models have no filter by identifier
  readOnly: {
    id_developer: optional(text(max_identifier_length), {
      about: 'Identifier: the name at creation, `@` and the account.',
      example: 'Pump P2@demo',
    }),
  },
});
