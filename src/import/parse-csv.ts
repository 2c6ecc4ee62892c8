import { isUtf8 } from 'node:buffer';
import { AppError, createFieldErrors } from '../errors.js';
import { parseDataPath } from '../schema/data-path.js';
import { isPlainObject } from '../schema/fields/object.js';
import type { Fields, FieldType, Values } from '../schema/fields.js';
import { notUtf8, parseJson } from '../schema/json.js';
import type { Resource } from '../schema/resource.js';

export type Delimiter = ',' | ';';

/** The fields of a line. */
export type LineType = Pick<Resource, 'name' | 'fields' | 'readOnly' | 'legacy'>;

/** A first line by which spreadsheets name the separator. */
const separatorLine = /^"?sep=([,;])"?$/i;

/** Chooses the separator that the first line names, or else has more often. */
export function chooseDelimiter(first: string): Delimiter {
  const counted = first.split(';').length > first.split(',').length ? ';' : ',';
  return (separatorLine.exec(first.trim())?.[1] as Delimiter | undefined) ?? counted;
}

/** A cell and what ends it, by separator; within quotes a quote is doubled (RFC 4180). */
const cellPatterns = {
  ',': /(?:"([^"]*(?:""[^"]*)*)"|([^",]*))(,|$)/y,
  ';': /(?:"([^"]*(?:""[^"]*)*)"|([^";]*))(;|$)/y,
};

/** Parses the cells of a record. @returns what is wrong if it is none */
export function parseCells(content: Buffer | AppError, delimiter: Delimiter): readonly string[] | AppError {
  if (content instanceof AppError) return content;
  if (!isUtf8(content)) return new AppError('badJson', { line: notUtf8 });
  const text = content.toString();
  const pattern = cellPatterns[delimiter];
  const cells: string[] = [];
  for (let [at, end] = [0, delimiter as string | undefined]; end === delimiter; at = pattern.lastIndex) {
    pattern.lastIndex = at;
    const [cell, quoted, plain = '', next] = pattern.exec(text) ?? [];
    if (cell === undefined) return new AppError('badJson', { line: describeQuote(text.slice(at), cells.length + 1) });
    cells.push(quoted?.replaceAll('""', '"') ?? plain);
    end = next;
  }
  return cells;
}

function describeQuote(rest: string, cell: number): string {
  const isOpen = rest.startsWith('"') && rest.split('"').length % 2 === 0;
  return `has a quote ${isOpen ? 'that is not closed' : 'in a wrong place'}, in cell ${cell}`;
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
  resource: LineType | undefined,
): Values {
  const values: Values = Object.create(null) as Values;
  for (const [at, cell] of cells.entries()) {
    const column = columns[at] || `column ${at + 1}`;
    const data = resource && findDataPath(resource, column);
    if (data !== undefined) {
      values.data ??= {};
      if (cell !== '') setAt(values, ['data', ...data], guessValue(removeGuard(cell), delimiter));
      continue;
    }
    if (cell === '') continue;
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

/** The keys that a column such as `data.engine.oil` of streams leads through. */
function findDataPath({ name }: LineType, column: string): string[] | undefined {
  if (name !== 'stream' || !column.startsWith('data.')) return undefined;
  const path = column.slice('data.'.length);
  return parseDataPath(path)?.steps.map(({ key }) => key) ?? [path];
}

const jsonCell = /^(?:true|false|null|-?(?:0|[1-9]\d{0,400})(?:\.\d{1,400})?(?:[eE][+-]?\d{1,3})?|[[{].*)$/s;

/** A cell that is no JSON value other than a text is a text. */
function guessValue(cell: string, delimiter: Delimiter): unknown {
  const text = delimiter === ';' ? cell.replace(/^(-?\d+),(\d+)$/, '$1.$2') : cell;
  if (!jsonCell.test(text)) return cell;
  if (!/^[[{]/.test(text)) return JSON.parse(text);
  const { value = cell } = parseJson(Buffer.from(text));
  return value;
}

/** The type of the field that a column names, by its path. */
function findType({ fields, readOnly, legacy: { aliases = {} } }: LineType, [first = '', ...rest]: readonly string[]) {
  const key = (Object.hasOwn(aliases, first) ? aliases[first] : undefined) ?? first;
  const own = [fields, readOnly].find((named: Fields) => Object.hasOwn(named, key));
  let type = own?.[key]?.type;
  for (const member of rest) {
    const members = type?.members;
    type = members && Object.hasOwn(members, member) ? members[member]?.type : undefined;
  }
  return type;
}

function setAt(values: Values, path: readonly string[], value: unknown): void {
  let object = values;
  for (const key of path.slice(0, -1)) {
    const inner = Object.hasOwn(object, key) ? object[key] : undefined;
    const next = isPlainObject(inner) ? inner : (Object.create(null) as Values);
    object[key] = next;
    object = next;
  }
  // a key of a client may be __proto__
  Object.defineProperty(object, path.at(-1) ?? '', { value, enumerable: true, writable: true, configurable: true });
}

/** A text that is no value of the type stays a text, which the check of the field rejects. */
function toJsonValue(cell: string, type: FieldType | undefined, delimiter: Delimiter): unknown {
  switch (type?.schema.type) {
    case 'integer':
    case 'number':
      return toNumber(cell.trim(), delimiter) ?? cell;
    case 'boolean':
      return type.query?.(cell.trim().toLowerCase(), '', createFieldErrors()) ?? cell;
    case 'object':
    case 'array': {
      const { value = cell } = parseJson(Buffer.from(cell));
      return value;
    }
    default:
      return cell;
  }
}

/** Spreadsheets that separate cells by `;` write decimals with a comma. */
function toNumber(cell: string, delimiter: Delimiter): number | undefined {
  const text = delimiter === ';' ? cell.replace(',', '.') : cell;
  return /^[+-]?\d{1,400}(?:\.\d{1,400})?(?:[eE][+-]?\d{1,3})?$/.test(text) ? Number(text) : undefined;
}
