import type { Request, RequestHandler, Response } from 'express';
import morgan from 'morgan';
import type { Config } from '../config.js';
import { createClientFinder } from './client-address.js';
import { localsOf } from './context.js';

type Token = (request: Request, response: Response) => string;
type LineFormat = (address: string | undefined, request: Request, response: Response) => string;

/** Reads one of morgan's tokens; `-` without a value. */
function morganToken(name: string, argument?: string): Token {
  const read = (morgan as unknown as morgan.TokenIndexer<Request, Response>)[name];
  return (request, response) => read?.(request, response, argument) ?? '-';
}

const status = morganToken('status');
const length = morganToken('res', 'content-length');
const httpVersion = morganToken('http-version');

function userOf(response: Response): string {
  const { principal } = localsOf(response);
  return principal === undefined ? '-' : escapeText(`${principal.user}@${principal.account}`);
}

const requestLine: Token = (...of) => {
  const [{ method, originalUrl }] = of;
  return `${method} ${escapeText(redactUrl(originalUrl))} HTTP/${httpVersion(...of)}`;
};

/** The combined log format, followed by application code, duration and request id. */
function createCombinedFormat(date: Token): LineFormat {
  return (address = '-', ...of) => {
    const [{ headers }, response] = of;
    const { referer = '-', 'user-agent': agent = '-' } = headers;
    const { code = '-', started_at_ms, request_id } = localsOf(response);
    const took_ms = (performance.now() - started_at_ms).toFixed(3);
    return (
      `${address} - ${userOf(response)} [${date(...of)}] "${requestLine(...of)}"` +
      ` ${status(...of)} ${length(...of)} "${escapeText(redactUrl(referer))}" "${escapeText(agent)}" ${code} ${took_ms} ms ${request_id}`
    );
  };
}

/** One JSON object; fields without a value, such as `account` without a valid key, are absent. */
function formatJson(address: string | undefined, request: Request, response: Response): string {
  const { code, cause, principal, request_id, started_at_ms } = localsOf(response);
  const bytes = Number(response.getHeader('content-length'));
  return JSON.stringify({
    time: new Date().toISOString(),
    method: request.method,
    path: redactUrl(request.originalUrl).slice(0, max_text_length),
    status: response.statusCode,
    code,
    bytes: Number.isNaN(bytes) ? undefined : bytes,
    took_ms: Math.round((performance.now() - started_at_ms) * 1000) / 1000,
    account: principal?.account,
    user: principal?.user,
    address,
    request_id,
    ...cause,
  });
}

/**
 * Logs one line per request once its response is sent. Text of clients is escaped; keys are never logged. Lines of one
 * turn of the event loop are passed to `write` together.
 */
export function accessLog(
  { log_format: format, trusted_proxies }: Pick<Config, 'log_format' | 'trusted_proxies'>,
  write: (lines: string) => void,
): RequestHandler {
  if (format === 'off') return (_request, _response, next) => next();
  const formatLine = format === 'json' ? formatJson : createCombinedFormat(cachePerSecond(morganToken('date', 'clf')));
  const findClient = createClientFinder(trusted_proxies);
  const isShown = format === 'combined' || trusted_proxies.length > 0;
  let lines = '';
  function flush(): void {
    const full = lines;
    lines = '';
    write(full);
  }
  return (request, response, next) => {
    // the socket has no address once it is closed
    const address = isShown ? findClient(request) : undefined;
    response.once('close', () => {
      if (lines === '') setImmediate(flush);
      lines += `${formatLine(address, request, response)}\n`;
    });
    next();
  };
}

function cachePerSecond(date: Token): Token {
  let second = 0;
  let text = '';
  return (request, response) => {
    const now = Math.floor(Date.now() / 1000);
    if (now !== second) text = date(request, response);
    second = now;
    return text;
  };
}

/** Parameters that order and shape an answer; all others may hold a key, a token or the value of a field. */
const loggedParameters = new Set(
  'max,offset,after,sort,order,fields,format,by,every,points,aggregate,op,confirm,dry_run,_m,_t'.split(','),
);

/** Replaces the token of a file link, and what parameters hold, in a path or URL. */
export function redactUrl(url: string): string {
  return url.replace(/(\/external\/files\/)[^/?]+/, '$1***').replace(/(?<=\?).*/s, redactQuery);
}

function redactQuery(query: string): string {
  return query
    .split('&')
    .map((parameter) => {
      const end = parameter.indexOf('=');
      const name = parameter.slice(0, end);
      return end < 0 || loggedParameters.has(name) ? parameter : `${name}=***`;
    })
    .join('&');
}

const unsafe = /["\\\p{Cc}\u2028\u2029]/u;
const max_text_length = 2000;

/** Shortens text of a client, and escapes quotes, backslashes and control characters as in JSON. */
function escapeText(text: string): string {
  const cut = text.slice(0, max_text_length);
  if (!unsafe.test(cut)) return cut;
  return cut
    .replace(/["\\]/g, '\\$&')
    .replace(/[\p{Cc}\u2028\u2029]/gu, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
