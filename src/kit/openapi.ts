import type { Fields, Schema } from './fields.js';
import type { Listed } from './resource.js';

/** The body of a create or an update of `listed`; what is read-only is accepted and ignored (contract 5). */
export function bodySchema({ fields, readOnly }: Pick<Listed, 'fields' | 'readOnly'>, updating: boolean): Schema {
  const ignored = Object.keys(readOnly).filter((key) => !(key in fields));
  return {
    type: 'object',
    properties: {
      ...Object.fromEntries(ignored.map((key) => [key, { readOnly: true }])),
      ...Object.fromEntries(Object.entries(fields).map(([key, field]) => [key, nullable(field.kind.schema)])),
    },
    ...(!updating && { required: requiredOf(fields) }),
    additionalProperties: false,
  };
}

function requiredOf(fields: Fields): string[] {
  return Object.keys(fields).filter((key) => fields[key]?.presence === 'required');
}

function nullable(schema: Schema): Schema {
  return { anyOf: [schema, { type: 'null' }] };
}
