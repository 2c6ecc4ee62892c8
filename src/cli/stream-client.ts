import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { createBrotliDecompress, createGunzip } from 'node:zlib';
import { describeCause, parseBaseUrl, parseBody, RetryableError, throwIfRejected } from './api-client.js';

/** Sends requests whose bodies are streams in both directions. */
export type OpenStream = (
  method: 'GET' | 'POST',
  path: string,
  options?: { headers?: Record<string, string>; body?: Readable; signal?: AbortSignal },
) => Promise<Readable>;

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
        headers: { 'service.apikey': key, 'accept-encoding': 'br, gzip', ...headers },
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
            const { message, details } = parseBody(bytes.toString(), base);
            const text = `${method} ${base}${path}: ${status} ${message} ${JSON.stringify(details)}`;
            throw status === 429 || status >= 502 ? new RetryableError(text, undefined, true) : new Error(text);
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

/** Reads the lines of an answer; an incomplete one at the end is left out. @throws Error if the connection is lost */
export async function* readLines(answer: Readable): AsyncGenerator<string> {
  let rest = '';
  for await (const text of answer.setEncoding('utf8')) {
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    yield* lines;
  }
}
