import { parent } from '../schema/fields/reference.js';
import { buildMessages, defineResource, description, enabled, uniqueName } from '../schema/resource.js';
import { service } from './service.js';

/** A group of assets and devices (reference/resources.md#types). */
export const group = defineResource({
  name: 'group',
  plural: 'groups',
  messages: buildMessages('Group'),
  legacy: { hasConflictMessage: true },
  example: { name: 'Hall 1', id_service: 'Cooling@demo', description: 'Northern hall', enabled: true },
  fields: {
    name: uniqueName,
    id_service: parent(service),
    description,
    enabled,
  },
});
