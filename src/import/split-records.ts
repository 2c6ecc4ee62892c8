import { setImmediate } from 'node:timers/promises';
import { AppError } from '../errors.js';

/** A record of an uploaded file: a line, or several with a line break inside quotes. */
export interface SourceRecord {
  /** Number of its first line, from 1. */
  line: number;
  /** Without the line break, or what is wrong with it. */
  content: Buffer | AppError;
}

/** Longest record; a longer one is skipped. */
const max_record_bytes = 1024 * 1024;
/** Cells of a record; one with more is skipped. */
const max_cells = 1000;
/** Parsing a batch of so many takes some 10 ms. */
const max_batch_records = 500;
const max_batch_cells = 5000;

const line_feed = 10;
const carriage_return = 13;
const quote = 34;

/** Finds the ends of records in consecutive chunks. */
interface Scanner {
  /** Cells of the current record. */
  cells: number;
  lineBreaks: number;
  /** Within quotes, where line breaks end no record. */
  isQuoted: boolean;
  /** @returns the position of the line break that ends the current record, -1 if it continues in the next chunk */
  findEnd(chunk: Buffer, from: number): number;
}

/**
 * Creates the scanner of CSV, which recognizes a quote only where a cell begins, as RFC 4180 does, or of lines that end in
 * `\n`, after `\r` or not, or in `\r`.
 */
export function createScanner({ delimiter, lineBreak = '' }: { delimiter?: string; lineBreak?: string }): Scanner {
  const delimiterByte = delimiter?.charCodeAt(0);
  let isCellStart = true;
  /** The last byte closed the quotes, unless this one is a quote too. */
  let isClosing = false;
  let previous = 0;
  return {
    cells: 1,
    lineBreaks: 0,
    isQuoted: false,
    findEnd(chunk, from) {
      if (delimiterByte === undefined) return chunk.indexOf(lineBreak, from);
      for (let at = from; at < chunk.length; at++) {
        const byte = chunk[at] as number;
        const isLineBreak = byte === line_feed || byte === carriage_return;
        if (this.isQuoted) {
          isClosing = byte === quote;
          this.isQuoted = !isClosing;
          if (isLineBreak && (byte !== line_feed || previous !== carriage_return)) this.lineBreaks++;
          previous = byte;
          continue;
        }
        this.isQuoted = byte === quote && (isCellStart || isClosing);
        isClosing = false;
        isCellStart = byte === delimiterByte || isLineBreak;
        if (byte === delimiterByte) this.cells++;
        if (isLineBreak) return at;
      }
      return -1;
    },
  };
}

/** Splits a file into records that are not blank. Between batches others have their turn. */
export async function* splitRecords(
  body: AsyncIterable<Buffer>,
  scanner: Scanner,
): AsyncGenerator<readonly SourceRecord[]> {
  let parts: Buffer[] = [];
  let size = 0;
  let line = 1;
  let batchCells = 0;
  /** The last record ended in a carriage return, to which a line feed may belong. */
  let isAfterReturn = false;

  function takeRecord(): SourceRecord | undefined {
    const { cells, lineBreaks } = scanner;
    Object.assign(scanner, { cells: 1, lineBreaks: 0 });
    const first = line;
    line += 1 + lineBreaks;
    if (size === 0) return undefined;
    const tooLarge = checkSize(size, cells);
    const content = tooLarge ?? Buffer.concat(parts);
    parts = [];
    size = 0;
    if (tooLarge === undefined) batchCells += cells;
    return Buffer.isBuffer(content) && isBlank(content) ? undefined : { line: first, content };
  }

  for await (const chunk of body) {
    let records: SourceRecord[] = [];
    for (let from = 0; from < chunk.length; ) {
      if (isAfterReturn && chunk[from] === line_feed) from++;
      const end = scanner.findEnd(chunk, from);
      isAfterReturn = chunk[end] === carriage_return;
      const part = chunk.subarray(from, end < 0 ? chunk.length : end);
      size += part.length;
      if (size <= max_record_bytes) parts.push(part);
      else {
        parts = [];
        scanner.isQuoted = false;
      }
      if (end < 0) break;
      const record = takeRecord();
      if (record !== undefined) records.push(record);
      from = end + 1;
      if (records.length < max_batch_records && batchCells < max_batch_cells) continue;
      yield records;
      await setImmediate();
      records = [];
      batchCells = 0;
    }
    if (records.length > 0) yield records;
  }
  const last = takeRecord();
  if (last !== undefined) yield [last];
}

function checkSize(bytes: number, cells: number): AppError | undefined {
  if (bytes > max_record_bytes) return new AppError('tooLarge', { line: 'must be at most 1 MiB' });
  if (cells > max_cells)
    return new AppError('tooLarge', { line: `must have at most ${max_cells} cells, and has ${cells}` });
  return undefined;
}

function isBlank(bytes: Buffer): boolean {
  return bytes.every((byte) => byte === 32 || byte === 9 || byte === carriage_return);
}
