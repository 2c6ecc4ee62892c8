import type { FieldErrors } from '../errors.js';

/** A JSON Schema (2020-12), as OpenAPI 3.1 uses it. */
export type Schema = Readonly<Record<string, unknown>>;

/** Representation in MongoDB: `freeform` is opaque JSON, `ids` are internal ids, `computed` is not stored under the field's name. */
export type StorageKind =
  | 'string'
  | 'number'
  | 'boolean'
  | 'object'
  | 'freeform'
  | 'binary'
  | 'point'
  | 'ids'
  | 'computed';

/** The type of a field: JSON value of a body, text of a query, representation in MongoDB, schema. */
export interface FieldType {
  /** Checks a JSON value and returns the value to store. Errors are added to `faults` under `path`. */
  body(value: unknown, path: string, faults: FieldErrors): unknown;
  /** Checks the text of a query parameter. Absent if the type is not scalar: such fields neither filter nor sort. */
  query?(text: string, path: string, faults: FieldErrors): unknown;
  stored: StorageKind;
  /** Filters also take a range, as parameters with the suffixes `_from` and `_to`. */
  ranged?: true;
  /** Schema of bodies and queries. A schema with a `title` becomes an OpenAPI component of that name; every other is flat. */
  schema: Schema;
  /** Schema of queries, if it differs. */
  querySchema?: Schema;
  /** Schema of responses, if it differs; `never`: left out of responses. */
  responseSchema?: Schema | 'never';
  members?: Fields;
  /** The member that paths lead into where `fields` asks for parts: `latest.bar` shows `bar` of its `data`. */
  leadsTo?: string;
}

/** A field of a resource. */
export interface Field {
  type: FieldType;
  presence: 'required' | 'optional' | 'default';
  defaultValue?: unknown;
  /** Offered as list filter, and so indexed; `sorted`: the index also serves lists sorted by the field. */
  filter: boolean | 'sorted';
  /** The field holds the identifier of an object of `plural`. */
  references?: {
    plural: string;
    /** Deleted together with that object, and below it in the hierarchy. */
    parent: boolean;
    /** Deleted together with that object. */
    owner?: true;
    /** The object cannot be deleted. */
    protects?: true;
    ancestors: readonly AncestorLevel[];
  };
}

/** A level of the hierarchy above a type: the field that names an object of it, and its collection. */
export interface AncestorLevel {
  field: string;
  plural: string;
}

export type Fields = Readonly<Record<string, Field>>;
export type Values = Record<string, unknown>;

/** Keywords `x-…` of a schema, for programs that show values (reference/configuration.md#api-description). */
export interface Annotations {
  unit?: 'seconds since 1970' | 'seconds' | 'minutes' | 'days' | 'milliseconds' | 'bytes' | 'metres' | 'degrees';
  /** Plural of the type whose identifiers the values are. */
  references?: string;
  /** Plural of the catalogue that lists usual values. */
  catalogue?: string;
  /** Storage provider that has the setting. */
  provider?: string;
  /** Shown only where `fields` asks for it. */
  requested?: true;
}

/** Meaning and example of a value, for the OpenAPI document. */
export interface Documentation extends Annotations {
  /** A sentence with the unit. What the type says of its values is appended. */
  about?: string | undefined;
  example?: unknown;
}

interface FieldOptions extends Documentation {
  filter?: Field['filter'];
}

/** A field that every create must give. */
export function required(type: FieldType, { filter = false, ...text }: FieldOptions = {}): Field {
  return { type: withDocumentation(type, text), presence: 'required', filter };
}

/** A field that may be absent. */
export function optional(type: FieldType, { filter = false, ...text }: FieldOptions = {}): Field {
  return { type: withDocumentation(type, text), presence: 'optional', filter };
}

/** A field that a create stores with `defaultValue` unless it gives another value. */
export function withDefault(valueType: FieldType, defaultValue: unknown, options: FieldOptions = {}): Field {
  const { filter = false, ...text } = options;
  const type = withDocumentation(valueType, { example: defaultValue, ...text });
  return { type, presence: 'default', defaultValue, filter };
}

/** Adds a meaning, an example and annotations to every schema of a type. */
export function withDocumentation(type: FieldType, { about, example, ...annotations }: Documentation): FieldType {
  const keywords = Object.entries(annotations).map(([name, value]) => [`x-${name}`, value]);
  const describe = (schema: Schema): Schema => ({
    ...schema,
    ...Object.fromEntries(keywords),
    ...(about !== undefined && { description: [about, schema.description].filter(Boolean).join(' ') }),
    ...(example !== undefined && { examples: [example] }),
  });
  const { querySchema, responseSchema } = type;
  return {
    ...type,
    schema: describe(type.schema),
    ...(querySchema && { querySchema: describe(querySchema) }),
    ...(typeof responseSchema === 'object' && { responseSchema: describe(responseSchema) }),
  };
}

/** The example of a type, if it has one. */
export function exampleOf({ schema }: FieldType): unknown {
  return Array.isArray(schema.examples) ? schema.examples[0] : undefined;
}

/** The same type, made from values stored under other names (`ListedType.computed`). */
export function computed(type: FieldType): FieldType {
  return { ...type, stored: 'computed' };
}

/** A value that only the service writes, so that it is not checked. */
export function internal(stored: StorageKind = 'object', schema: Schema = {}): FieldType {
  return { body: (value) => value, stored, schema };
}

/** The fields with the examples that `example` has for them. */
export function withExamples(fields: Fields, example: Values): Fields {
  return Object.fromEntries(
    Object.entries(fields).map(([key, field]) => [
      key,
      key in example ? { ...field, type: withDocumentation(field.type, { example: example[key] }) } : field,
    ]),
  );
}

/** The fields, of which some are optional. */
export function withOptional(keys: readonly string[], fields: Fields): Fields {
  const optionalFields = keys.map((key) => [key, { ...fields[key], presence: 'optional' }]);
  return { ...fields, ...Object.fromEntries(optionalFields) };
}
