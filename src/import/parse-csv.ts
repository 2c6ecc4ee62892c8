import { isUtf8 } from 'node:buffer';
import { parse } from 'csv-parse/sync';
import { isPlainObject } from '../schema/fields/object.js';
import type { Fields, FieldType, Values } from '../schema/fields.js';
import { parseJson } from '../schema/json.js';
import type { Resource } from '../schema/resource.js';
import type { SourceRecord } from './split-records.js';

export type Delimiter = ',' | ';';

/** The cells of a record; undefined unless it is CSV in UTF-8 of bounded length. */
export interface CsvRecord extends SourceRecord {
  cells: readonly string[] | undefined;
}

/** Chooses the separator that the header has more often. */
export function chooseDelimiter(header: string): Delimiter {
  return header.split(';').length > header.split(',').length ? ';' : ',';
}

/** Parses the cells of records, all at once if none is malformed. */
export function parseCells(records: readonly SourceRecord[], delimiter: Delimiter): CsvRecord[] {
  const texts = records.map(({ bytes }) => (bytes !== undefined && isUtf8(bytes) ? bytes.toString() : undefined));
  const wellFormed = texts.filter((text) => text !== undefined);
  const together = parseText(wellFormed.join('\n'), delimiter);
  if (together?.length === wellFormed.length) {
    let next = 0;
    return records.map((record, at) => ({ ...record, cells: texts[at] === undefined ? undefined : together[next++] }));
  }
  return records.map((record, at) => {
    const text = texts[at];
    return { ...record, cells: text === undefined ? undefined : parseText(text, delimiter)?.[0] };
  });
}

function parseText(text: string, delimiter: Delimiter): string[][] | undefined {
  try {
    return parse(text, { delimiter, record_delimiter: '\n', relax_column_count: true });
  } catch {
    return undefined;
  }
}

/** Converts the cells of a record to the JSON values of an object of the import. Empty cells are absent. */
export function toValues(
  columns: readonly string[],
  cells: readonly string[],
  delimiter: Delimiter,
  resource: Resource | undefined,
): Values {
  const values: Values = Object.create(null) as Values;
  for (const [at, cell] of cells.entries()) {
    if (cell === '') continue;
    const column = columns[at] ?? `column ${at + 1}`;
    const path = column.split('.');
    const type = resource && findType(resource, path);
    setAt(values, type === undefined ? [column] : path, toJsonValue(removeGuard(cell), type, delimiter));
  }
  return values;
}

/** Takes off the `'` that protects spreadsheets from formulas (reference/import.md#csv). */
export function removeGuard(cell: string): string {
  return /^'[=+\-@'\t\r]/.test(cell) ? cell.slice(1) : cell;
}

/** The type of the field that a column names, by its path. */
function findType({ fields, readOnly, legacy: { aliases = {} } }: Resource, [first = '', ...rest]: readonly string[]) {
  const key = (Object.hasOwn(aliases, first) ? aliases[first] : undefined) ?? first;
  let members: Fields | undefined = { ...readOnly, ...fields };
  let type = Object.hasOwn(members, key) ? members[key]?.type : undefined;
  for (const member of rest) {
    members = type?.members;
    type = members && Object.hasOwn(members, member) ? members[member]?.type : undefined;
  }
  return type;
}

function setAt(values: Values, [key = '', ...rest]: readonly string[], value: unknown): void {
  if (rest.length === 0) {
    values[key] = value;
    return;
  }
  const inner = values[key];
  const object = isPlainObject(inner) ? inner : (Object.create(null) as Values);
  values[key] = object;
  setAt(object, rest, value);
}

const booleanCells: ReadonlyMap<string, boolean> = new Map([
  ['true', true],
  ['1', true],
  ['false', false],
  ['0', false],
]);

/** A text that is no value of the type stays a text, which the check of the field rejects. */
function toJsonValue(cell: string, type: FieldType | undefined, delimiter: Delimiter): unknown {
  switch (type?.schema.type) {
    case 'integer':
    case 'number':
      return toNumber(cell.trim(), delimiter) ?? cell;
    case 'boolean':
      return booleanCells.get(cell.trim().toLowerCase()) ?? cell;
    case 'object':
    case 'array':
      return parseJsonCell(cell);
    default:
      return cell;
  }
}

/** Spreadsheets that separate cells by `;` write decimals with a comma. */
function toNumber(cell: string, delimiter: Delimiter): number | undefined {
  const text = delimiter === ';' ? cell.replace(',', '.') : cell;
  return /^[+-]?\d{1,400}(?:\.\d{1,400})?(?:[eE][+-]?\d{1,3})?$/.test(text) ? Number(text) : undefined;
}

function parseJsonCell(cell: string): unknown {
  const { fault, value } = parseJson(Buffer.from(cell));
  return fault === undefined ? value : cell;
}
