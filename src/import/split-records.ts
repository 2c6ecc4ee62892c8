import { setImmediate } from 'node:timers/promises';

/** A record of an uploaded file: a line, or several with a line break inside quotes. */
export interface SourceRecord {
  /** Number of its first line, from 1. */
  line: number;
  /** Without the line break; undefined beyond `max_record_bytes` or `max_cells`. */
  bytes: Buffer | undefined;
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
  /** @returns the position of the line feed that ends the current record, -1 if it continues in the next chunk */
  findEnd(chunk: Buffer, from: number): number;
  /** Ends the current record at the next line feed. */
  closeQuotes(): void;
  /** Returns the numbers of cells, and of line feeds inside the record, and begins with the next record. */
  takeCounts(): { cells: number; lineFeeds: number };
}

/**
 * Splits a file into records that are not blank. Between batches others have their turn.
 * @param delimiter separator of CSV cells, whose quoted line breaks do not end a record; absent for other files
 */
export async function* splitRecords(
  body: AsyncIterable<Buffer>,
  delimiter?: string,
): AsyncGenerator<readonly SourceRecord[]> {
  const scanner = delimiter === undefined ? createLineScanner() : createCsvScanner(delimiter.charCodeAt(0));
  let parts: Buffer[] = [];
  let size = 0;
  let line = 1;
  let batchCells = 0;

  function takeRecord(): SourceRecord | undefined {
    const { cells, lineFeeds } = scanner.takeCounts();
    const first = line;
    line += 1 + lineFeeds;
    if (size === 0) return undefined;
    const isTooLarge = size > max_record_bytes || cells > max_cells;
    const bytes = isTooLarge ? undefined : withoutCarriageReturn(Buffer.concat(parts));
    parts = [];
    size = 0;
    batchCells += isTooLarge ? 0 : cells;
    return bytes !== undefined && isBlank(bytes) ? undefined : { line: first, bytes };
  }

  for await (const chunk of body) {
    let records: SourceRecord[] = [];
    for (let from = 0; from < chunk.length; ) {
      const end = scanner.findEnd(chunk, from);
      const part = chunk.subarray(from, end < 0 ? chunk.length : end);
      size += part.length;
      if (size <= max_record_bytes) parts.push(part);
      else {
        parts = [];
        scanner.closeQuotes();
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

function createLineScanner(): Scanner {
  return {
    findEnd: (chunk, from) => chunk.indexOf(line_feed, from),
    closeQuotes() {},
    takeCounts: () => ({ cells: 1, lineFeeds: 0 }),
  };
}

/** Recognizes a quote only where a cell begins, as RFC 4180 does. */
function createCsvScanner(delimiter: number): Scanner {
  let isCellStart = true;
  let isQuoted = false;
  /** The last byte closed the quotes, unless this one is a quote too. */
  let isClosing = false;
  let lineFeeds = 0;
  let cells = 1;
  return {
    findEnd(chunk, from) {
      for (let at = from; at < chunk.length; at++) {
        const byte = chunk[at];
        if (isQuoted) {
          isClosing = byte === quote;
          isQuoted = !isClosing;
          if (byte === line_feed) lineFeeds++;
          continue;
        }
        isQuoted = byte === quote && (isCellStart || isClosing);
        isClosing = false;
        isCellStart = byte === delimiter || byte === line_feed;
        if (byte === delimiter) cells++;
        if (byte === line_feed) return at;
      }
      return -1;
    },
    closeQuotes() {
      isQuoted = false;
    },
    takeCounts() {
      const counts = { cells, lineFeeds };
      cells = 1;
      lineFeeds = 0;
      return counts;
    },
  };
}

function withoutCarriageReturn(bytes: Buffer): Buffer {
  return bytes.at(-1) === carriage_return ? bytes.subarray(0, -1) : bytes;
}

function isBlank(bytes: Buffer): boolean {
  return bytes.every((byte) => byte === 32 || byte === 9 || byte === carriage_return);
}
