/** A record of an uploaded file: a line, or several with a line break inside quotes. */
export interface SourceRecord {
  /** Number of its first line, from 1. */
  line: number;
  /** Without the line break; undefined beyond `max_record_bytes`. */
  bytes: Buffer | undefined;
}

/** Longest record; a longer one is skipped. */
const max_record_bytes = 1024 * 1024;

const line_feed = 10;
const carriage_return = 13;
const quote = 34;

/** Finds the ends of records in consecutive chunks. */
interface Scanner {
  /** @returns the position of the line feed that ends the current record, -1 if it continues in the next chunk */
  findEnd(chunk: Buffer, from: number): number;
  /** Ends the current record at the next line feed. */
  closeQuotes(): void;
  /** Returns the number of line feeds inside the current record, and resets it. */
  takeLineFeeds(): number;
}

/**
 * Splits a file into records that are not blank, one batch for each chunk.
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

  function takeRecord(): SourceRecord | undefined {
    const bytes = size > max_record_bytes ? undefined : withoutCarriageReturn(Buffer.concat(parts));
    const record = { line, bytes };
    parts = [];
    size = 0;
    line += 1 + scanner.takeLineFeeds();
    return bytes !== undefined && isBlank(bytes) ? undefined : record;
  }

  for await (const chunk of body) {
    const records: SourceRecord[] = [];
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
    takeLineFeeds: () => 0,
  };
}

/** Recognizes a quote only where a cell begins, as RFC 4180 does. */
function createCsvScanner(delimiter: number): Scanner {
  let isCellStart = true;
  let isQuoted = false;
  /** The last byte closed the quotes, unless this one is a quote too. */
  let isClosing = false;
  let lineFeeds = 0;
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
        if (byte === line_feed) return at;
      }
      return -1;
    },
    closeQuotes() {
      isQuoted = false;
    },
    takeLineFeeds() {
      const taken = lineFeeds;
      lineFeeds = 0;
      return taken;
    },
  };
}

function withoutCarriageReturn(bytes: Buffer): Buffer {
  return bytes.at(-1) === carriage_return ? bytes.subarray(0, -1) : bytes;
}

function isBlank(bytes: Buffer): boolean {
  return bytes.every((byte) => byte === 32 || byte === 9 || byte === carriage_return);
}
