import { randomUUID } from 'node:crypto';
import type { RequestHandler } from 'express';
import { AppError } from '../errors.js';
import { localsOf } from './context.js';

/** Every request is answered within 5 s (contract 1); this leaves time to send. */
const answer_limit_ms = 4500;
const most_in_flight = 1000;

/**
 * Gives the request its id, refuses what is beyond the bound (5033) before anything is read, and answers 5031
 * when time runs out: whatever hangs then hangs in the database or on the way to it, unless the request says otherwise.
 */
export function admissionControl(): RequestHandler {
  let in_flight = 0;
  return (_request, response, next) => {
    const locals = localsOf(response);
    locals.request_id = randomUUID();
    locals.begun = performance.now();
    response.setHeader('X-Request-Id', locals.request_id);
    in_flight++;
    const late = () => {
      if (response.headersSent) return;
      next(locals.timeoutError ?? new AppError('database', {}, { cause: new Error('not answered in time') }));
    };
    let timer = setTimeout(late, answer_limit_ms);
    const receiving = async (body: Promise<Buffer>) => {
      clearTimeout(timer);
      const received = await body;
      timer = setTimeout(late, answer_limit_ms);
      return received;
    };
    // V8 makes a function that is written where it is assigned to a property live long, and with it the whole request
    locals.awaitBody = receiving;
    response.once('close', () => {
      in_flight--;
      clearTimeout(timer);
    });
    if (in_flight > most_in_flight) throw new AppError('overloaded');
    next();
  };
}
