import type { FieldErrors } from '../errors.js';
import { type Columns, columnsOf } from './columns.js';
import { integer } from './fields/number.js';
import { choice, text } from './fields/text.js';
import { type FieldType, type Values, withDocumentation } from './fields.js';
import { max_next_length, parsePosition } from './keyset.js';
import type { ListedType } from './resource.js';
import {
  createListParser,
  type ListFormat,
  type ListRequest,
  listParametersOf,
  paging,
  type Query,
  type RequestedOutput,
} from './validation.js';

const max_fields = 100;
const max_fields_length = 4000;

/** The parameter `format`. */
export const format = withDocumentation(choice('json', 'xml', 'csv', 'ndjson'), {
  about: 'Format of the answer, instead of what Accept says. csv and ndjson export all that match unless max is given.',
  example: 'json',
});

/** The parameter `max` of a list that can be exported. */
export const max = withDocumentation(integer({ min: 1 }), {
  about: 'Objects on the page, up to 1000 and by default 1000; in csv and ndjson any number and by default all.',
  example: 100,
});

/** The parameter `fields` of a list with these columns. */
export function fieldsOf({ names, has }: Columns): FieldType {
  const hint = 'different fields of the type, separated by commas';
  const type = text(max_fields_length);
  return withDocumentation(
    {
      ...type,
      query: (given, param, faults) => {
        type.query?.(given, param, faults);
        if (param in faults) return undefined;
        const parts = given.split(',');
        const unknown = parts.find((part) => !has(part));
        if (unknown !== undefined) faults[param] = `must be ${hint}; unknown: ${unknown.slice(0, 100)}`;
        else if (new Set(parts).size < parts.length) faults[param] = `must be ${hint}`;
        else if (parts.length > max_fields) faults[param] = `must be at most ${max_fields}`;
        return given;
      },
    },
    {
      about: 'Shows only these fields, in csv in this order; members of objects as networking.type.',
      example: names.slice(0, 2).join(),
    },
  );
}

/** The parameter `after` of a list. */
function afterOf(listed: ListedType): FieldType {
  const type = text(max_next_length);
  return withDocumentation(
    {
      ...type,
      query: (given, param, faults) => {
        type.query?.(given, param, faults);
        if (parsePosition(listed, given) === undefined) faults[param] ??= 'must be 0 or the value of a next';
        return given;
      },
    },
    {
      about:
        'Continues the list in the order of identifiers: 0, then the value of next. Not with sort, order or offset.',
      example: '0',
    },
  );
}

function outputParametersOf(listed: ListedType): Record<string, FieldType> {
  return { max, format, fields: fieldsOf(columnsOf(listed)), after: afterOf(listed) };
}

/** The query parameters of a list with its formats, fields and continuation (reference/lists.md#parameters). */
export function listQueryOf(listed: ListedType): ReadonlyMap<string, FieldType> {
  return new Map([...listParametersOf(listed), ...Object.entries(outputParametersOf(listed))]);
}

/** Parses the query of a list. @param accepted the format that `Accept` prefers */
export type ParseListQuery = (query: Query, now: number, accepted: ListFormat) => ListRequest;

/** Creates a parser for the query of a list. It throws AppError badParameter (4004) with all faults. */
export function createListQueryParser(
  listed: ListedType,
  extra: Readonly<Record<string, FieldType>> = {},
): ParseListQuery {
  const columns = columnsOf(listed);
  const parse = createListParser(listed, { ...extra, ...outputParametersOf(listed) });
  return (query, now, accepted) => {
    const request = parse(query, now, (given, faults) => {
      checkPageSize(given, formatOf(given, accepted), faults);
      if (given.after === undefined) return;
      const conflicting = ['sort', 'order', 'offset'].filter((param) => given[param] !== undefined);
      if (conflicting.length > 0) faults.after ??= `must not come with ${conflicting.join(' and ')}`;
    });
    const { params } = request;
    const output = outputOf(columns, params, accepted);
    const isExported = isRowFormat(output.format);
    return {
      ...request,
      output,
      ...(isExported && params.max === undefined && { max: Number.POSITIVE_INFINITY }),
      ...(typeof params.after === 'string' && { after: parsePosition(listed, params.after) ?? [] }),
    };
  };
}

/** Reports whether a format has one object a row and no envelope. */
export function isRowFormat(format: ListFormat): format is 'csv' | 'ndjson' {
  return format === 'csv' || format === 'ndjson';
}

function formatOf({ format }: Values, accepted: ListFormat): ListFormat {
  return (format as ListFormat | undefined) ?? accepted;
}

/** Limits the page of an answer that is not streamed without a limit. */
export function checkPageSize(given: Values, format: ListFormat, faults: FieldErrors): void {
  if (typeof given.max === 'number' && !isRowFormat(format)) paging.max.query?.(String(given.max), 'max', faults);
}

/** Returns the format and members that validated parameters ask for. */
export function outputOf({ names }: Columns, given: Values, accepted: ListFormat): RequestedOutput {
  const fields = typeof given.fields === 'string' ? given.fields.split(',') : undefined;
  return { format: formatOf(given, accepted), fields, columns: fields === undefined ? names : expand(fields, names) };
}

/** Replaces objects with declared members by their columns. */
function expand(fields: readonly string[], names: readonly string[]): string[] {
  const columns = fields.flatMap((field) => {
    const members = names.filter((name) => name.startsWith(`${field}.`));
    return members.length > 0 ? members : [field];
  });
  return [...new Set(columns)];
}
