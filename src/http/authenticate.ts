import type { IncomingHttpHeaders } from 'node:http';
import type { RequestHandler } from 'express';
import { AppError } from '../errors.js';
import type { Keyring } from '../objects/api-keys.js';
import type { Admission } from './admission.js';
import { localsOf } from './context.js';

/** The documented header; messages name it for every other header too. */
const key_header = 'service.apikey';

/** An API key, and whether it came in a header that only programs of the former platform use. */
interface SentKey {
  text: string;
  isFormerClient: boolean;
}

/**
 * Finds the principal of a request (reference/access.md#authentication): by the first of `headers` that is
 * not blank, then by `Authorization`.
 * @returns a handler that throws AppError unauthorized (4011), database (5031), overloaded (5033)
 */
export function authenticate(
  keyring: Keyring,
  admission: Admission,
  headers: readonly string[],
  clock: () => number,
): RequestHandler {
  const hasOtherHeaders = headers.some((header) => header !== key_header);
  const keyHeaders = [...new Set([...headers, 'authorization'])];
  const varyingHeaders = [...headers, 'Authorization'].join(', ');
  return async (request, response, next) => {
    // devices are shown in another form to programs that use another header
    if (hasOtherHeaders) response.vary(varyingHeaders);
    const key = readKey(request.headers, keyHeaders);
    const find = () => (key === undefined ? Promise.resolve(undefined) : keyring.find(key.text, clock() / 1000));
    const principal = await admission.authenticating(find);
    if (key === undefined) throw new AppError('unauthorized', { [key_header]: 'is missing' });
    if (principal === undefined) throw new AppError('unauthorized', { [key_header]: 'is not valid' });
    const locals = localsOf(response);
    locals.principal = principal;
    locals.isFormerClient = key.isFormerClient;
    next();
  };
}

/** Reads the first header that is not blank. */
function readKey(sent: IncomingHttpHeaders, headers: readonly string[]): SentKey | undefined {
  for (const header of headers) {
    const text = header === 'authorization' ? readBearer(sent.authorization) : sent[header];
    if (typeof text === 'string' && text !== '')
      return { text, isFormerClient: header !== key_header && header !== 'authorization' };
  }
  return undefined;
}

/** @returns the token of the scheme `Bearer` (RFC 6750 §2.1) */
function readBearer(authorization: string | undefined): string | undefined {
  return /^bearer +([^ ].*)$/i.exec(authorization ?? '')?.[1];
}
