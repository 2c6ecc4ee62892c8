import type { RequestHandler } from 'express';
import { rateLimit } from 'express-rate-limit';
import { AppError } from '../errors.js';
import { localsOf } from './context.js';

/** Allows `limit` requests per key, or user of tokens, and minute in this process (reference/access.md#rate-limit). */
export function rateLimiter(limit: number | undefined): RequestHandler {
  if (limit === undefined) return (_request, _response, next) => next();
  return rateLimit({
    windowMs: 60_000,
    limit,
    legacyHeaders: false,
    standardHeaders: false,
    validate: false,
    keyGenerator: (_request, response) => {
      const { key_id, account, user } = localsOf(response).principal ?? {};
      // no id of a key has an @
      return key_id ?? `${user}@${account}`;
    },
    handler: (_request, response, next) => {
      response.setHeader('Retry-After', '60');
      next(new AppError('tooMany'));
    },
  });
}
