import { parent } from '../schema/fields/reference.js';
import { name } from '../schema/fields/text.js';
import { required } from '../schema/fields.js';
import { buildMessages, defineResource, description, enabled } from '../schema/resource.js';
import { service } from './service.js';

/** A group of assets and devices (reference/resources.md#types). */
export const group = defineResource({
  name: 'group',
  plural: 'groups',
  messages: buildMessages('Group'),
  legacy: { hasConflictMessage: true },
  example: { name: 'Hall 1', id_service: 'Cooling@demo', description: 'Northern hall', enabled: true },
  fields: {
    name: required(name(), { filter: true, about: 'Unique in the account.' }),
    id_service: parent(service),
    description,
    enabled,
  },
});
