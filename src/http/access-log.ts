import type { RequestHandler } from 'express';
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

/** One line per request, each ending with its time and id; text of clients is escaped, and keys are never part of it. */
export function accessLog(format: Config['log_format'], write: (line: string) => void): RequestHandler {
  if (format === 'off') return (_request, _response, next) => next();
  const log = morgan<import('express').Request, import('express').Response>;
  const tokens = morgan as unknown as {
    token(
      name: string,
      value: (request: import('express').Request, response: import('express').Response) => string,
    ): void;
  };
  tokens.token('who', (_request, response) => {
    const { principal } = localsOf(response);
    return principal === undefined ? '-' : `${principal.user}@${principal.account}`;
  });
  tokens.token('target', (request) => escaped(loggable(request.originalUrl)));
  tokens.token('from', (request) => escaped(request.headers.referer ?? '-'));
  tokens.token('agent', (request) => escaped(request.headers['user-agent'] ?? '-'));
  tokens.token('id', (_request, response) => localsOf(response).request_id);
  return log(`${formats[format]} :response-time ms :id`, { stream: { write } });
}

/** A path or address as logs show it: without what opens a file of a linked storage. */
export function loggable(url: string): string {
  return url.replace(/(\/external\/files\/)[^/?]+/, '$1***');
}

function escaped(text: string): string {
  return JSON.stringify(text.slice(0, 2000)).slice(1, -1);
}
