import { decodeJwt, type JWTPayload } from 'jose';
import { valueAt } from '../lib/paths.js';

/** Reads the payload of a JWT. @returns an empty object if it is none */
export function readPayload(token: string): JWTPayload {
  try {
    return decodeJwt(token);
  } catch {
    return {};
  }
}

/** Chooses the token for requests: the first with the claim, which issuers put into one or the other. */
export function chooseBearer(tokens: readonly (string | undefined)[], claim: string): string {
  const issued = tokens.filter((token) => token !== undefined);
  return issued.find((token) => valueAt(readPayload(token), claim) !== undefined) ?? issued[0] ?? '';
}
