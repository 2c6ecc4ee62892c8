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

/** An optional field that names another resource of the account. */
export function reference(resource: Target): Field {
  return {
    type: identifierReference(resource, `Identifier of its ${resource.name}.`),
    presence: 'optional',
    filter: true,
    references: { plural: resource.plural, parent: false, ancestors: [] },
  };
}

/** An optional field that names the object with which the resource is deleted, at any level of the hierarchy. */
export function ownerReference(resource: Target, about: string): Field {
  return dependentReference(resource, about, { owner: true });
}

/** An optional field that names an object which cannot be deleted as long as the resource names it. */
export function protectingReference(resource: Target, about: string): Field {
  return dependentReference(resource, about, { protects: true });
}

function dependentReference(resource: Target, about: string, kind: { owner: true } | { protects: true }): Field {
  const { type, ...field } = reference(resource);
  const references = { plural: resource.plural, parent: false, ...kind, ancestors: [] };
  return { ...field, type: aboutIdentifier(type, about), references };
}

/** Replaces what the documents say of an identifier. */
export function aboutIdentifier(type: FieldType, about: string): FieldType {
  const { description: _replaced, ...schema } = type.schema;
  const { description: _alsoReplaced, ...querySchema } = type.querySchema ?? {};
  return withDocumentation({ ...type, schema, querySchema }, { about });
}

/** A hidden list of internal ids, which no client writes. */
export function internalIds(): FieldType {
  return { body: (value) => value, stored: 'ids', schema: { type: 'array' } };
}

/** A hidden internal id, which no client writes. */
export function internalId(): FieldType {
  return { body: (value) => value, stored: 'object', schema: {} };
}

/** An identifier in a body; a filter takes any text, which may match nothing (reference/lists.md#filters). */
function identifierReference({ plural, readOnly }: Target, about: string): FieldType {
  const { body, schema } = identifier();
  const example = readOnly.id_developer && exampleOf(readOnly.id_developer.type);
  return withDocumentation({ ...identifierText(), body, schema }, { about, example, references: plural });
}
