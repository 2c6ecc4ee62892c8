import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { createBrotliDecompress, createGunzip } from 'node:zlib';

/** Sends requests whose bodies are streams in both directions. */
export type OpenStream = (
  method: 'GET' | 'POST',
  path: string,
  options?: { headers?: Record<string, string>; body?: Readable; signal?: AbortSignal },
) => Promise<Readable>;

/** The service is unreachable, overloaded or limits the rate. */
export class RetryableError extends Error {
  readonly hasResponse: boolean;
  readonly retry_after_ms: number;
  constructor(message: string, { hasResponse = false, retry_after_ms = 0 } = {}) {
    super(message);
    this.hasResponse = hasResponse;
    this.retry_after_ms = retry_after_ms;
  }
}

const idle_timeout_ms = 120_000;

/**
 * Creates a client for streams. Unlike `fetch` it hands the answer out while the body is still sent.
 * @throws Error if `url` or `key` cannot be valid
 */
export function createStreamClient(url: string, key: string): OpenStream {
  const base = parseBaseUrl(url, key);
  const request = base.startsWith('https:') ? requestHttps : requestHttp;
  return (method, path, { headers = {}, body, signal } = {}) =>
    new Promise((resolve, reject) => {
      const call = request(base + path, {
        method,
        headers: { 'service.apikey': key, 'accept-encoding': 'br, gzip', connection: 'close', ...headers },
        ...(signal !== undefined && { signal }),
      });
      const fail = (error: unknown) => reject(new RetryableError(`${base} is unreachable: ${describeCause(error)}`));
      call.on('error', fail).setTimeout(idle_timeout_ms, () => call.destroy(new Error('no answer')));
      call.on('response', (response) => {
        const answer = decode(response, response.headers['content-encoding']);
        if (response.statusCode === 200) return resolve(answer);
        body?.unpipe(call);
        buffer(answer)
          .then((bytes) => {
            const { statusCode: status = 0 } = response;
            throwIfRejected(status);
            const { message, details } = parseBody<{ message?: string; details?: object }>(bytes.toString(), base);
            const text = `${method} ${base}${path}: ${status} ${message} ${JSON.stringify(details)}`;
            throw status === 429 || status >= 502 ? new RetryableError(text, { hasResponse: true }) : new Error(text);
          })
          .catch(reject);
      });
      if (body === undefined) call.end();
      else body.on('error', reject).pipe(call);
    });
}

/** A decoder passes errors of the connection on. */
function decode(response: Readable, encoding: string | undefined): Readable {
  const decoder = encoding === 'br' ? createBrotliDecompress() : encoding === 'gzip' ? createGunzip() : undefined;
  if (decoder === undefined) return response;
  response.on('error', (error) => decoder.destroy(error));
  return response.pipe(decoder);
}

/** Checks the base URL and the key. @returns the URL without a slash at its end. @throws Error if they cannot be valid */
export function parseBaseUrl(url: string, key: string): string {
  if (!URL.canParse(url) || !/^https?:/i.test(url)) throw new Error(`not an http URL: ${url}`);
  // error messages of clients would contain the key
  if (!/^[\x21-\x7e]+$/.test(key)) throw new Error('the API key is rejected: it contains invalid characters');
  return url.replace(/\/+$/, '');
}

/** @throws Error if the status is that of a rejected key */
export function throwIfRejected(status: number): void {
  if (status === 401) throw new Error('the API key is rejected: unknown, revoked or expired (401)');
  if (status === 403) throw new Error('the API key is rejected: its scope is too small (403)');
}

/** Parses a body that should be JSON of the service. @throws Error otherwise */
export function parseBody<Body extends object>(text: string, base: string): Body {
  try {
    const body: unknown = JSON.parse(text);
    if (typeof body === 'object' && body !== null) return body as Body;
  } catch {}
  throw new Error(`the server at ${base} is not the service: is this its base URL?`);
}

/** Returns the reason of a failed connection, which `fetch` keeps in `cause`. */
export function describeCause(error: unknown): string {
  const { cause = error } = error instanceof Error ? error : {};
  if (!(cause instanceof Error)) return String(cause);
  return ('code' in cause && typeof cause.code === 'string' && cause.code) || cause.message || cause.name;
}

/** Reads the lines of an answer; an incomplete one at the end is left out. @throws Error if the connection is lost */
export async function* readLines(answer: Readable): AsyncGenerator<string> {
  let rest = '';
  for await (const text of answer.setEncoding('utf8')) {
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    yield* lines;
  }
}
