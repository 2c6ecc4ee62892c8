import { AppError, createFieldErrors, type FieldErrors, throwIfAny } from '../errors.js';
import { decodePercent } from '../lib/percent-decoding.js';
import { integer } from './fields/number.js';
import { parseMembers } from './fields/object.js';
import { choice, max_identifier_length } from './fields/text.js';
import { type FieldType, type Values, withDocumentation } from './fields.js';
import { type Conditions, mergeConditions } from './filters.js';
import type { ListedType, Resource } from './resource.js';

/** Name-value pairs of a query, in the order given. */
export type Query = readonly (readonly [string, string])[];

/** A validated list request. */
export interface ListRequest {
  filter: Record<string, unknown>;
  sort: { key: string; paths: readonly string[]; direction: 1 | -1 };
  max: number;
  offset: number;
  /** Epoch seconds. */
  now: number;
  /** The validated parameters by name. */
  params: Values;
  /** The page is to have a summary. */
  summarize?: boolean;
  /** Format and members of the answer; absent: all members, in JSON or XML as `Accept` says. */
  output?: RequestedOutput;
  /** Continues the list in the order of its identifiers; empty: from the beginning (reference/lists.md#continuation). */
  after?: Position;
  /** Aborts when the client no longer waits. */
  signal?: AbortSignal;
}

/** Formats of lists; `csv` and `ndjson` are exports (reference/exports.md#formats). */
export type ListFormat = 'json' | 'xml' | 'csv' | 'ndjson';

export interface RequestedOutput {
  format: ListFormat;
  /** Paths of `fields`; absent: all. */
  fields?: readonly string[] | undefined;
  /** Columns of CSV in order. */
  columns: readonly string[];
}

/** Values of the keys by which a list is ordered, of its last object so far; ids are hexadecimal. */
export type Position = readonly (string | number)[];

/** Checks the body of a create. @returns values with defaults. @throws AppError invalid (4003) with all faults */
export function parseBody(resource: Resource, sent: Values): Values {
  const faults = createFieldErrors();
  const given = resolveAliases(resource, sent, faults, false);
  const values = parseMembers(resource.createFields, withoutReadOnly(resource, given), '', faults);
  checkExactlyOneParent(resource, given, faults, false);
  checkAllOrNone(resource, given, faults);
  throwIfAny('invalid', faults);
  return values;
}

/** Checks the body of a type that is no resource. @returns values with defaults. @throws AppError invalid (4003) */
export function parseFields(
  listed: ListedType,
  given: Values,
  check?: (values: Values, faults: FieldErrors) => void,
): Values {
  const faults = createFieldErrors();
  const values = parseMembers(listed.fields, withoutReadOnly(listed, given), '', faults);
  check?.(values, faults);
  throwIfAny('invalid', faults);
  return values;
}

/** The body with declared names only, and without blank texts (reference/devices.md#parents). */
function resolveAliases(
  { aliases, blankAsNull }: Resource,
  sent: Values,
  faults: FieldErrors,
  updating: boolean,
): Values {
  if (!blankAsNull.some((key) => sent[key] === '') && !Object.keys(aliases).some((key) => key in sent)) return sent;
  const given = Object.assign(Object.create(null) as Values, sent);
  for (const key of blankAsNull) if (given[key] === '') given[key] = null;
  for (const [alias, field] of Object.entries(aliases)) {
    const { [alias]: other, [field]: value } = given;
    delete given[alias];
    const isAbsent = (one: unknown) => one === undefined || (one === null && !updating);
    if (isAbsent(other)) continue;
    if (isAbsent(value)) given[field] = other;
    else if (value !== other) faults[alias] = `must be the same as ${field}`;
  }
  return given;
}

/** The body without read-only fields, which clients may echo (reference/requests.md#body-fields). */
function withoutReadOnly(listed: ListedType, given: Values): Values {
  const kept: Values = Object.create(null) as Values;
  for (const key of Object.keys(given)) {
    if (!Object.hasOwn(listed.readOnly, key)) kept[key] = given[key];
  }
  return kept;
}

/** Requires exactly one of several parents (reference/devices.md#parents); an update may leave all of them out. */
function checkExactlyOneParent({ parents }: Resource, given: Values, faults: FieldErrors, updating: boolean): void {
  if (parents.length < 2) return;
  const present = parents.filter((key) => given[key] !== undefined && given[key] !== null);
  if (present.length === 1 || (updating && present.length === 0)) return;
  for (const key of parents) faults[key] ??= `exactly one of ${parents.join(' and ')} must be given`;
}

function checkAllOrNone({ allOrNone }: Resource, given: Values, faults: FieldErrors): void {
  const missing = allOrNone.filter((key) => given[key] === undefined || given[key] === null);
  if (missing.length === allOrNone.length) return;
  for (const key of missing) faults[key] ??= `${allOrNone.join(' and ')} come together`;
}

/** A validated body of an update. */
export interface UpdateRequest {
  /** Fields to change; `null` unsets an optional field. */
  values: Values;
  /** The version that must be stored. */
  version?: number;
}

const versionType = integer({ min: 0 });

/** Checks the body of an update. @throws AppError invalid (4003) with all faults */
export function parseUpdate(resource: Resource, sent: Values): UpdateRequest {
  const faults = createFieldErrors();
  const given = resolveAliases(resource, sent, faults, true);
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
  if (version !== undefined && version !== null) versionType.body(version, 'version', faults);
  throwIfAny('invalid', faults);
  return typeof version === 'number' ? { values, version } : { values };
}

/** The parameters of a page (reference/lists.md#paging). */
export const paging = {
  max: withDocumentation(integer({ min: 1, max: 1000 }), {
    about: 'Objects on the page. Default: 1000.',
    example: 100,
  }),
  order: withDocumentation(direction(), { about: '1: ascending, -1: descending. Default: 1.', example: 1 }),
  offset: withDocumentation(integer({ min: 0 }), { about: 'Objects to skip. Default: 0.', example: 0 }),
};

function direction(): FieldType {
  const type = choice('1', '-1');
  return {
    ...type,
    query: (text, path, faults) => {
      const word = type.query?.(text, path, faults);
      return word === undefined ? undefined : Number(word);
    },
    schema: { type: 'integer', format: 'int64', enum: [1, -1] },
  };
}

/** The parameter `sort` of a list. */
function sortOf({ sorts, defaultSort }: ListedType): FieldType {
  const about = `Field to sort by. Default: \`${defaultSort}\`.`;
  return withDocumentation(choice(...sorts.keys()), { about, example: defaultSort });
}

/** The query parameters of a list (reference/lists.md#parameters). */
export function listParametersOf(listed: ListedType): ReadonlyMap<string, FieldType> {
  return new Map<string, FieldType>([
    ...listed.filters.flatMap((filter) => Object.entries(filter.params)),
    ['max', paging.max],
    ['sort', sortOf(listed)],
    ['order', paging.order],
    ['offset', paging.offset],
  ]);
}

/** Checks parameters against each other. */
export type ParameterCheck = (given: Values, faults: FieldErrors) => void;

/** Creates a parser for the query of a list. It throws AppError badParameter (4004) with all faults. */
export function createListParser(
  listed: ListedType,
  extra: Readonly<Record<string, FieldType>> = {},
): (query: Query, now: number, check?: ParameterCheck) => ListRequest {
  const params = new Map([...listParametersOf(listed), ...Object.entries(extra)]);
  return (query, now, check) => {
    const given = parseQuery(query, params, (values, faults) => {
      for (const filter of listed.filters) filter.check?.(values, faults);
      check?.(values, faults);
    });
    const key = typeof given.sort === 'string' ? given.sort : listed.defaultSort;
    return {
      filter: buildListFilter(listed, given, now),
      sort: { key, paths: listed.sorts.get(key) ?? [key], direction: given.order === -1 ? -1 : 1 },
      max: typeof given.max === 'number' ? given.max : 1000,
      offset: typeof given.offset === 'number' ? given.offset : 0,
      now,
      params: given,
    };
  };
}

/** Builds the database filter of validated list parameters; `now` in epoch seconds. */
export function buildListFilter({ filters }: ListedType, given: Values, now: number): Record<string, unknown> {
  const conditions: Conditions[] = filters
    .filter(({ params }) => Object.keys(params).some((param) => given[param] !== undefined))
    .map((filter) => filter.conditions(given, now));
  return mergeConditions(conditions);
}

/**
 * Creates a parser for the query of a change of many objects: the filters of their list, at least one, and `extra`. It throws
 * AppError badParameter (4004) with all faults.
 */
export function createSelectionParser(
  listed: ListedType,
  extra: Readonly<Record<string, FieldType>>,
): (query: Query, now: number) => ListRequest {
  const params = new Map([...filterParametersOf(listed), ...Object.entries(extra)]);
  return (query, now) => {
    const given = parseQuery(query, params, (values, faults) => {
      for (const filter of listed.filters) filter.check?.(values, faults);
      const isSelected = query.some(([param]) => params.has(param) && !Object.hasOwn(extra, param));
      if (!isSelected) faults.filter = 'at least one filter must be given';
    });
    const { defaultSort: key } = listed;
    const sort = { key, paths: listed.sorts.get(key) ?? [key], direction: 1 } as const;
    return { filter: buildListFilter(listed, given, now), sort, max: 0, offset: 0, now, params: given };
  };
}

/** The parameters that filter a list. */
export function filterParametersOf({ filters }: ListedType): ReadonlyMap<string, FieldType> {
  return new Map(filters.flatMap(({ params }) => Object.entries(params)));
}

/** Checks query parameters against `params` (reference/requests.md#parameters). @throws AppError badParameter (4004) */
export function parseQuery(query: Query, params: ReadonlyMap<string, FieldType>, check?: ParameterCheck): Values {
  const faults = createFieldErrors();
  const given: Values = Object.create(null) as Values;
  const seen = new Set<string>();
  for (const [param, value] of query) {
    const type = params.get(param);
    if (type?.query === undefined) faults[param] = 'unknown parameter';
    else if (seen.has(param)) faults[param] = 'must be given once';
    else if (value === '') faults[param] = 'must not be empty';
    else given[param] = type.query(value, param, faults);
    seen.add(param);
  }
  check?.(given, faults);
  throwIfAny('badParameter', faults);
  return given;
}

/** Splits the query of a URL, without `?`. @throws AppError badParameter (4004) unless it is percent-encoded UTF-8 */
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

/** Checks an identifier of a path (reference/identifiers.md#id_developer). @throws AppError badParameter (4004) */
export function checkIdentifier(id: string, param: string): string {
  if (!id.includes('@')) throw new AppError('badParameter', { [param]: 'must be an identifier such as name@account' });
  if (id.length > 2 * max_identifier_length || [...id].length > max_identifier_length || id.includes('\0')) {
    throw new AppError('badParameter', { [param]: `must be at most ${max_identifier_length} characters without NUL` });
  }
  return id;
}
