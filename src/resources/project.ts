import { text } from '../schema/fields/text.js';
import { required } from '../schema/fields.js';
import { buildMessages, defineResource, description, enabled, uniqueName } from '../schema/resource.js';

/** A project, the top of the hierarchy (reference/resources.md#types). */
export const project = defineResource({
  name: 'project',
  plural: 'projects',
  messages: buildMessages('Project'),
  example: { name: 'Factory', id_customer: 'c-1001', description: 'Plant at the harbour', enabled: true },
  fields: {
    name: uniqueName,
    id_customer: required(text(50), { filter: true, about: 'Your own identifier of the customer.' }),
    description,
    enabled,
  },
});
