import { freeform } from '../schema/fields/freeform.js';
import { parent } from '../schema/fields/reference.js';
import { optional } from '../schema/fields.js';
import { buildMessages, defineResource, description, enabled, uniqueName } from '../schema/resource.js';
import { group } from './group.js';

/** An asset, a physical object with devices (reference/resources.md#types). */
export const asset = defineResource({
  name: 'asset',
  plural: 'assets',
  messages: buildMessages('Asset'),
  legacy: { hasConflictMessage: true },
  example: {
    name: 'Cold store',
    id_group: 'Hall 1@demo',
    description: 'Walk-in freezer',
    properties: { volume_m3: 42 },
    enabled: true,
  },
  fields: {
    name: uniqueName,
    id_group: parent(group),
    description,
    properties: optional(freeform({ levels: 5 }), { about: 'What you want to know about it.' }),
    enabled,
  },
});
