import type { RequestHandler } from 'express';
import { rateLimit } from 'express-rate-limit';
import { AppError } from '../errors.js';
import { localsOf } from './context.js';

/** Allows `limit` requests per key and minute in this process (reference/access.md#rate-limit). */
export function rateLimiter(limit: number | undefined): RequestHandler {
  if (limit === undefined) return (_request, _response, next) => next();
  return rateLimit({
    windowMs: 60_000,
    limit,
    legacyHeaders: false,
    standardHeaders: false,
    validate: false,
    keyGenerator: (_request, response) => localsOf(response).principal?.key_id ?? '',
    handler: (_request, response, next) => {
      response.setHeader('Retry-After', '60');
      next(new AppError('tooMany'));
    },
  });
}
