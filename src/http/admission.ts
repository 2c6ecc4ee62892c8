import { randomUUID } from 'node:crypto';
import type { RequestHandler } from 'express';
import { AppError } from '../errors.js';
import { localsOf } from './context.js';

/** Every request is answered within 5 s (contract 1); this leaves time to send. */
const answer_limit_ms = 4500;
const max_in_flight = 1000;

/**
 * Gives each request its id, rejects those beyond the limit (5033) before anything is read, and answers 5031 when time
 * runs out: what hangs then hangs in the database, unless `timeoutError` says otherwise.
 */
export function admissionControl(): RequestHandler {
  let in_flight = 0;
  return (_request, response, next) => {
    const locals = localsOf(response);
    locals.request_id = randomUUID();
    locals.started_at_ms = performance.now();
    response.setHeader('X-Request-Id', locals.request_id);
    in_flight++;
    const onTimeout = () => {
      if (response.headersSent) return;
      next(locals.timeoutError ?? new AppError('database', {}, { cause: new Error('not answered in time') }));
    };
    let timer = setTimeout(onTimeout, answer_limit_ms);
    const awaitBody = async (body: Promise<Buffer>) => {
      clearTimeout(timer);
      const received = await body;
      timer = setTimeout(onTimeout, answer_limit_ms);
      return received;
    };
    // not inlined: V8 allocates closures in a property assignment in old space, which keeps the request until a full GC
    locals.awaitBody = awaitBody;
    response.once('close', () => {
      in_flight--;
      clearTimeout(timer);
    });
    if (in_flight > max_in_flight) throw new AppError('overloaded');
    next();
  };
}
