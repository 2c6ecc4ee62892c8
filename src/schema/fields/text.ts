import { z } from 'zod';
import { type DataPath, parseDataPath } from '../data-path.js';
import type { FieldType, Schema } from '../fields.js';

/** Checks values with a zod schema; reports the message of its first issue. */
export function checkWith(schema: z.ZodType): FieldType['body'] {
  return (value, path, faults) => {
    const result = schema.safeParse(value);
    if (result.success) return result.data;
    faults[path] = result.error.issues[0]?.message ?? 'is not valid';
    return undefined;
  };
}

/** Bound of identifiers; no name, number and account make a longer one. */
export const max_identifier_length = 128;
/** Bound of the filter `id_developer` of resources. */
export const max_filter_id_developer_length = 100;

/** Pattern of text without NUL. */
export const withoutNul = '^[^\\u0000]*$';

/** Checks length in code points, NUL and lone surrogates. @returns the first rule that `text` breaks */
export function checkText(text: string, min: number, max: number): string | undefined {
  const isLengthExact = text.length > 2 * max || (text.length <= max && min <= 1);
  const length = isLengthExact ? text.length : [...text].length;
  if (length > max || length < min)
    return min === max ? `must be ${max} characters` : `must be ${min} to ${max} characters`;
  if (text.includes('\0') || !text.isWellFormed()) return 'must be well-formed text without NUL';
  return undefined;
}

function wellFormed(min: number, max: number): z.ZodType<string, string> {
  return z.string({ error: 'must be a text' }).superRefine((text, context) => {
    const fault = checkText(text, min, max);
    if (fault !== undefined) context.addIssue({ code: 'custom', message: fault });
  });
}

function textType(checks: z.ZodType<string, string>, schema: Schema): FieldType {
  const check = checkWith(checks);
  return { body: check, query: check, stored: 'string', schema: { type: 'string', ...schema } };
}

/** Text of `min` to `max` code points, stored as given (reference/identifiers.md#text). */
export function text(max: number, { min = 1 } = {}): FieldType {
  return textType(wellFormed(min, max), { minLength: min, maxLength: max, pattern: withoutNul });
}

/** Text of exactly `length` code points, such as a checksum. */
export function exactText(length: number): FieldType {
  return text(length, { min: length });
}

/** Text of 1 to `max` code points that `accepts` approves. Errors and the description say `must be ${hint}`. */
export function textMatching(
  max: number,
  accepts: (text: string) => boolean,
  hint: string,
  schema: Schema = {},
): FieldType {
  return textType(wellFormed(1, max).refine(accepts, { error: `must be ${hint}` }), {
    minLength: 1,
    maxLength: max,
    description: `Must be ${hint}.`,
    ...schema,
  });
}

const controlCharacter = /\p{Cc}/u;
/** The characters of `trim` and `\p{Cc}` spelled out, because regular expression dialects differ in their classes. */
const spaces = '\\t-\\r \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff';
const controls = '\\u0000-\\u001f\\u007f-\\u009f';

/** Pattern of a name before trimming; `excluded` are further characters that it must not hold. */
export function buildNamePattern(excluded = ''): string {
  const inner = `[^${controls}${excluded}]`;
  const outer = `[^${spaces}${controls}${excluded}]`;
  return `^[${spaces}]*${outer}(?:${inner}{0,48}${outer})?[${spaces}]*$`;
}

/** All but spaces, controls, unassigned characters, and those whose glyph is blank. */
const visibleCharacter = /[^\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800\u{13441}\u{13442}\u{16fe4}\u{1d159}]/u;

/** Checks the characters of a name (reference/identifiers.md#names). @returns the rule that it breaks */
export function checkNameCharacters(text: string): string | undefined {
  if (controlCharacter.test(text)) return 'must not hold control characters';
  return visibleCharacter.test(text) ? undefined : 'must hold a character that can be seen';
}

/** A name: trimmed, 1 to 50 code points, no control characters (reference/identifiers.md#names). */
export function name(): FieldType {
  const trimmed = z.string({ error: 'must be a text' }).transform((text) => text.trim());
  const type = textType(trimmed.pipe(wellFormed(1, 50)) as z.ZodType<string, string>, {
    description: '1 to 50 characters after trimming, none of them a control character, and one that can be seen.',
    pattern: buildNamePattern(),
  });
  return withRule(type, checkNameCharacters);
}

/** Adds a rule to a type of texts. @param check returns the fault of a text that breaks it */
export function withRule(type: FieldType, check: (text: string) => string | undefined): FieldType {
  const body: FieldType['body'] = (value, path, faults) => {
    const text = type.body(value, path, faults);
    const fault = typeof text === 'string' ? check(text) : undefined;
    if (fault !== undefined) faults[path] = fault;
    return text;
  };
  return { ...type, body, query: body };
}

/** One of several words. */
export function choice(...words: readonly string[]): FieldType {
  return textType(z.enum(words, { error: `must be one of ${words.join(', ')}` }), { enum: words });
}

/** Any identifier in a response, and any text as a filter (reference/lists.md#filters). */
export function identifierText(max_in_filter = max_identifier_length): FieldType {
  const { query, schema } = text(max_in_filter);
  return { ...text(max_identifier_length), ...(query && { query }), querySchema: schema };
}

/** An `id_developer`: name@account (reference/identifiers.md#id_developer). */
export function identifier(): FieldType {
  return textMatching(max_identifier_length, (text) => text.includes('@'), 'an identifier such as name@account', {
    pattern: '^[^\\u0000]*@[^\\u0000]*$',
    examples: ['Pump@demo'],
  });
}

/** Code points of a path. */
export const max_path_length = 500;

const pathHint = 'keys joined by dots, or a JSON Pointer';

/** Parses a path of one parameter or field, in which only a JSON Pointer may hold a comma. */
export function parseSinglePath(text: string): DataPath | undefined {
  return !text.startsWith('/') && text.includes(',') ? undefined : parseDataPath(text);
}

/** A path into the `data` of streams (reference/series.md#paths), stored as it is written. */
export function dataPath(): FieldType {
  return textMatching(max_path_length, (text) => parseSinglePath(text) !== undefined, pathHint);
}
