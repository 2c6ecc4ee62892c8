import { freeform } from '../schema/fields/freeform.js';
import { max_identifier_length, name, text } from '../schema/fields/text.js';
import { optional, required } from '../schema/fields.js';
import { defineResource, description, enabled, statusMessages } from '../schema/resource.js';

/** A device model: its properties are those of its devices, where they have not set them themselves (§2.7, contract 5). */
export const model = defineResource({
  name: 'model',
  plural: 'models',
  messages: statusMessages('model', 'model persisted'),
  fields: {
    name: required(name(), { filter: true }),
    description,
    properties: optional(freeform({ levels: 5 })),
    enabled,
  },
  // §4.1: its lists have no filter by identifier
  readOnly: { id_developer: optional(text(max_identifier_length)) },
});
