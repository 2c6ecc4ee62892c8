import mongoose from 'mongoose';
import { bsonType, endOfKey, endOfValue, hashKey, isKey, readKeys, toBuffer } from './bson.js';
import { createEscapes } from './escapes.js';
import { JsonWriter } from './json.js';
import { Writer } from './writer.js';

const { BSON } = mongoose.mongo;

const comma = 0x2c;
const escapes = createEscapes((text) => (text === '"' ? '""' : undefined));
/** First characters by which a spreadsheet takes a text for a formula, and the apostrophe itself (reference/exports.md#csv). */
const guarded = new Set(['=', '+', '-', '@', "'", '\t', '\r'].map((text) => text.charCodeAt(0)));
/** Bytes of a cell that is quoted (RFC 4180 §2), and separators of spreadsheets. */
const quoted = new Uint8Array(256);
for (const text of ['"', ',', ';', '\t', '\r', '\n']) quoted[text.charCodeAt(0)] = 1;

/** The columns that a top-level member fills: one of its own, or one for each of some members in it. */
interface Target {
  column: number | undefined;
  parts: readonly (readonly [rest: string, column: number])[];
}

/**
 * Writes objects as rows of CSV (reference/exports.md#csv). Cells are written in stored order and copied into the order of
 * the columns when the object ends.
 */
export class CsvWriter extends Writer {
  readonly #columns: readonly string[];
  /** Known keys by a cheap hash of their bytes; there are few, as top-level keys are declared. */
  readonly #targets: { key: Buffer; target: Target }[][] = Array.from({ length: 256 }, () => []);
  readonly #starts: number[];
  readonly #ends: number[];
  readonly #json = new JsonWriter(1024);
  #row: Buffer = Buffer.alloc(4096);
  #rowStart = 0;
  #cellStart = 0;
  #target: Target | undefined;
  #isInRow = false;

  constructor(capacity: number, columns: readonly string[]) {
    super(capacity);
    this.#columns = columns;
    this.#starts = columns.map(() => 0);
    this.#ends = columns.map(() => 0);
  }

  /** Writes the line with the names of the columns. @param headings names to show, in the order of the columns */
  writeHeader(headings = this.#columns): void {
    for (const [index, name] of headings.entries()) {
      if (index > 0) this.writeAscii(',');
      const bytes = Buffer.from(name);
      this.writeText(bytes, 0, bytes.length);
    }
    this.writeAscii('\r\n');
  }

  openRoot(): void {}

  openItem(): void {}

  openMember(source: Uint8Array, start: number, end: number): boolean {
    this.#target = this.#targetOf(source, start, end);
    this.#cellStart = this.length;
    return true;
  }

  closeMember(): void {
    const column = this.#target?.column;
    if (column !== undefined) this.#endCell(column);
  }

  openContainer(): void {
    this.#isInRow = true;
    this.#rowStart = this.length;
    this.#starts.fill(0);
    this.#ends.fill(0);
  }

  closeContainer(): void {
    this.#isInRow = false;
    this.#arrangeRow();
  }

  writeText(source: Uint8Array, start: number, end: number): void {
    if (start === end) {
      this.writeAscii('""');
      return;
    }
    const isGuarded = guarded.has(source[start] as number);
    if (!needsQuotes(source, start, end)) {
      if (isGuarded) this.writeAscii("'");
      this.copy(source, start, end);
      return;
    }
    this.writeAscii(isGuarded ? `"'` : '"');
    this.writeEscaped(source, start, end, escapes);
    this.writeAscii('"');
  }

  writePlainText(source: Uint8Array, end: number): void {
    if (guarded.has(source[0] as number)) this.writeAscii("'");
    this.copy(source, 0, end);
  }

  writeNull(): void {}

  override writeValue(value: unknown): void {
    if (!this.#isInRow || typeof value !== 'object' || value === null) super.writeValue(value);
    else
      this.writeBson(
        toBuffer(BSON.serialize({ value })),
        Array.isArray(value) ? bsonType.array : bsonType.document,
        value_start,
      );
  }

  override writeDocument(source: Buffer, at = 0): void {
    this.#writeObject(
      (parts) => this.#writeParts(source, at, parts),
      (json) => json.writeDocument(source, at),
    );
  }

  override writeArray(source: Buffer, at: number): void {
    this.#writeJson((json) => json.writeArray(source, at));
  }

  override writeMerged(base: Uint8Array | undefined, own: Uint8Array | undefined): void {
    const writeParts = (parts: Target['parts']) => {
      if (base !== undefined) this.#writeParts(toBuffer(base), 0, parts, own && readKeys(toBuffer(own)));
      if (own !== undefined) this.#writeParts(toBuffer(own), 0, parts);
    };
    this.#writeObject(writeParts, (json) => json.writeMerged(base, own));
  }

  /** Fills the columns of the current member: those of members in it, then its own. */
  #writeObject(writeParts: (parts: Target['parts']) => void, writeWhole: (json: JsonWriter) => void): void {
    const { parts = [], column } = this.#target ?? {};
    if (parts.length > 0) writeParts(parts);
    if (column === undefined) return;
    this.#cellStart = this.length;
    this.#writeJson(writeWhole);
  }

  #writeJson(write: (json: JsonWriter) => void): void {
    write(this.#json);
    const written = this.#json.rewind();
    this.writeText(written, 0, written.length);
  }

  /** Fills the columns of members of the document at `at`, but of those in `except`, decoded as Latin-1. */
  #writeParts(source: Buffer, at: number, parts: Target['parts'], except?: ReadonlySet<string>): void {
    let i = at + 4;
    for (let type = source[i]; type; type = source[i]) {
      const keyEnd = endOfKey(source, i + 1);
      if (except?.has(source.toString('latin1', i + 1, keyEnd)) !== true)
        this.#writePart(source, type, keyEnd + 1, source.toString('utf8', i + 1, keyEnd), parts);
      i = endOfValue(source, type, keyEnd + 1);
    }
  }

  #writePart(source: Buffer, type: number, at: number, key: string, parts: Target['parts']): void {
    const inner: [string, number][] = [];
    for (const [rest, column] of parts) {
      if (rest === key) {
        this.#cellStart = this.length;
        if (type === bsonType.document) this.#writeJson((json) => json.writeDocument(source, at));
        else this.writeBson(source, type, at);
        this.#endCell(column);
      } else if (rest.startsWith(key) && rest[key.length] === '.') inner.push([rest.slice(key.length + 1), column]);
    }
    if (inner.length > 0 && type === bsonType.document) this.#writeParts(source, at, inner);
  }

  #endCell(column: number): void {
    this.#starts[column] = this.#cellStart - this.#rowStart;
    this.#ends[column] = this.length - this.#rowStart;
  }

  #arrangeRow(): void {
    const size = this.length - this.#rowStart;
    if (this.#row.length < size) this.#row = Buffer.alloc(size * 2);
    this.bytes.copy(this.#row, 0, this.#rowStart, this.length);
    this.length = this.#rowStart;
    this.reserve(size + this.#columns.length + 2);
    for (let column = 0; column < this.#columns.length; column++) {
      if (column > 0) this.bytes[this.length++] = comma;
      this.copy(this.#row, this.#starts[column] as number, this.#ends[column] as number);
    }
    // a line without any character would be passed over
    if (this.length === this.#rowStart) this.writeAscii('""');
    this.writeAscii('\r\n');
  }

  #targetOf(source: Uint8Array, start: number, end: number): Target {
    const bucket = this.#targets[hashKey(source, start, end)] as { key: Buffer; target: Target }[];
    for (const { key, target } of bucket) if (isKey(key, source, start, end)) return target;
    const key = Buffer.from(source.subarray(start, end));
    const target = this.#findColumns(key.toString());
    bucket.push({ key, target });
    return target;
  }

  #findColumns(key: string): Target {
    const column = this.#columns.indexOf(key);
    const parts = this.#columns.flatMap((name, index) =>
      name.startsWith(`${key}.`) ? [[name.slice(key.length + 1), index] as const] : [],
    );
    return { column: column < 0 ? undefined : column, parts };
  }
}

/** Position of the value in the BSON of `{value}`. */
const value_start = 4 + 1 + 'value'.length + 1;

function needsQuotes(source: Uint8Array, start: number, end: number): boolean {
  for (let i = start; i < end; i++) if (quoted[source[i] as number] === 1) return true;
  return false;
}
