import { parent } from '../schema/fields/reference.js';
import { buildMessages, defineResource, description, enabled, uniqueName } from '../schema/resource.js';
import { project } from './project.js';

/** A service of a project (reference/resources.md#types). */
export const service = defineResource({
  name: 'service',
  plural: 'services',
  messages: buildMessages('Service'),
  example: { name: 'Cooling', id_project: 'Factory@demo', description: 'Cold rooms and their pumps', enabled: true },
  fields: {
    name: uniqueName,
    id_project: parent(project),
    description,
    enabled,
  },
});
