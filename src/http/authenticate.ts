import type { RequestHandler } from 'express';
import { AppError } from '../errors.js';
import type { Keyring } from '../repositories/api-keys.js';
import type { Admission } from './admission.js';
import { localsOf } from './context.js';

/**
 * Finds the principal of a request by the first of `headers` that is present (reference/access.md#authentication).
 * @returns a handler that throws AppError unauthorized (4011), database (5031), overloaded (5033)
 */
export function authenticate(
  keyring: Keyring,
  admission: Admission,
  headers: readonly string[],
  clock: () => number,
): RequestHandler {
  return async (request, response, next) => {
    const key = headers.map((header) => request.headers[header]).find((value) => typeof value === 'string');
    const find = () => (typeof key === 'string' ? keyring.find(key, clock() / 1000) : Promise.resolve(undefined));
    const principal = await admission.authenticating(find);
    if (principal === undefined) throw new AppError('unauthorized');
    localsOf(response).principal = principal;
    next();
  };
}
