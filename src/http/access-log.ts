import type { Request, RequestHandler, Response } from 'express';
import morgan from 'morgan';
import type { Config } from '../config.js';
import { localsOf } from './call.js';

const formats = {
  combined:
    ':remote-addr - :who [:date[clf]] ":method :target HTTP/:http-version" :status :res[content-length] ":from" ":agent"',
  common: ':remote-addr - :who [:date[clf]] ":method :target HTTP/:http-version" :status :res[content-length]',
  short: ':remote-addr :who :method :target HTTP/:http-version :status :res[content-length]',
  dev: ':method :target :status',
  tiny: ':method :target :status :res[content-length]',
};

/**
 * One line per request, each ending with the time it took and its id; text of clients is escaped, and keys are never
 * part of it. Lines that come together are handed to `write` together.
 */
export function accessLog(format: Config['log_format'], write: (lines: string) => void): RequestHandler {
  if (format === 'off') return (_request, _response, next) => next();
  const add = morgan.token<Request, Response>;
  const tokens = morgan as unknown as morgan.TokenIndexer<Request, Response>;
  add('remote-addr', (request) => request.socket.remoteAddress ?? '-');
  add('who', (_request, response) => {
    const { principal } = localsOf(response);
    return principal === undefined ? '-' : `${principal.user}@${principal.account}`;
  });
  add('target', (request) => escaped(loggable(request.originalUrl)));
  add('from', (request) => escaped(request.headers.referer ?? '-'));
  add('agent', (request) => escaped(request.headers['user-agent'] ?? '-'));
  add('took', (_request, response) => (performance.now() - localsOf(response).begun).toFixed(3));
  add('id', (_request, response) => localsOf(response).request_id);
  const lineOf = morgan.compile<Request, Response>(`${formats[format]} :took ms :id`);
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
      lines += `${lineOf(tokens, request, response)}\n`;
    });
    next();
  };
}

/** A path or address as logs show it: without what opens a file of a linked storage. */
export function loggable(url: string): string {
  return url.replace(/(\/external\/files\/)[^/?]+/, '$1***');
}

function escaped(text: string): string {
  return JSON.stringify(text.slice(0, 2000)).slice(1, -1);
}
