import { z } from 'zod';
import type { FieldErrors } from '../errors.js';

/** What OpenAPI 3.1 (JSON Schema 2020-12) says about a value. */
export type Schema = Readonly<Record<string, unknown>>;

/** How a value lies in the database: `freeform` is never interpreted, `computed` is not stored under its name. */
export type StoredType = 'string' | 'number' | 'boolean' | 'object' | 'freeform' | 'binary' | 'point' | 'computed';

/**
 * A kind of field with all its faces: the JSON value of a body, the text of a query, the stored type and the schema.
 * Everything else about validation is made from these.
 */
export interface FieldType {
  /** Checks a JSON value; what is wrong goes into `faults` under `path`. Returns the value as it is stored. */
  body(value: unknown, path: string, faults: FieldErrors): unknown;
  /** Checks the text of a query parameter. Absent where the kind is no scalar and so neither filters nor sorts. */
  query?(text: string, path: string, faults: FieldErrors): unknown;
  stored: StoredType;
  /** Filters by range too: the suffixes `_from` and `_to` come along. */
  ranged?: true;
  /** What bodies and queries take. One with a `title` becomes a component of that name. */
  schema: Schema;
  /** What queries take, where that is not the same. */
  querySchema?: Schema;
  /** What answers hold, where that is not the same. */
  responseSchema?: Schema | 'never';
  /** Member kinds of an object, for whoever needs to look inside (OpenAPI, nested filters). */
  members?: Fields;
}

/** A kind as a field of a resource. */
export interface Field {
  type: FieldType;
  presence: 'required' | 'optional' | 'default';
  defaultValue?: unknown;
  /** Offered as list filter, and so indexed; `sorted`: lists are often sorted by it, too. */
  filter: boolean | 'sorted';
  /** Names another resource: it must exist in the account. `parent`: it is beneath that resource. */
  references?: { plural: string; parent: boolean };
}

export type Fields = Readonly<Record<string, Field>>;
export type Values = Record<string, unknown>;

interface FieldOptions {
  filter?: Field['filter'];
}

/** Declares a field that a create must contain and an update must not remove. */
export function required(kind: FieldType, { filter = false }: FieldOptions = {}): Field {
  return { type: kind, presence: 'required', filter };
}

/** Declares a field that may be absent; null removes it. */
export function optional(kind: FieldType, { filter = false }: FieldOptions = {}): Field {
  return { type: kind, presence: 'optional', filter };
}

/** Declares a field that is stored with `fallback` if absent or null. */
export function withDefault(kind: FieldType, fallback: unknown, { filter = false }: FieldOptions = {}): Field {
  return { type: kind, presence: 'default', defaultValue: fallback, filter };
}

/** A value that is shown, but made from what is stored under other names. */
export function computed(kind: FieldType): FieldType {
  return { ...kind, stored: 'computed' };
}

/** The field that names the resource above (§1). With several of them in one resource exactly one must be given. */
export function parent(resource: { plural: string }): Field {
  return {
    type: identifierReference(),
    presence: 'required',
    filter: true,
    references: { plural: resource.plural, parent: true },
  };
}

/** An optional mention of another resource of the account. */
export function reference(resource: { plural: string }): Field {
  return {
    type: identifierReference(),
    presence: 'optional',
    filter: true,
    references: { plural: resource.plural, parent: false },
  };
}

/** The text after the first test that fails, or undefined: length in code points, no NUL, no lone surrogate (contract 4). */
function textFault(text: string, min: number, max: number): string | undefined {
  const exact = text.length > 2 * max || (text.length <= max && min <= 1);
  const length = exact ? text.length : [...text].length;
  if (length > max || length < min)
    return min === max ? `must be ${max} characters` : `must be ${min} to ${max} characters`;
  if (text.includes('\0') || !text.isWellFormed()) return 'must be well-formed text without NUL';
  return undefined;
}

function textKind(schema: z.ZodType<string, string>, jsonSchema: Schema): FieldType {
  const check = fromZod(schema);
  return { body: check, query: check, stored: 'string', schema: { type: 'string', ...jsonSchema } };
}

function fromZod(schema: z.ZodType): (value: unknown, path: string, faults: FieldErrors) => unknown {
  return (value, path, faults) => {
    const result = schema.safeParse(value);
    if (result.success) return result.data;
    faults[path] = result.error.issues[0]?.message ?? 'is not valid';
    return undefined;
  };
}

function wellFormed(min: number, max: number): z.ZodType<string, string> {
  return z.string({ error: 'must be a text' }).superRefine((text, context) => {
    const fault = textFault(text, min, max);
    if (fault !== undefined) context.addIssue({ code: 'custom', message: fault });
  });
}

const withoutNul = '^[^\\u0000]*$';

/** Text of `min` to `max` code points, stored as given (contract 3). */
export function text(max: number, { min = 1 } = {}): FieldType {
  const examples = [min > 4 ? '0'.repeat(min) : 'text'];
  return textKind(wellFormed(min, max), { minLength: min, maxLength: max, pattern: withoutNul, examples });
}

/** Text of exactly `length` code points, such as a checksum or a SIM card number (§2.6). */
export function exactText(length: number): FieldType {
  return text(length, { min: length });
}

/** Text that a function accepts; `hint` tells the client what would be right, `schema` the tools. */
export function textMatching(
  max: number,
  accepts: (text: string) => boolean,
  hint: string,
  schema: Schema = {},
): FieldType {
  return textKind(wellFormed(1, max).refine(accepts, { error: `must be ${hint}` }), {
    minLength: 1,
    maxLength: max,
    description: `Must be ${hint}.`,
    ...schema,
  });
}

const controlCharacter = /\p{Cc}/u;
/** What `trim` and `\p{Cc}` mean, spelled so that every dialect of regular expressions reads it alike. */
const spaces = '\\t-\\r \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff';
const controls = '\\u0000-\\u001f\\u007f-\\u009f';

/** The pattern of a name before trimming, without the characters of `refused`. */
export function namePattern(refused = ''): string {
  const inner = `[^${controls}${refused}]`;
  const outer = `[^${spaces}${controls}${refused}]`;
  return `^[${spaces}]*${outer}(?:${inner}{0,48}${outer})?[${spaces}]*$`;
}

/** A name: trimmed, 1 to 50 code points, no control characters (contract 3). */
export function name(): FieldType {
  const schema = z
    .string({ error: 'must be a text' })
    .transform((given) => given.trim())
    .pipe(
      wellFormed(1, 50).refine((given) => !controlCharacter.test(given), { error: 'must not hold control characters' }),
    );
  const description = '1 to 50 characters after trimming, none of them a control character';
  const examples = ['Weather station 7'];
  return textKind(schema as z.ZodType<string, string>, {
    title: 'name',
    description,
    pattern: namePattern(),
    examples,
  });
}

/** One of a few words. */
export function choice(...words: readonly string[]): FieldType {
  return textKind(z.enum(words, { error: `must be one of ${words.join(', ')}` }), { enum: words });
}

/** The longest identifier that a name and an account can make is under this; contract 3 lets filters take as much. */
export const max_identifier_length = 100;

/** An `id_developer`: name@account (§2.1). */
export function identifier(): FieldType {
  return textMatching(max_identifier_length, (given) => given.includes('@'), 'an identifier such as name@account', {
    title: 'identifier',
    pattern: '^[^\\u0000]*@[^\\u0000]*$',
    examples: ['Weather station 7@acme'],
  });
}

/** An identifier in a body; as a filter any text, which then matches nothing (§4.1). */
function identifierReference(): FieldType {
  const { query, schema } = text(max_identifier_length);
  return { ...identifier(), ...(query && { query }), querySchema: schema };
}

/** 0, 1, true or false, always stored and shown as a boolean (contract 3). */
export function flag(): FieldType {
  const error = 'must be 0, 1, true or false';
  const json = z.union([z.boolean(), z.literal(0), z.literal(1)], { error }).transform(Boolean);
  const words = new Map([
    ['0', false],
    ['1', true],
    ['true', true],
    ['false', false],
  ]);
  return {
    body: fromZod(json),
    query: (given, path, faults) => {
      const value = words.get(given);
      if (value === undefined) faults[path] = error;
      return value;
    },
    stored: 'boolean',
    schema: { enum: [true, false, 0, 1] },
    responseSchema: { type: 'boolean' },
  };
}

interface Range {
  min?: number;
  max?: number;
}

const decimalText = /^-?\d{1,400}(\.\d{1,400})?([eE][+-]?\d{1,3})?$/;
const integerText = /^-?\d{1,16}$/;

function numeric(range: Range, whole: boolean): FieldType {
  const { min = -Number.MAX_VALUE, max = Number.MAX_VALUE } = range;
  const noun = whole ? 'an integer' : 'a number';
  const bounds =
    range.min !== undefined && range.max !== undefined
      ? ` from ${range.min} to ${range.max}`
      : range.min !== undefined
        ? ` of at least ${range.min}`
        : '';
  const error = `must be ${noun}${bounds}`;
  const base = z.number({ error }).min(min, { error }).max(max, { error });
  const body = fromZod(whole ? base.refine(Number.isSafeInteger, { error }) : base);
  const pattern = whole ? integerText : decimalText;
  return {
    body,
    // z.coerce would take '' for 0 and '0x10' for 16
    query: (given, path, faults) => body(pattern.test(given) ? Number(given) : Number.NaN, path, faults),
    stored: 'number',
    schema: {
      type: whole ? 'integer' : 'number',
      ...(range.min !== undefined && { minimum: range.min }),
      ...(range.max !== undefined && { maximum: range.max }),
    },
  };
}

/** A whole number within `range`, at most 2^53 - 1. */
export function integer(range: Range = {}): FieldType {
  return numeric({ max: Number.MAX_SAFE_INTEGER, ...range }, true);
}

/** A finite number within `range`. */
export function number(range: Range = {}): FieldType {
  return numeric(range, false);
}

/** Epoch seconds, filtered by range too (§2.1, §4.1). */
export function timestamp(): FieldType {
  const kind = numeric({ min: 0, max: 1e12 }, false);
  return { ...kind, ranged: true, schema: { ...kind.schema, description: 'Epoch seconds.' } };
}

/** A GeoJSON point, as the service stores it (§2.6). */
export function point(): FieldType {
  return { body: (value) => value, stored: 'point', schema: { type: 'object' } };
}

/**
 * An object with members of its own; `rule` adds what concerns several of them, and `schema` tells it.
 * Faults are named `path.member`.
 */
export function object(
  members: Fields,
  rule?: (given: Values, path: string, faults: FieldErrors) => void,
  schema: Schema = {},
): FieldType {
  return {
    body: (value, path, faults) => {
      if (!isPlainObject(value)) {
        faults[path] = 'must be an object';
        return undefined;
      }
      const parsed = parseMembers(members, value, `${path}.`, faults);
      rule?.(value, path, faults);
      return parsed;
    },
    stored: 'object',
    members,
    schema,
  };
}

/** The values of all `members` in `given`; unknown, missing and wrong ones go into `faults`. `null` counts as absent. */
export function parseMembers(members: Fields, given: Values, prefix: string, faults: FieldErrors): Values {
  const parsed: Values = {};
  for (const key of Object.keys(given)) {
    if (!Object.hasOwn(members, key)) faults[prefix + key] = 'unknown field';
  }
  for (const [key, field] of Object.entries(members)) {
    const value = Object.hasOwn(given, key) ? given[key] : undefined;
    if (value !== undefined && value !== null) parsed[key] = field.type.body(value, prefix + key, faults);
    else if (field.presence === 'required') faults[prefix + key] = 'is required';
    else if (field.presence === 'default') parsed[key] = field.defaultValue;
  }
  return parsed;
}

/** Any JSON of so many levels. No recursion, which tools stumble over: what is nested deeper than `told` is left open. */
function jsonSchema(levels: number, told = 4): Schema {
  const scalars = [{ type: ['null', 'boolean', 'number'] }, { type: 'string', pattern: withoutNul }];
  if (levels === 0) return { title: 'scalar', anyOf: scalars };
  if (told === 0) return {};
  const inner = jsonSchema(levels - 1, told - 1);
  const containers = [
    { type: 'array', items: inner },
    { type: 'object', propertyNames: { pattern: withoutNul }, additionalProperties: inner },
  ];
  return { title: `json_of_${levels}_levels`, anyOf: [...scalars, ...containers] };
}

/**
 * Any JSON object, kept as given and never interpreted (contract 4): up to `keys` keys of at most 100 characters,
 * `levels` levels deep with the object itself as the first.
 */
export function freeform({ levels, keys = 100 }: { levels: number; keys?: number }): FieldType {
  return {
    body: (value, path, faults) => {
      const fault = isPlainObject(value) ? freeformFault(value, levels, keys) : 'must be an object';
      if (fault !== undefined) faults[path] = fault;
      return value;
    },
    stored: 'freeform',
    schema: {
      type: 'object',
      description: `Any JSON object of up to ${keys} keys, ${levels} levels deep; kept as given, never interpreted.`,
      maxProperties: keys,
      propertyNames: { maxLength: 100, pattern: withoutNul },
      additionalProperties: jsonSchema(levels - 1),
    },
    responseSchema: { type: 'object' },
  };
}

function freeformFault(value: Values, levels: number, keys: number): string | undefined {
  const names = Object.keys(value);
  if (names.length > keys) return `must not have more than ${keys} keys`;
  if (names.some((key) => textFault(key, 0, 100) !== undefined)) return 'must have keys of at most 100 characters';
  return valueFault(value, levels);
}

function valueFault(value: unknown, levels: number): string | undefined {
  if (typeof value === 'string') {
    return value.includes('\0') || !value.isWellFormed() ? 'must hold well-formed text without NUL' : undefined;
  }
  if (typeof value === 'number') return Number.isFinite(value) ? undefined : 'must hold numbers a double can hold';
  if (typeof value !== 'object' || value === null) return undefined;
  if (levels === 0) return 'must not be nested deeper';
  for (const key of Object.keys(value)) {
    const fault = valueFault(key, 0) ?? valueFault((value as Values)[key], levels - 1);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

/** True for JSON objects: neither null nor an array. */
export function isPlainObject(value: unknown): value is Values {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
