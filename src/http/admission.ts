import { randomUUID } from 'node:crypto';
import type { RequestHandler } from 'express';
import { AppError } from '../errors.js';
import { localsOf } from './context.js';

/** Leaves time to send the response within 5 s (reference/requests.md#time-limits). */
const answer_limit_ms = 4500;
const max_in_flight = 1000;

/**
 * Admission control: assigns request ids, rejects requests beyond `max_in_flight` with 5033 before reading anything,
 * and answers with `timeoutError` at the time limit, by default 5031 because only the database blocks for that long.
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
