import { hash } from 'node:crypto';
import { type JWTPayload, jwtVerify } from 'jose';
import { LRUCache } from 'lru-cache';
import type { Config } from '../config.js';
import type { Database, Log } from '../db/database.js';
import { AppError, createFieldErrors } from '../errors.js';
import type { TokenLogin } from '../http/authenticate.js';
import { createShares } from '../lib/shares.js';
import { checkLimit, hasKeys, type NewKey, type Principal, resolveLimit } from '../objects/api-keys.js';
import { isAccountName, limitCollections } from '../resources/api-key.js';
import { apikey } from '../resources/index.js';
import { parseDataPath, readPath } from '../schema/data-path.js';
import { isPlainObject, parseMembers } from '../schema/fields/object.js';
import { textMatching } from '../schema/fields/text.js';
import { type Fields, required } from '../schema/fields.js';
import { openIssuerKeys } from './issuer-keys.js';

const algorithms = ['RS256', 'PS256', 'ES256', 'EdDSA'];
/** The clocks of the issuer and of this machine may differ by this. */
const tolerance_s = 60;
const max_token_length = 8 * 1024;
/** As long as API keys are: what the claim names may be gone. */
const cache_s = 5;
const max_cached_tokens = 10_000;
/** Not the pool of API keys, which must not wait for the issuer. */
const max_verifying = 1000;
/** A JWS in compact form, whose header is a JSON object in base64url. */
const tokenPattern = /^ey[\w-]*\.[\w-]*\.[\w-]*$/;

/**
 * Opens the login with tokens of OIDC_ISSUER, if that is set (reference/access.md#sign-in-with-openid-connect). Principals are
 * cached for 5 s by digest of the token.
 */
export function openTokenLogin(
  { oidc_issuer: issuer, oidc_client_id: audience, oidc_claim: claim }: Partial<Config>,
  db: Database,
  log: Log,
): TokenLogin | undefined {
  if (issuer === undefined || audience === undefined || claim === undefined) return undefined;
  const keys = openIssuerKeys(issuer, log);
  const checks = { algorithms, issuer, audience, requiredClaims: ['exp'], clockTolerance: tolerance_s };
  const path = parseDataPath(claim) ?? { text: claim, steps: [{ key: claim }] };
  const cache = new LRUCache<string, { principal: Principal; until: number }>({ max: max_cached_tokens });
  const verifying = createShares({ capacity: max_verifying, max_per_account: max_verifying });

  async function verify(token: string, now: number): Promise<JWTPayload | undefined> {
    try {
      const options = { ...checks, currentDate: new Date(now * 1000) };
      const { payload } = await jwtVerify(token, keys.at(now * 1000), options);
      // of several audiences, the one that the token was issued to
      const { aud, azp = audience } = payload;
      return Array.isArray(aud) && aud.length > 1 && azp !== audience ? undefined : payload;
    } catch (error) {
      if (error instanceof AppError) throw error;
      return undefined;
    }
  }

  async function findPrincipal(token: string, now: number): Promise<Principal | undefined> {
    const payload = await verify(token, now);
    if (payload?.exp === undefined) return undefined;
    const claimed = parseClaim(readPath(payload, path));
    if (claimed === undefined) throw createRefusal('is missing or malformed');
    const { account, username: user, scope } = claimed;
    if (!(await hasKeys(db, account))) throw createRefusal('names an account without keys');
    const limit = await resolveLimit(db, account, claimed).catch((error: unknown) => {
      throw error instanceof AppError ? createRefusal('names an unknown object') : error;
    });
    return { account, user, scope, limit, key_id: undefined, expires_at: payload.exp };
  }

  return {
    accepts: (text) => tokenPattern.test(text),
    async find(token, now) {
      if (token.length > max_token_length) return undefined;
      const digest = hash('sha256', token, 'base64url');
      const cached = cache.get(digest);
      if (cached !== undefined && cached.until > now) return cached.principal;
      const principal = await verifying.run('', () => findPrincipal(token, now));
      if (principal?.expires_at !== undefined)
        cache.set(digest, { principal, until: Math.min(now + cache_s, principal.expires_at + tolerance_s) });
      return principal;
    },
  };
}

function createRefusal(claim: string): AppError {
  return new AppError('forbidden', {}, { logged: { claim } });
}

/** The user that the claim of a token describes (reference/access.md#sign-in-with-openid-connect). */
type Claim = Omit<NewKey, 'description' | 'expires_at'>;

const shared = ['username', 'scope', ...limitCollections.keys()];
const fields: Fields = {
  account: required(textMatching(60, isAccountName, 'the name of an account')),
  ...Object.fromEntries(Object.entries(apikey.fields).filter(([name]) => shared.includes(name))),
};

/** Parses an object, or an array of one. Members that are not declared make it malformed: one may be a misspelt limit. */
function parseClaim(value: unknown): Claim | undefined {
  const claim: unknown = Array.isArray(value) && value.length === 1 ? value[0] : value;
  if (!isPlainObject(claim)) return undefined;
  const faults = createFieldErrors();
  const parsed = parseMembers(fields, claim, '', faults);
  checkLimit(parsed, faults);
  return Object.keys(faults).length === 0 ? (parsed as unknown as Claim) : undefined;
}
