import type { Field, Fields, FieldType, Schema } from '../fields.js';
import type { ListedType, Resource } from '../resource.js';

type Writable = Pick<ListedType, 'title' | 'fields' | 'example'> &
  Partial<Pick<Resource, 'parents' | 'allOrNone' | 'atMostOne' | 'legacy' | 'versioned' | 'readOnly'>>;

/**
 * The body of a create or an update, with its example. Code generators misread conditions between fields, branches and
 * mixed types, so the schema is flat and its descriptions state these rules (reference/requests.md#body-fields).
 */
export function describeBody(listed: Writable, updating: boolean): Schema {
  const { title, fields, example, parents = [], legacy, versioned = false, readOnly = {} } = listed;
  const { version } = readOnly;
  const isNeeded = (key: string) =>
    fields[key]?.presence === 'required' && !(parents.length > 1 && parents.includes(key));
  const properties = Object.entries(fields).map(([key, field]): [string, Schema] => {
    const schema = updating ? valueSchema(field.type) : describeDefault(field);
    return [key, isNeeded(key) ? schema : allowNull(schema, field.type)];
  });
  const schemas = new Map(properties);
  const otherNames = Object.entries(legacy?.aliases ?? {}).map(([alias, key]) => [
    alias,
    describeAlias(key, schemas.get(key) ?? {}),
  ]);
  return {
    title: title + (updating ? 'Update' : 'Create'),
    type: 'object',
    description: bodyRules(listed, updating).join(' '),
    properties: {
      ...Object.fromEntries([...properties, ...otherNames]),
      ...(updating && versioned && version && { version: allowNull(version.type.schema, version.type) }),
    },
    ...(!updating && { required: Object.keys(fields).filter(isNeeded) }),
    additionalProperties: false,
    // changes that every resource takes
    examples: [updating ? { description: example.description, enabled: example.enabled } : example],
  };
}

/** The rules of a body that its schema does not hold. */
function bodyRules(listed: Writable, updating: boolean): string[] {
  const { parents = [], allOrNone = [], atMostOne = [], legacy: { blankAsNull = [] } = {}, readOnly = {} } = listed;
  return [
    updating ? 'The fields to change; all others keep their value.' : 'The fields of the new object.',
    ...(parents.length > 1 ? [`${updating ? 'At most' : 'Exactly'} one of ${namesOf(parents)} is given.`] : []),
    ...(allOrNone.length > 0 ? [`${namesOf(allOrNone)} come together.`] : []),
    ...(atMostOne.length > 0 ? [`At most one of ${namesOf(atMostOne)} is given.`] : []),
    ...(blankAsNull.length > 0 ? [`An empty text counts as \`null\` for ${namesOf(blankAsNull)}.`] : []),
    ...(updating ? ['`null` removes an optional field, and restores a default.'] : ['`null` counts as absent.']),
    ...(Object.keys(readOnly).length > 0 ? ['Fields that only the service writes are accepted and ignored.'] : []),
  ];
}

function describeAlias(key: string, schema: Schema): Schema {
  return { ...schema, description: `Another name of \`${key}\`.`, 'x-alias-of': key };
}

function namesOf(keys: readonly string[]): string {
  return keys.map((key) => `\`${key}\``).join(' and ');
}

function describeDefault({ type, defaultValue }: Field): Schema {
  const schema = valueSchema(type);
  if (defaultValue === undefined) return schema;
  return { ...schema, description: `${schema.description ?? ''} Default: \`${defaultValue}\`.`.trimStart() };
}

/** A client can unset a field only if its type has null; generators read it beside a scalar type, but in no branch. */
function allowNull(schema: Schema, { query }: FieldType): Schema {
  return query === undefined || 'enum' in schema ? schema : { ...schema, type: [schema.type, 'null'] };
}

/** The value of a query parameter, which is never empty (reference/requests.md#parameters). */
export function describeParameter({ querySchema, schema }: FieldType): Schema {
  return querySchema ?? (schema.minLength === 0 ? { ...schema, minLength: 1 } : schema);
}

/** An object with these members; `more` adds keywords or replaces `required`. */
export function describeObject(members: Fields, schemaOf: (field: Field) => Schema, more: Schema = {}): Schema {
  return {
    type: 'object',
    properties: Object.fromEntries(Object.entries(members).map(([key, field]) => [key, schemaOf(field)])),
    required: Object.keys(members).filter((key) => members[key]?.presence === 'required'),
    ...more,
  };
}

/** An object with these properties and no others; all are required unless `more` says which. */
export function describeClosed(title: string, description: string, properties: Schema, more: Schema = {}): Schema {
  const required = Object.keys(properties);
  return { title, type: 'object', description, properties, required, additionalProperties: false, ...more };
}

/** The value of a field, as bodies have it. */
function valueSchema({ schema, members }: FieldType): Schema {
  if (members === undefined) return schema;
  return describeObject(members, ({ type }) => valueSchema(type), { additionalProperties: false, ...schema });
}
