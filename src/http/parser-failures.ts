import { randomUUID } from 'node:crypto';
import { STATUS_CODES } from 'node:http';
import { type Failure, failures } from '../errors.js';
import { contentTypes } from './send.js';

/** An error of Node's HTTP parser, or its time limit. */
export interface ParserError {
  code?: string;
  /** Error of Node's parser. */
  reason?: string;
}

/** The error of a request that takes too long to arrive. */
export const arrivesTooLate: ParserError = { code: 'ERR_HTTP_REQUEST_TIMEOUT' };

const failureByCode: ReadonlyMap<string | undefined, Failure> = new Map([
  [arrivesTooLate.code, 'requestTimeout'],
  ['HPE_HEADER_OVERFLOW', 'headersTooLarge'],
  ['HPE_CHUNK_EXTENSIONS_OVERFLOW', 'tooLarge'],
]);

/** Formats the answer to bytes that are no request, which Node would answer without a body (reference/errors.md#error-body). */
export function formatParserFailure({ code: cause, reason }: ParserError, request_id: unknown = randomUUID()): string {
  const failure = failureByCode.get(cause) ?? 'badParameter';
  const { status, code, message } = failures[failure];
  const details = failure === 'badParameter' ? { request: `must be HTTP: ${reason}` } : {};
  const body = JSON.stringify({ code, message, details });
  const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nX-Request-Id: ${request_id}\r\nContent-Type: ${contentTypes.json}`;
  return `${head}\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`;
}
