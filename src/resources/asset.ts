import { freeform } from '../schema/fields/freeform.js';
import { parent } from '../schema/fields/reference.js';
import { name } from '../schema/fields/text.js';
import { optional, required } from '../schema/fields.js';
import { buildMessages, defineResource, description, enabled } from '../schema/resource.js';
import { group } from './group.js';

/** An asset, a physical object with devices (reference/resources.md#asset). */
export const asset = defineResource({
  name: 'asset',
  plural: 'assets',
  messages: buildMessages('Asset'),
  conflict: 'message',
  fields: {
    name: required(name(), { filter: true }),
    id_group: parent(group),
    description,
    properties: optional(freeform({ levels: 5 })),
    enabled,
  },
});
