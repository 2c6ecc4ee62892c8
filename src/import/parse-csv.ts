import { isUtf8 } from 'node:buffer';
import { type CsvError, parse } from 'csv-parse/sync';
import { AppError } from '../errors.js';
import { isPlainObject } from '../schema/fields/object.js';
import type { Fields, FieldType, Values } from '../schema/fields.js';
import { notUtf8, parseJson } from '../schema/json.js';
import type { Resource } from '../schema/resource.js';
import type { SourceRecord } from './split-records.js';

export type Delimiter = ',' | ';';

/** The cells of a record, or what is wrong with it. */
export interface CsvRecord extends SourceRecord {
  cells: readonly string[] | AppError;
}

/** A first line by which spreadsheets name the separator. */
const separatorLine = /^"?sep=([,;])"?$/i;

/** Chooses the separator that the first line names, or else has more often. */
export function chooseDelimiter(first: string): Delimiter {
  const counted = first.split(';').length > first.split(',').length ? ';' : ',';
  return (separatorLine.exec(first.trim())?.[1] as Delimiter | undefined) ?? counted;
}

/** Parses the cells of records, all at once if none is malformed. */
export function parseCells(records: readonly SourceRecord[], delimiter: Delimiter): CsvRecord[] {
  const texts = records.map(({ content }) => decode(content));
  const wellFormed = texts.filter((text) => typeof text === 'string');
  const together = parseText(wellFormed.join('\n'), delimiter);
  const rows = Array.isArray(together) && together.length === wellFormed.length ? together : undefined;
  let next = 0;
  const parseOne = (text: string) => rows?.[next++] ?? parseRecord(text, delimiter);
  return records.map((record, at) => {
    const text = texts[at] ?? '';
    return { ...record, cells: text instanceof AppError ? text : parseOne(text) };
  });
}

function decode(content: Buffer | AppError): string | AppError {
  if (content instanceof AppError) return content;
  return isUtf8(content) ? content.toString() : new AppError('badJson', { line: notUtf8 });
}

function parseRecord(text: string, delimiter: Delimiter): readonly string[] | AppError {
  const rows = parseText(text, delimiter);
  return Array.isArray(rows) ? (rows[0] ?? []) : rows;
}

function parseText(text: string, delimiter: Delimiter): string[][] | AppError {
  try {
    return parse(text, { delimiter, record_delimiter: '\n', relax_column_count: true });
  } catch (error) {
    const { code, column } = error as CsvError;
    const fault = code === 'CSV_QUOTE_NOT_CLOSED' ? 'a quote that is not closed' : 'a quote in a wrong place';
    return new AppError('badJson', { line: `has ${fault}, in cell ${Number(column) + 1}` });
  }
}

/** Reads the names of the columns. @returns undefined for a line that only names the separator */
export function parseHeader(cells: readonly string[], delimiter: Delimiter): readonly string[] | undefined | AppError {
  if (separatorLine.test(cells.join(delimiter))) return undefined;
  const columns = cells.map((cell) => cell.trim());
  const repeated = columns.filter((column, at) => column !== '' && columns.indexOf(column) < at);
  if (repeated.length === 0) return columns;
  return new AppError('invalid', Object.fromEntries(repeated.map((column) => [column, 'must be a column once'])));
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
    const column = columns[at] || `column ${at + 1}`;
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
