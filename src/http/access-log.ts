import type { Request, RequestHandler, Response } from 'express';
import morgan from 'morgan';
import type { Config } from '../config.js';
import { localsOf } from './context.js';

type Token = (request: Request, response: Response) => string;

/** What morgan knows of a request, or `-`. */
function token(name: string, argument?: string): Token {
  const read = (morgan as unknown as morgan.TokenIndexer<Request, Response>)[name];
  return (request, response) => read?.(request, response, argument) ?? '-';
}

const status = token('status');
const length = token('res', 'content-length');
const version = token('http-version');

function userOf(response: Response): string {
  const { principal } = localsOf(response);
  return principal === undefined ? '-' : escaped(`${principal.user}@${principal.account}`);
}

function requestLine({ method, originalUrl }: Request): string {
  return `${method} ${escaped(redactUrl(originalUrl))}`;
}

const line: Token = (...of) => `${requestLine(of[0])} HTTP/${version(...of)}`;
const outcome: Token = (...of) => `${status(...of)} ${length(...of)}`;

/** @param date the time of an answer, in the common log format */
function formatsWith(date: Token): Record<Exclude<Config['log_format'], 'off'>, Token> {
  const address = ({ socket }: Request) => socket.remoteAddress ?? '-';
  const common: Token = (request, response) => {
    const about = `${address(request)} - ${userOf(response)} [${date(request, response)}]`;
    return `${about} "${line(request, response)}" ${outcome(request, response)}`;
  };
  return {
    common,
    combined: (request, response) => {
      const { referer = '-', 'user-agent': agent = '-' } = request.headers;
      return `${common(request, response)} "${escaped(referer)}" "${escaped(agent)}"`;
    },
    short: (request, response) =>
      `${address(request)} ${userOf(response)} ${line(request, response)} ${outcome(request, response)}`,
    dev: (request, response) => `${requestLine(request)} ${status(request, response)}`,
    tiny: (request, response) => `${requestLine(request)} ${outcome(request, response)}`,
  };
}

/**
 * One line per request, each ending with the time it took and its id; text of clients is escaped, and keys are never
 * part of it. Lines that come together are handed to `write` together.
 */
export function accessLog(format: Config['log_format'], write: (lines: string) => void): RequestHandler {
  if (format === 'off') return (_request, _response, next) => next();
  const lineOf = formatsWith(oncePerSecond(token('date', 'clf')))[format];
  let lines = '';
  function flush(): void {
    const full = lines;
    lines = '';
    write(full);
  }
  return (request, response, next) => {
    // a socket remembers it once it was asked, and cannot tell when it is closed
    void request.socket.remoteAddress;
    response.once('close', () => {
      if (lines === '') setImmediate(flush);
      const { begun, request_id } = localsOf(response);
      lines += `${lineOf(request, response)} ${(performance.now() - begun).toFixed(3)} ms ${request_id}\n`;
    });
    next();
  };
}

function oncePerSecond(date: Token): Token {
  let second = 0;
  let shown = '';
  return (request, response) => {
    const now = Math.floor(Date.now() / 1000);
    if (now !== second) shown = date(request, response);
    second = now;
    return shown;
  };
}

/** A path or address as logs show it: without what opens a file of a linked storage. */
export function redactUrl(url: string): string {
  return url.replace(/(\/external\/files\/)[^/?]+/, '$1***');
}

const unsafe = /["\\\p{Cc}\u2028\u2029]/u;

/** Cut to 2,000 characters; quotes, backslashes and whatever a terminal could take for a command are escaped as in JSON. */
function escaped(text: string): string {
  const shown = text.slice(0, 2000);
  if (!unsafe.test(shown)) return shown;
  return shown
    .replace(/["\\]/g, '\\$&')
    .replace(/[\p{Cc}\u2028\u2029]/gu, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
