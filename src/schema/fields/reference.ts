import { exampleOf, type Field, type Fields, type FieldType, withDocumentation } from '../fields.js';
import { identifier, max_identifier_length, text } from './text.js';

type Target = { name: string; plural: string; readOnly: Fields };

/** The field that names the parent. A resource with several such fields requires exactly one of them. */
export function parent(resource: Target): Field {
  return {
    type: identifierReference(resource, `Identifier of the ${resource.name} that holds it.`),
    presence: 'required',
    filter: true,
    references: { plural: resource.plural, parent: true },
  };
}

/** An optional field that names another resource of the account. */
export function reference(resource: Target): Field {
  return {
    type: identifierReference(resource, `Identifier of its ${resource.name}.`),
    presence: 'optional',
    filter: true,
    references: { plural: resource.plural, parent: false },
  };
}

/** An identifier in a body; a filter takes any text, which may match nothing (reference/lists.md#filters). */
function identifierReference({ readOnly }: Target, about: string): FieldType {
  const { query, schema } = text(max_identifier_length);
  const example = readOnly.id_developer && exampleOf(readOnly.id_developer.type);
  return withDocumentation({ ...identifier(), ...(query && { query }), querySchema: schema }, { about, example });
}
