import { createLocalJWKSet, errors, type JSONWebKeySet, type JWTVerifyGetKey } from 'jose';
import type { Log } from '../db/database.js';
import { isSecureAddress } from '../egress/addresses.js';
import { type Network, openNetwork, readBody } from '../egress/network.js';
import { createResolver } from '../egress/resolver.js';
import { AppError } from '../errors.js';
import { awaitLater } from '../lib/promises.js';
import { isPlainObject } from '../schema/fields/object.js';

/** The signing keys of the issuer of tokens. */
interface IssuerKeys {
  /**
   * Creates the look-up of the key that a token names.
   * @throws AppError database (5031) while no keys are known; errors of jose for a key that the issuer does not have
   */
  at(now_ms: number): JWTVerifyGetKey;
}

/** Leaves time to answer the request that waits for the keys. */
const read_limit_ms = 4000;
const max_document_bytes = 256 * 1024;
/** Older keys are read again, so that one that the issuer withdraws is refused. */
const max_age_ms = 600_000;
const retry_ms = 5000;
/** The operator chose the issuer, so it may be inside the network. */
const allow_nets = ['0.0.0.0/0', '::/0'];
/** A token can name any key: an unknown one makes the keys be read again only this often. */
const unknown_key_ms = 60_000;

/**
 * Opens the keys in the JWKS that the issuer's discovery document names (OpenID Connect Discovery 1.0 §4). They are read
 * when the first token comes, and stay in use while the issuer does not answer.
 */
export function openIssuerKeys(issuer: string, log: Log): IssuerKeys {
  // not the resolver of names that accounts choose, which remembers failures for longer
  const resolve = createResolver({ failure_kept_ms: retry_ms });
  const network = openNetwork({ allow_nets, variable: 'OIDC_ISSUER', resolve });
  let keySet: JWTVerifyGetKey | undefined;
  let reading: Promise<void> | undefined;
  const times = { read: 0, attempt: 0, unknown_key: 0 };
  // a clock that was set back must not block for longer
  const isPast = (time: keyof typeof times, period_ms: number, now_ms: number) =>
    Math.abs(now_ms - times[time]) >= period_ms;

  async function load(now_ms: number): Promise<void> {
    times.attempt = now_ms;
    try {
      keySet = createLocalJWKSet(await readKeys(network, issuer));
      times.read = now_ms;
    } catch (error) {
      log.warn({ err: error, issuer }, 'the keys of OIDC_ISSUER could not be read');
    }
  }

  function read(now_ms: number): Promise<void> {
    reading ??= awaitLater(
      load(now_ms).finally(() => {
        reading = undefined;
      }),
    );
    return reading;
  }

  /** Reads the keys again for a token that names an unknown one. @returns false if that has to wait */
  async function readForUnknownKey(now_ms: number): Promise<boolean> {
    if (reading === undefined) {
      if (!isPast('unknown_key', unknown_key_ms, now_ms)) return false;
      times.unknown_key = now_ms;
    }
    await read(now_ms);
    return true;
  }

  return {
    at: (now_ms) => async (header, token) => {
      const isFirst = keySet === undefined;
      if (isFirst && (reading !== undefined || isPast('attempt', retry_ms, now_ms))) await read(now_ms);
      if (keySet === undefined) {
        throw new AppError('database', {}, { cause: new Error('the keys of OIDC_ISSUER are not known') });
      }
      if (isPast('read', max_age_ms, now_ms) && isPast('attempt', retry_ms, now_ms))
        read(now_ms).catch(() => undefined);
      try {
        return await keySet(header, token);
      } catch (error) {
        if (!(error instanceof errors.JWKSNoMatchingKey) || isFirst || !(await readForUnknownKey(now_ms))) throw error;
        return keySet(header, token);
      }
    },
  };
}

/** Reads discovery document and JWKS. @throws Error */
async function readKeys(network: Network, issuer: string): Promise<JSONWebKeySet> {
  const signal = AbortSignal.timeout(read_limit_ms);
  const discovery = await readJson(network, `${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`, signal);
  if (discovery.issuer !== issuer) throw new Error('its discovery document names another issuer');
  const { jwks_uri } = discovery;
  if (typeof jwks_uri !== 'string' || !isSecureAddress(jwks_uri))
    throw new Error('its discovery document has no jwks_uri with https');
  return (await readJson(network, jwks_uri, signal)) as unknown as JSONWebKeySet;
}

async function readJson(network: Network, url: string, signal: AbortSignal): Promise<Record<string, unknown>> {
  const headers = { Accept: 'application/json', 'User-Agent': 'device-platform' };
  // the operator chose the address: it belongs to no account
  const response = await network.send(new URL(url), { account: '', method: 'GET', headers, signal });
  const body = await readBody(response, max_document_bytes);
  if (body === undefined) throw new Error(`${url} answers with too much`);
  if (response.statusCode !== 200) throw new Error(`${url} answered with status ${response.statusCode}`);
  const document: unknown = JSON.parse(body.toString());
  if (!isPlainObject(document)) throw new Error(`${url} is no JSON object`);
  return document;
}
