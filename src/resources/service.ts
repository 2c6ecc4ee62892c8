import { parent } from '../schema/fields/reference.js';
import { name } from '../schema/fields/text.js';
import { required } from '../schema/fields.js';
import { buildMessages, defineResource, description, enabled } from '../schema/resource.js';
import { project } from './project.js';

/** A service of a project (reference/resources.md#types). */
export const service = defineResource({
  name: 'service',
  plural: 'services',
  messages: buildMessages('Service'),
  example: { name: 'Cooling', id_project: 'Factory@demo', description: 'Cold rooms and their pumps', enabled: true },
  fields: {
    name: required(name(), { filter: true, about: 'Unique in the account.' }),
    id_project: parent(project),
    description,
    enabled,
  },
});
