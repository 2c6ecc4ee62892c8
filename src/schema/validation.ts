import { AppError, type FieldErrors, newFieldErrors, throwIfAny } from '../errors.js';
import { decodePercent } from '../percent-decoding.js';
import {
  choice,
  type Fields,
  type FieldType,
  integer,
  max_identifier_length,
  parseMembers,
  type Schema,
  type Values,
} from './fields.js';
import { type Conditions, mergeConditions } from './filters.js';
import type { ListedType, Resource } from './resource.js';

/** The text of a query as name-value pairs, in the order given. */
export type Query = readonly (readonly [string, string])[];

/** A validated list request. `sort` holds stored paths and directions. */
export interface ListRequest {
  filter: Record<string, unknown>;
  sort: { key: string; paths: readonly string[]; direction: 1 | -1 };
  max: number;
  offset: number;
  /** Epoch seconds. */
  now: number;
  /** The validated parameters by name. */
  params: Values;
}

/** Checks the body of a create. @returns values with defaults. @throws AppError invalid (4003) with all wrong fields */
export function parseBody(resource: Resource, given: Values): Values {
  const faults = newFieldErrors();
  const values = parseMembers(withOptionalParents(resource), withoutReadOnly(resource, given), '', faults);
  checkExactlyOneParent(resource, given, faults, false);
  checkAllOrNone(resource, given, faults);
  throwIfAny('invalid', faults);
  return values;
}

/** Checks a body against the fields alone. @returns values with defaults. @throws AppError invalid (4003) */
export function parseFields(
  listed: ListedType,
  given: Values,
  check?: (values: Values, faults: FieldErrors) => void,
): Values {
  const faults = newFieldErrors();
  const values = parseMembers(listed.fields, withoutReadOnly(listed, given), '', faults);
  check?.(values, faults);
  throwIfAny('invalid', faults);
  return values;
}

/** What a client sent without what it may send back but not change (contract 5). */
function withoutReadOnly(listed: ListedType, given: Values): Values {
  const kept: Values = Object.create(null) as Values;
  for (const key of Object.keys(given)) {
    if (!Object.hasOwn(listed.readOnly, key)) kept[key] = given[key];
  }
  return kept;
}

function withOptionalParents(resource: Resource): Fields {
  if (resource.parents.length < 2) return resource.fields;
  return Object.fromEntries(
    Object.entries(resource.fields).map(([key, field]) => [
      key,
      resource.parents.includes(key) ? { ...field, presence: 'optional' as const } : field,
    ]),
  );
}

/** Exactly one of several parents (§2.6). An update may leave all out, and takes one away only by giving another. */
function checkExactlyOneParent({ parents }: Resource, given: Values, faults: FieldErrors, updating: boolean): void {
  if (parents.length < 2) return;
  const named = parents.filter((key) => given[key] !== undefined && given[key] !== null);
  if (named.length === 1 || (updating && named.length === 0)) return;
  for (const key of parents) faults[key] ??= `exactly one of ${parents.join(' and ')} must be given`;
}

/** An update may give one of them: the rest is stored already (contract 5). */
function checkAllOrNone({ allOrNone }: Resource, given: Values, faults: FieldErrors): void {
  const missing = allOrNone.filter((key) => given[key] === undefined || given[key] === null);
  if (missing.length === allOrNone.length) return;
  for (const key of missing) faults[key] ??= `${allOrNone.join(' and ')} come together`;
}

/** What an update asks for. */
export interface UpdateRequest {
  /** Fields to change; `null` takes an optional field away. */
  values: Values;
  /** The version the client believes is stored. */
  version?: number;
}

const versionKind = integer({ min: 0 });

/** Checks the body of an update: only what is given. @throws AppError invalid (4003) with all wrong fields */
export function parseUpdate(resource: Resource, given: Values): UpdateRequest {
  const faults = newFieldErrors();
  const values: Values = {};
  for (const [key, value] of Object.entries(withoutReadOnly(resource, given))) {
    const field = Object.hasOwn(resource.fields, key) ? resource.fields[key] : undefined;
    if (field === undefined) faults[key] = 'unknown field';
    else if (value !== null) values[key] = field.type.body(value, key, faults);
    else if (field.presence === 'default') values[key] = field.defaultValue;
    else if (field.presence === 'optional' || (resource.parents.length > 1 && resource.parents.includes(key)))
      values[key] = null;
    else faults[key] = 'is required';
  }
  checkExactlyOneParent(resource, given, faults, true);
  const { version } = given;
  if (version !== undefined && version !== null) versionKind.body(version, 'version', faults);
  throwIfAny('invalid', faults);
  return typeof version === 'number' ? { values, version } : { values };
}

/** The parameters that cut a page out of a list (§4.1). */
export const paging = {
  max: documented(integer({ min: 1, max: 1000 }), { default: 1000 }),
  order: documented(direction(), { type: 'integer', enum: [1, -1], default: 1 }),
  offset: documented(integer({ min: 0 }), { default: 0 }),
};

function direction(): FieldType {
  const kind = choice('1', '-1');
  return {
    ...kind,
    query: (text, path, faults) => {
      const chosen = kind.query?.(text, path, faults);
      return chosen === undefined ? undefined : Number(chosen);
    },
  };
}

function documented(kind: FieldType, more: Schema): FieldType {
  return { ...kind, schema: { ...kind.schema, ...more } };
}

/** The query parameters a list takes, by name (§4.1, contract 6). */
export function listParameters(listed: ListedType): ReadonlyMap<string, FieldType> {
  return new Map<string, FieldType>([
    ...listed.filters.flatMap((filter) => Object.entries(filter.params)),
    ['max', paging.max],
    ['sort', documented(choice(...listed.sorts.keys()), { default: listed.defaultSort })],
    ['order', paging.order],
    ['offset', paging.offset],
  ]);
}

/** @returns a function that checks the query of a list. It throws AppError badParameter (4004) with all wrong ones. */
export function listParser(
  listed: ListedType,
  extra: Readonly<Record<string, FieldType>> = {},
): (query: Query, now: number) => ListRequest {
  const params = new Map([...listParameters(listed), ...Object.entries(extra)]);
  return (query, now) => {
    const given = parseQuery(query, params, (values, faults) => {
      for (const filter of listed.filters) filter.check?.(values, faults);
    });
    const conditions: Conditions[] = [];
    for (const filter of listed.filters) {
      if (Object.keys(filter.params).some((param) => given[param] !== undefined))
        conditions.push(filter.conditions(given, now));
    }
    const key = typeof given.sort === 'string' ? given.sort : listed.defaultSort;
    return {
      filter: mergeConditions(conditions),
      sort: { key, paths: listed.sorts.get(key) ?? [key], direction: given.order === -1 ? -1 : 1 },
      max: typeof given.max === 'number' ? given.max : 1000,
      offset: typeof given.offset === 'number' ? given.offset : 0,
      now,
      params: given,
    };
  };
}

/** Checks query parameters against `params`. @throws AppError badParameter (4004): unknown, repeated, empty, malformed */
export function parseQuery(
  query: Query,
  params: ReadonlyMap<string, FieldType>,
  check?: (given: Values, faults: FieldErrors) => void,
): Values {
  const faults = newFieldErrors();
  const given: Values = Object.create(null) as Values;
  const seen = new Set<string>();
  for (const [param, value] of query) {
    const kind = params.get(param);
    if (kind?.query === undefined) faults[param] = 'unknown parameter';
    else if (seen.has(param)) faults[param] = 'must be given once';
    else if (value === '') faults[param] = 'must not be empty';
    else given[param] = kind.query(value, param, faults);
    seen.add(param);
  }
  check?.(given, faults);
  throwIfAny('badParameter', faults);
  return given;
}

/** Splits the query part of a URL (without `?`). @throws AppError badParameter (4004) where it is not percent-encoded UTF-8 */
export function splitQuery(search: string): Query {
  if (search === '') return [];
  return search
    .split('&')
    .filter((pair) => pair !== '')
    .map((pair) => {
      const at = pair.indexOf('=');
      const name = at < 0 ? pair : pair.slice(0, at);
      return [decode(name, name), at < 0 ? '' : decode(pair.slice(at + 1), name)] as const;
    });
}

function decode(encoded: string, name: string): string {
  const decoded = decodePercent(encoded.replaceAll('+', ' '));
  if (decoded === undefined) throw new AppError('badParameter', { [name]: 'must be percent-encoded UTF-8' });
  return decoded;
}

/** Checks an identifier of a path (§2.1). @throws AppError badParameter (4004) `{param: message}` */
export function checkIdentifier(id: string, param: string): string {
  if (!id.includes('@')) throw new AppError('badParameter', { [param]: 'must be an identifier such as name@account' });
  if (id.length > 2 * max_identifier_length || [...id].length > max_identifier_length || id.includes('\0')) {
    throw new AppError('badParameter', { [param]: `must be at most ${max_identifier_length} characters without NUL` });
  }
  return id;
}
