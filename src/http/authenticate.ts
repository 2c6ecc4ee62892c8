import type { RequestHandler } from 'express';
import { AppError } from '../errors.js';
import type { Keyring } from '../repositories/api-keys.js';
import { localsOf } from './context.js';

/**
 * Looks up the API key in the first of `headers` that a request has (reference/access.md#authentication).
 * @throws AppError unauthorized (4011), database (5031)
 */
export function authenticate(keyring: Keyring, headers: readonly string[], clock: () => number): RequestHandler {
  return async (request, response, next) => {
    const key = headers.map((header) => request.headers[header]).find((value) => typeof value === 'string');
    const principal = typeof key === 'string' ? await keyring.find(key, clock() / 1000) : undefined;
    if (principal === undefined) throw new AppError('unauthorized');
    localsOf(response).principal = principal;
    next();
  };
}
