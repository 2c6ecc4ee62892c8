import { parent } from '../schema/fields/reference.js';
import { name } from '../schema/fields/text.js';
import { required } from '../schema/fields.js';
import { defineResource, description, enabled, statusMessages } from '../schema/resource.js';
import { service } from './service.js';

/** A group of assets and devices (reference/resources.md#group). */
export const group = defineResource({
  name: 'group',
  plural: 'groups',
  messages: statusMessages('Group'),
  conflict: 'message',
  fields: {
    name: required(name(), { filter: true }),
    id_service: parent(service),
    description,
    enabled,
  },
});
