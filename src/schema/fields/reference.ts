import {
  type AncestorLevel,
  exampleOf,
  type Field,
  type Fields,
  type FieldType,
  withDocumentation,
} from '../fields.js';
import { identifier, identifierText } from './text.js';

type Target = { name: string; plural: string; readOnly: Fields; ancestors: readonly AncestorLevel[] };

/** The field that names the parent. A resource with several such fields requires exactly one of them. */
export function parent(resource: Target): Field {
  return {
    type: identifierReference(resource, `Identifier of the ${resource.name} that holds it.`),
    presence: 'required',
    filter: true,
    references: { plural: resource.plural, parent: true, ancestors: resource.ancestors },
  };
}

/** Deletions of the named object: it takes the resource with it (`owner`), or is refused (`protects`). */
type Dependence = Pick<NonNullable<Field['references']>, 'owner' | 'protects'>;

/** An optional field that names another resource of the account. */
export function reference(resource: Target, about?: string, dependence: Dependence = {}): Field {
  return {
    type: identifierReference(resource, about ?? `Identifier of its ${resource.name}.`, about === undefined),
    presence: 'optional',
    filter: true,
    references: { plural: resource.plural, parent: false, ...dependence, ancestors: [] },
  };
}

/** An identifier in a body; a filter takes any text, which may match nothing (reference/lists.md#filters). */
function identifierReference({ plural, readOnly }: Target, about: string, hasHint = true): FieldType {
  const { body, schema: hinted } = identifier();
  const { description: _hint, ...schema } = hinted;
  const example = readOnly.id_developer && exampleOf(readOnly.id_developer.type);
  const type = { ...identifierText(), body, schema: hasHint ? hinted : schema };
  return withDocumentation(type, { about, example, references: plural });
}
