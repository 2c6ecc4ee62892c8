import type { FieldErrors } from '../errors.js';
import { type Columns, columnsOf } from './columns.js';
import { integer } from './fields/number.js';
import { choice, text, withRule } from './fields/text.js';
import { type FieldType, type Values, withDocumentation } from './fields.js';
import { joinFilters } from './filters.js';
import { max_next_length, type Position, parsePosition } from './keyset.js';
import {
  countPaths,
  isPathParameter,
  max_paths,
  type NamedPath,
  type PathCondition,
  parsePathFilters,
  parsePathSort,
  tooManyPaths,
} from './path-filters.js';
import { parseQuery, type Query } from './query.js';
import { type MemberRequest, parseRequested, requestedColumnsOf } from './requested.js';
import type { ListedType } from './resource.js';

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
  /** Comparisons with values at paths. */
  paths?: readonly PathCondition[];
  /** Sorts by the value at a path instead; `sort` is then the default with the direction. */
  pathSort?: NamedPath;
}

/** Formats of lists; `csv` and `ndjson` are exports (reference/exports.md#formats). */
export type ListFormat = 'json' | 'xml' | 'csv' | 'ndjson';

export interface RequestedOutput {
  format: ListFormat;
  /** Paths of `fields`; absent: all. */
  fields?: readonly string[] | undefined;
  /** Columns of CSV in order. */
  columns: readonly string[];
  /** Members in `ListedType.requested` that `fields` names, and their parts. */
  requested?: ReadonlyMap<string, MemberRequest>;
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

function sortOf(listed: ListedType): FieldType {
  const { sorts, defaultSort } = listed;
  const pathSorts = pathSortsOf(listed);
  const paths = pathSorts.map((member) => `, or \`${member}.PATH\``).join('');
  const about = `Field to sort by${paths}. Default: \`${defaultSort}\`.`;
  const type = choice(...sorts.keys());
  const query: FieldType['query'] = (text, param, faults) =>
    parsePathSort(pathSorts, text) === undefined ? type.query?.(text, param, faults) : text;
  return withDocumentation({ ...type, query }, { about, example: defaultSort });
}

/** The query parameters of a list (reference/lists.md#parameters). */
export function listParametersOf(listed: ListedType): ReadonlyMap<string, FieldType> {
  return new Map<string, FieldType>([
    ...filterParametersOf(listed),
    ['max', paging.max],
    ['sort', sortOf(listed)],
    ['order', paging.order],
    ['offset', paging.offset],
  ]);
}

const max_fields = 100;
const max_fields_length = 4000;

/** The parameter `format` of a list that can be exported. */
export const format = describeFormat(' csv and ndjson export all that match unless max is given.');
/** The parameter `format` of every other answer. */
export const answerFormat = describeFormat('');

function describeFormat(rule: string): FieldType {
  const about = `Format of the answer, instead of what Accept says.${rule}`;
  return withDocumentation(choice('json', 'xml', 'csv', 'ndjson'), { about, example: 'json' });
}

/** The parameter `max` of a list that can be exported. */
export const max = withDocumentation(integer({ min: 1 }), {
  about: 'Objects on the page, up to 1000 and by default 1000; in csv and ndjson any number and by default all.',
  example: 100,
});

/** The parameter `fields` of a list with these columns. */
export function fieldsOf({ names, has }: Columns): FieldType {
  const hint = 'different fields of the type, separated by commas';
  const type = withRule(text(max_fields_length), (value) => {
    const parts = value.split(',');
    const unknown = parts.find((part) => !has(part));
    if (unknown !== undefined) return `must be ${hint}; unknown: ${unknown.slice(0, 100)}`;
    if (new Set(parts).size < parts.length) return `must be ${hint}`;
    return parts.length > max_fields ? `must be at most ${max_fields}` : undefined;
  });
  return withDocumentation(type, {
    about: 'Shows only these fields, in csv in this order; members of objects as networking.type.',
    example: names.slice(0, 2).join(),
  });
}

function afterOf(listed: ListedType): FieldType {
  const type = withRule(text(max_next_length), (value) =>
    parsePosition(listed, value) === undefined ? 'must be 0 or the value of a next' : undefined,
  );
  return withDocumentation(type, {
    about: 'Continues the list in the order of identifiers: 0, then the value of next. Not with sort, order or offset.',
    example: '0',
  });
}

/** The query parameters of a list with its formats, fields and continuation (reference/lists.md#parameters). */
export function listQueryOf(listed: ListedType): ReadonlyMap<string, FieldType> {
  const output = { max, format, fields: fieldsOf(columnsOf(listed)), after: afterOf(listed) };
  return new Map([...listParametersOf(listed), ...Object.entries(output)]);
}

/** Differences of a list from others. */
export interface ListParserOptions {
  /** All parameters of the list; default: those of `listQueryOf`. */
  params?: ReadonlyMap<string, FieldType>;
  check?: (values: Values, faults: FieldErrors, query: Query) => void;
  /** Direction of the default sort; default: 1. */
  direction?: 1 | -1;
  /** `after` is an identifier, not the position of `next`. */
  isAfterId?: true;
}

/**
 * Creates a parser for the query of a list. It throws AppError badParameter (4004) with all faults, and takes the format that
 * `Accept` prefers.
 */
export function createListParser(
  listed: ListedType,
  { params = listQueryOf(listed), check, direction = 1, isAfterId }: ListParserOptions = {},
): (query: Query, now: number, accepted?: ListFormat) => ListRequest {
  const columns = params.has('format') ? columnsOf(listed) : undefined;
  const isPath = (param: string) => !params.has(param) && isPathParameter(listed.pathFilters, param);
  return (query, now, accepted = 'json') => {
    let paths: readonly PathCondition[] = [];
    const plain = query.filter(([param]) => !isPath(param));
    const parsed = parseQuery(plain, params, (values, faults) => {
      if (plain.length < query.length)
        paths = parsePathFilters(
          listed.pathFilters,
          query.filter(([param]) => isPath(param)),
          faults,
        );
      for (const filter of listed.filters) filter.check?.(values, faults);
      if (columns !== undefined) checkPageSize(values, formatOf(values, accepted), faults);
      if (isAfterId !== true) checkContinuation(values, faults);
      const sorted = pathSortOf(listed, values);
      if (sorted !== undefined && countPaths([...paths, sorted]) > max_paths) faults.sort ??= tooManyPaths;
      check?.(values, faults, query);
    });
    const { sort, order, max, offset, after } = parsed;
    const pathSort = pathSortOf(listed, parsed);
    const key = typeof sort === 'string' && pathSort === undefined ? sort : listed.defaultSort;
    const output = columns && outputOf(columns, parsed, accepted);
    const default_max = output !== undefined && isRowFormat(output.format) ? Number.POSITIVE_INFINITY : 1000;
    return {
      filter: buildListFilter(listed, parsed, now),
      sort: {
        key,
        paths: listed.sorts.get(key) ?? [key],
        direction: order === undefined ? (sort === undefined ? direction : 1) : order === -1 ? -1 : 1,
      },
      max: typeof max === 'number' ? max : default_max,
      offset: typeof offset === 'number' ? offset : 0,
      now,
      params: parsed,
      ...(paths.length > 0 && { paths }),
      ...(pathSort && { pathSort }),
      ...(output && { output }),
      ...(typeof after === 'string' && isAfterId !== true && { after: parsePosition(listed, after) ?? [] }),
    };
  };
}

/** Members by whose values at paths lists are sorted. */
function pathSortsOf({ pathFilters, requested }: ListedType): string[] {
  return pathFilters.filter((member) => Object.hasOwn(requested, member));
}

function pathSortOf(listed: ListedType, { sort }: Values): NamedPath | undefined {
  return typeof sort === 'string' ? parsePathSort(pathSortsOf(listed), sort) : undefined;
}

function checkContinuation(values: Values, faults: FieldErrors): void {
  if (values.after === undefined) return;
  const conflicting = ['sort', 'order', 'offset'].filter((param) => values[param] !== undefined);
  if (conflicting.length > 0) faults.after ??= `must not come with ${conflicting.join(' and ')}`;
}

/** The query parameters of one object: types with members that are shown on request only have `fields`. */
export function objectQueryOf(listed: ListedType): ReadonlyMap<string, FieldType> | undefined {
  return Object.keys(listed.requested).length === 0 ? undefined : new Map([['fields', fieldsOf(columnsOf(listed))]]);
}

/** Parses the query of one object. @throws AppError badParameter (4004) */
export function parseObjectQuery(
  listed: ListedType,
  params: ReadonlyMap<string, FieldType>,
  query: Query,
): RequestedOutput | undefined {
  const values = parseQuery(query, params);
  return values.fields === undefined ? undefined : outputOf(columnsOf(listed), values, 'json');
}

/** Creates a parser for the query of a change of many objects: at least one filter, and `extra`. */
export function createSelectionParser(
  listed: ListedType,
  extra: Readonly<Record<string, FieldType>>,
): (query: Query, now: number) => ListRequest {
  const params = new Map([...filterParametersOf(listed), ...Object.entries(extra)]);
  return createListParser(listed, {
    params,
    check: (_given, faults, query) => {
      const isSelected = query.some(
        ([param]) => isPathParameter(listed.pathFilters, param) || (params.has(param) && !Object.hasOwn(extra, param)),
      );
      if (!isSelected) faults.filter = 'at least one filter must be given';
    },
  });
}

/** Builds the database filter of validated list parameters; `now` in epoch seconds. */
export function buildListFilter({ filters }: ListedType, values: Values, now: number): Record<string, unknown> {
  const wanted = filters.filter(({ params }) => Object.keys(params).some((param) => values[param] !== undefined));
  return joinFilters(wanted.map((filter) => filter.conditions(values, now)));
}

/** The parameters that filter a list. */
export function filterParametersOf({ filters }: ListedType): ReadonlyMap<string, FieldType> {
  return new Map(filters.flatMap(({ params }) => Object.entries(params)));
}

/** Reports whether a format has one object a row and no envelope. */
export function isRowFormat(format: ListFormat): format is 'csv' | 'ndjson' {
  return format === 'csv' || format === 'ndjson';
}

function formatOf({ format }: Values, accepted: ListFormat): ListFormat {
  return (format as ListFormat | undefined) ?? accepted;
}

/** Limits the page of an answer that is not streamed without a limit. */
export function checkPageSize(values: Values, format: ListFormat, faults: FieldErrors): void {
  if ('max' in values && !isRowFormat(format)) paging.max.query?.(String(values.max), 'max', faults);
}

/** Returns the format and members that validated parameters ask for. */
export function outputOf(columns: Columns, values: Values, accepted: ListFormat): RequestedOutput {
  const { names, requested = {} } = columns;
  const fields = typeof values.fields === 'string' ? values.fields.split(',') : undefined;
  if (fields === undefined) return { format: formatOf(values, accepted), columns: names };
  return {
    format: formatOf(values, accepted),
    fields,
    columns: expand(fields, columns),
    requested: parseRequested(requested, fields),
  };
}

/** Replaces objects with declared members by their columns. */
function expand(fields: readonly string[], { names, requested = {} }: Columns): string[] {
  const columns = fields.flatMap((field) => {
    const shown = requestedColumnsOf(requested, field);
    if (shown !== undefined) return shown;
    const members = names.filter((name) => name.startsWith(`${field}.`));
    return members.length > 0 ? members : [field];
  });
  return [...new Set(columns)];
}
