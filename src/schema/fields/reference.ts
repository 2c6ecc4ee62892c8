import type { Field, FieldType } from '../fields.js';
import { identifier, identifierText } from './text.js';

/** The field that names the parent. A resource with several such fields requires exactly one of them. */
export function parent(resource: { plural: string }): Field {
  return {
    type: identifierReference(),
    presence: 'required',
    filter: true,
    references: { plural: resource.plural, parent: true },
  };
}

/** An optional field that names another resource of the account. */
export function reference(resource: { plural: string }): Field {
  return {
    type: identifierReference(),
    presence: 'optional',
    filter: true,
    references: { plural: resource.plural, parent: false },
  };
}

/** An identifier in a body; a filter takes any text, which may match nothing (reference/lists.md#filters). */
function identifierReference(): FieldType {
  const { body, schema } = identifier();
  return { ...identifierText(), body, schema };
}
