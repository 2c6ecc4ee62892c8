import type { IncomingHttpHeaders } from 'node:http';
import type { RequestHandler } from 'express';
import { AppError } from '../errors.js';
import type { Keyring, Principal } from '../objects/api-keys.js';
import type { Admission } from './admission.js';
import { localsOf } from './context.js';

/** The documented header; messages name it for every other header too. */
const key_header = 'service.apikey';

interface SentKey {
  text: string;
  /** In lower case. */
  header: string;
}

/** The login with tokens, which only `Authorization` carries. */
export interface TokenLogin {
  /** Reports whether a text has the form of a token. */
  accepts(text: string): boolean;
  /**
   * @returns undefined for a token that is not valid; `now` in epoch seconds
   * @throws AppError forbidden (4031), database (5031), overloaded (5033)
   */
  find(token: string, now: number): Promise<Principal | undefined>;
}

/**
 * Finds the principal of a request (reference/access.md#authentication): by the first of `headers` that is
 * not blank, then by `Authorization`.
 * @returns a handler that throws AppError unauthorized (4011), forbidden (4031), database (5031), overloaded (5033)
 */
export function authenticate(
  keyring: Keyring,
  tokens: TokenLogin | undefined,
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
    if (key === undefined) throw new AppError('unauthorized', { [key_header]: 'is missing' });
    const { text, header } = key;
    const now = clock() / 1000;
    const isToken = header === 'authorization' && tokens?.accepts(text) === true;
    const principal = isToken
      ? await tokens.find(text, now)
      : await admission.authenticating(() => keyring.find(text, now));
    if (principal === undefined) {
      // from the cache
      const expired = isToken ? undefined : await keyring.identify(text, now);
      const logged = expired && { reason: 'has expired', key_id: expired.key_id, account: expired.account };
      throw new AppError('unauthorized', { [key_header]: 'is not valid' }, { ...(logged && { logged }) });
    }
    const locals = localsOf(response);
    locals.principal = principal;
    locals.isFormerClient = header !== key_header && header !== 'authorization';
    next();
  };
}

/** The token of the scheme `Bearer` (RFC 6750 §2.1). */
const bearer = /^bearer +([^ ].*)$/i;

/** Reads the first header that is not blank. */
function readKey(sent: IncomingHttpHeaders, headers: readonly string[]): SentKey | undefined {
  for (const header of headers) {
    const text = header === 'authorization' ? bearer.exec(sent.authorization ?? '')?.[1] : sent[header];
    if (typeof text === 'string' && text !== '') return { text, header };
  }
  return undefined;
}
