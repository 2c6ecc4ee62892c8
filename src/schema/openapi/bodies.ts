import type { Field, Fields, FieldType, Schema } from '../fields.js';
import type { ListedType, Resource } from '../resource.js';

type Writable = Pick<ListedType, 'name' | 'fields' | 'readOnly'> &
  Partial<Pick<Resource, 'parents' | 'allOrNone' | 'aliases' | 'blankAsNull'>>;

const nullSchema = { type: 'null' };
const versionProperty = { type: ['integer', 'null'], minimum: 0, description: 'The version that must be stored.' };

/** The body of a create or an update. Read-only fields are accepted and ignored (reference/requests.md#body-fields). */
export function describeBody(listed: Writable, updating: boolean): Schema {
  const { name, fields, readOnly, parents = [], allOrNone = [], aliases = {}, blankAsNull = [] } = listed;
  const otherNames = Object.entries(aliases);
  const alternatives = parents.length > 1 ? [...parents, ...otherNames.map(([alias]) => alias)] : [];
  const ignored = Object.keys(readOnly).filter((key) => !(key in fields));
  const isRequired = (key: string) => fields[key]?.presence === 'required' && !alternatives.includes(key);
  const properties = Object.entries(fields).map(([key, { type, defaultValue }]) => {
    const schema = isRequired(key) ? valueSchema(type) : nullable(valueSchema(type));
    return [key, updating || defaultValue === undefined ? schema : { ...schema, default: defaultValue }];
  });
  const rules = [
    ...(alternatives.length > 0 ? [{ anyOf: alternatives.map((key) => onlyParent(key, alternatives, updating)) }] : []),
    ...(allOrNone.length > 0 && !updating ? [allOrNoneSchema(allOrNone, fields)] : []),
  ];
  return {
    title: `${name}_${updating ? 'update' : 'create'}`,
    type: 'object',
    ...(blankAsNull.length > 0 && { description: `An empty text counts as null for ${blankAsNull.join(', ')}.` }),
    properties: {
      ...Object.fromEntries(properties),
      ...Object.fromEntries(otherNames.map(([alias, field]) => [alias, aliasSchema(field, fields)])),
      ...Object.fromEntries(
        ignored.map((key) => [key, updating && key === 'version' ? versionProperty : { readOnly: true }]),
      ),
    },
    ...(!updating && { required: Object.keys(fields).filter(isRequired) }),
    additionalProperties: false,
    ...(rules.length > 0 && { allOf: rules }),
  };
}

/** Query parameters sent in a body, as JSON values or as the text of a query (reference/streams.md#deletion). */
export function describeFilters(query: ReadonlyMap<string, FieldType>): Schema {
  const properties = [...query].map(([name, type]) => {
    const schema = describeParameter(type);
    const otherForm =
      schema.type === 'string' ? { type: ['number', 'boolean'] } : { type: 'string', pattern: '^[1-9][0-9]{0,2}$' };
    return [name, { anyOf: [schema, ...('enum' in schema ? [] : [otherForm]), nullSchema] }];
  });
  return { type: 'object', properties: Object.fromEntries(properties), additionalProperties: false };
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

function valueSchema({ schema, members }: FieldType): Schema {
  if (members === undefined) return schema;
  return describeObject(
    members,
    ({ type, presence }) => (presence === 'required' ? valueSchema(type) : nullable(valueSchema(type))),
    { additionalProperties: false, ...schema },
  );
}

/** `null` counts as absent on create and unsets an optional field on update (reference/resources.md#update). */
function nullable(schema: Schema): Schema {
  if (typeof schema.type !== 'string' || 'enum' in schema || 'title' in schema) return { anyOf: [schema, nullSchema] };
  return { ...schema, type: [schema.type, 'null'] };
}

function onlyParent(parent: string, parents: readonly string[], updating: boolean): Schema {
  const others = parents.filter((key) => key !== parent).map((key) => [key, nullSchema]);
  if (updating) return { properties: Object.fromEntries(others) };
  return { required: [parent], properties: { [parent]: { type: 'string' }, ...Object.fromEntries(others) } };
}

function aliasSchema(field: string, fields: Fields): Schema {
  const { type } = fields[field] ?? {};
  return { ...nullable(type === undefined ? {} : valueSchema(type)), description: `Another name of \`${field}\`.` };
}

function allOrNoneSchema(keys: readonly string[], fields: Fields): Schema {
  const types = keys.map((key) => [key, { type: fields[key]?.type.schema.type }]);
  return {
    anyOf: [
      { required: keys, properties: Object.fromEntries(types) },
      { properties: Object.fromEntries(keys.map((key) => [key, nullSchema])) },
    ],
  };
}
