import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import { AppError } from '../errors.js';
import { runUntilTimeLimit, TimeLimitError } from '../lib/time-limit.js';
import { isPlainObject } from '../schema/fields/object.js';
import type { Values } from '../schema/fields.js';
import { notUtf8, parseJson, removeByteOrderMark } from '../schema/json.js';
import { chooseDelimiter, type Delimiter, type LineType, parseCells, parseHeader, toValues } from './parse-csv.js';
import { createScanner, splitRecords } from './split-records.js';

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
/** A byte order mark of UTF-16, or an ASCII character in it. */
const utf16Beginning = /^(?:\xff\xfe|\xfe\xff|\0[^\0]|[^\0]\0)/;
const anyLineBreak = /\r?\n|\r/;
/** A line break, and no carriage return to which a line feed may belong. */
const wholeLineBreak = /\n|\r./s;

/**
 * Reads the lines of an import while its body arrives, one batch for each chunk (reference/import.md#formats). It is CSV
 * if `Content-Type` says so or if it begins with something else than an object.
 * @param resourceOf the type that a line of CSV names
 */
export async function* readLines(
  request: IncomingMessage,
  resourceOf: (name: unknown) => LineType | undefined,
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
  const { code } = error as NodeJS.ErrnoException;
  if (!/^(?:Z_|ERR__)/.test(String(code))) throw error;
  return new AppError('badJson', { body: 'must be compressed as Content-Encoding says' });
}

async function* readDecoded(
  chunks: AsyncIterable<Buffer>,
  contentType: string,
  resourceOf: (name: unknown) => LineType | undefined,
): AsyncGenerator<readonly ImportLine[]> {
  const { head, body } = await readHead(chunks);
  if (utf16Beginning.test(head.toString('latin1', 0, 2))) {
    yield [{ line: 1, bytes: 0, content: new AppError('badJson', { body: `${notUtf8}, and is UTF-16` }) }];
    return readUnused(body);
  }
  const text = head.toString().trimStart();
  const isCsv = /^text\/csv\b/i.test(contentType) || (!/ndjson|jsonl/i.test(contentType) && !/^(?:[{[]|$)/.test(text));
  if (isCsv) yield* readCsv(body, chooseDelimiter(text.split(anyLineBreak)[0] ?? ''), resourceOf);
  else yield* readNdjson(body, anyLineBreak.exec(text)?.[0].at(-1));
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
    if (decoded_bytes > max_decoded_bytes(decoder.bytesWritten))
      throw new AppError('tooLarge', { body: 'must not be compressed to less than a hundredth' });
    yield chunk;
  }
}

/** Reads until the first line is complete. @returns it, and the whole body, without byte order mark */
async function readHead(body: AsyncIterable<Buffer>): Promise<{ head: Buffer; body: AsyncIterable<Buffer> }> {
  const chunks = body[Symbol.asyncIterator]();
  let first = Buffer.alloc(0);
  while (first.length < max_header_bytes && !wholeLineBreak.test(first.toString('latin1').trimStart())) {
    const { done, value } = await chunks.next();
    if (done === true) break;
    first = Buffer.concat([first, value]);
  }
  const head = removeByteOrderMark(first);
  async function* whole(): AsyncGenerator<Buffer> {
    yield head;
    yield* { [Symbol.asyncIterator]: () => chunks };
  }
  return { head, body: whole() };
}

/** Reads what is left of a body that is refused, so that the client gets the answer. */
async function readUnused(body: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of body);
}

async function* readNdjson(body: AsyncIterable<Buffer>, lineBreak = '\n'): AsyncGenerator<readonly ImportLine[]> {
  for await (const records of splitRecords(body, createScanner({ lineBreak })))
    yield records.map(({ line, content }) => ({ line, bytes: sizeOf(content), content: parseObject(content) }));
}

const sizeOf = (content: Buffer | AppError) => (Buffer.isBuffer(content) ? content.length : 0);

function parseObject(content: Buffer | AppError): Values | AppError {
  if (content instanceof AppError) return content;
  const { value, fault, reason = 'must be a JSON object' } = parseJson(content);
  if (isPlainObject(value)) return value;
  return new AppError(fault === 'tooManyValues' ? 'invalid' : 'badJson', { line: reason });
}

async function* readCsv(
  body: AsyncIterable<Buffer>,
  delimiter: Delimiter,
  resourceOf: (name: unknown) => LineType | undefined,
): AsyncGenerator<readonly ImportLine[]> {
  let columns: readonly string[] | undefined;
  const batches = splitRecords(body, createScanner({ delimiter }));
  for await (const records of batches) {
    const lines: ImportLine[] = [];
    for (const { line, content } of records) {
      const bytes = sizeOf(content);
      const cells = parseCells(content, delimiter);
      if (columns === undefined) {
        const header = cells instanceof AppError ? cells : parseHeader(cells, delimiter);
        if (header instanceof AppError) {
          yield [{ line, bytes, content: header }];
          return readUnused(batches);
        }
        columns = header;
      } else if (cells instanceof AppError) lines.push({ line, bytes, content: cells });
      else {
        const resource = resourceOf(cells[columns.indexOf('resource')]);
        lines.push({ line, bytes, content: toValues(columns, cells, delimiter, resource) });
      }
    }
    if (lines.length > 0) yield lines;
  }
}
