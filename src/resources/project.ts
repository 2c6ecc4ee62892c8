import { name, text } from '../schema/fields/text.js';
import { required } from '../schema/fields.js';
import { buildMessages, defineResource, description, enabled } from '../schema/resource.js';

/** A project, the top of the hierarchy (reference/resources.md#project). */
export const project = defineResource({
  name: 'project',
  plural: 'projects',
  messages: buildMessages('Project'),
  fields: {
    name: required(name(), { filter: true }),
    id_customer: required(text(50), { filter: true }),
    description,
    enabled,
  },
});
