import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import { AppError } from '../errors.js';
import { runUntilTimeLimit, TimeLimitError } from '../lib/time-limit.js';
import { isPlainObject } from '../schema/fields/object.js';
import type { Values } from '../schema/fields.js';
import { parseJson, tooManyValues } from '../schema/json.js';
import type { Resource } from '../schema/resource.js';
import { chooseDelimiter, type Delimiter, parseCells, toValues } from './parse-csv.js';
import { splitRecords } from './split-records.js';

/** One line of an import: the object that it holds, or what is wrong with it. */
export interface ImportLine {
  line: number;
  /** Memory that the line holds, nearly. */
  bytes: number;
  content: Values | AppError;
}

const decoders = new Map([
  ['gzip', createGunzip],
  ['x-gzip', createGunzip],
  ['deflate', createInflate],
  ['br', createBrotliDecompress],
]);

/** Bytes that a body may become when it is decoded: gzip of one repeated byte is a thousandth of it. */
const max_decoded_bytes = (encoded: number) => 1024 * 1024 + 100 * encoded;
/** An import that completes no line for so long ends. */
const idle_limit_ms = 60_000;

/** Longest beginning of a body that is read to detect its format. */
const max_header_bytes = 64 * 1024;
const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf]);

/**
 * Reads the lines of an import while its body arrives, one batch for each chunk (reference/import.md#formats). It is CSV
 * if `Content-Type` says so or if it begins with something else than an object.
 * @param resourceOf the type that a line of CSV names
 */
export async function* readLines(
  request: IncomingMessage,
  resourceOf: (name: unknown) => Resource | undefined,
  limit_ms = idle_limit_ms,
): AsyncGenerator<readonly ImportLine[]> {
  let last = 0;
  const batches = readDecoded(decode(request), request.headers['content-type'] ?? '', resourceOf);
  try {
    for (;;) {
      const next = await runUntilTimeLimit(limit_ms, undefined, () => batches.next());
      if (next.done === true) return;
      last = next.value.at(-1)?.line ?? last;
      yield next.value;
    }
  } catch (error) {
    yield [{ line: last + 1, bytes: 0, content: toAppError(error, limit_ms) }];
  }
}

/** @throws the error itself if it is none of the body */
function toAppError(error: unknown, limit_ms: number): AppError {
  if (error instanceof AppError) return error;
  if (error instanceof TimeLimitError)
    return new AppError('badParameter', { body: `must complete a line every ${limit_ms / 1000} s` });
  if (isDecodingError(error)) return new AppError('badJson');
  throw error;
}

async function* readDecoded(
  chunks: AsyncIterable<Buffer>,
  contentType: string,
  resourceOf: (name: unknown) => Resource | undefined,
): AsyncGenerator<readonly ImportLine[]> {
  const { head, body } = await readHead(chunks);
  const isCsv =
    /^text\/csv\b/i.test(contentType) || (!/ndjson|jsonl/i.test(contentType) && !/^\s*(?:[{[]|$)/.test(head));
  if (isCsv) yield* readCsv(body, chooseDelimiter(head.trimStart().split('\n')[0] ?? ''), resourceOf);
  else yield* readNdjson(body);
}

function decode(request: IncomingMessage): AsyncIterable<Buffer> {
  const { 'content-encoding': encoding = 'identity' } = request.headers;
  const decoder = decoders.get(encoding.toLowerCase())?.();
  if (decoder === undefined) return request;
  request.pipe(decoder);
  request.once('error', (error) => decoder.destroy(error));
  // the rest is read all the same, so that the client gets the answer
  decoder
    .once('error', () => undefined)
    .once('close', () => {
      request.unpipe(decoder);
      request.resume();
    });
  return readBounded(decoder);
}

/** @throws AppError tooLarge (4131) */
async function* readBounded(decoder: Readable & { bytesWritten: number }): AsyncGenerator<Buffer> {
  let decoded_bytes = 0;
  for await (const chunk of decoder as AsyncIterable<Buffer>) {
    decoded_bytes += chunk.length;
    if (decoded_bytes > max_decoded_bytes(decoder.bytesWritten)) throw new AppError('tooLarge');
    yield chunk;
  }
}

function isDecodingError(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return /^(?:Z_|ERR__)/.test(String(code));
}

/** Reads until the first line is complete. @returns its text, and the whole body without byte order mark */
async function readHead(body: AsyncIterable<Buffer>): Promise<{ head: string; body: AsyncIterable<Buffer> }> {
  const chunks = body[Symbol.asyncIterator]();
  let first = Buffer.alloc(0);
  while (first.length < max_header_bytes && !first.toString('latin1').trimStart().includes('\n')) {
    const { done, value } = await chunks.next();
    if (done === true) break;
    first = Buffer.concat([first, value]);
  }
  if (first.subarray(0, byteOrderMark.length).equals(byteOrderMark)) first = first.subarray(byteOrderMark.length);
  async function* whole(): AsyncGenerator<Buffer> {
    yield first;
    yield* { [Symbol.asyncIterator]: () => chunks };
  }
  return { head: first.toString(), body: whole() };
}

async function* readNdjson(body: AsyncIterable<Buffer>): AsyncGenerator<readonly ImportLine[]> {
  for await (const records of splitRecords(body))
    yield records.map(({ line, bytes }) => ({ line, bytes: bytes?.length ?? 0, content: parseObject(bytes) }));
}

function parseObject(bytes: Buffer | undefined): Values | AppError {
  if (bytes === undefined) return new AppError('tooLarge');
  const { value, fault } = parseJson(bytes);
  if (fault === 'tooManyValues') return new AppError('invalid', { body: tooManyValues });
  return isPlainObject(value) ? value : new AppError('badJson');
}

async function* readCsv(
  body: AsyncIterable<Buffer>,
  delimiter: Delimiter,
  resourceOf: (name: unknown) => Resource | undefined,
): AsyncGenerator<readonly ImportLine[]> {
  let columns: readonly string[] | undefined;
  let isReadable = true;
  for await (const records of splitRecords(body, delimiter)) {
    // the rest is read all the same, so that the client gets the answer
    if (!isReadable) continue;
    const lines: ImportLine[] = [];
    for (const { line, bytes, cells } of parseCells(records, delimiter)) {
      const size = bytes?.length ?? 0;
      if (bytes === undefined || cells === undefined) {
        lines.push({ line, bytes: size, content: new AppError(bytes === undefined ? 'tooLarge' : 'badJson') });
        isReadable = columns !== undefined;
        if (!isReadable) break;
      } else if (columns === undefined) columns = cells.map((cell) => cell.trim());
      else {
        const resource = resourceOf(cells[columns.indexOf('resource')]);
        lines.push({ line, bytes: size, content: toValues(columns, cells, delimiter, resource) });
      }
    }
    if (lines.length > 0) yield lines;
  }
}
