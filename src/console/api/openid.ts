import * as oauth from 'oauth4webapi';
import type { Tokens } from './key-store.js';
import { pageSettings } from './page-settings.js';
import { chooseBearer, readPayload } from './tokens.js';

/** State of a sign-in that survives the way to the issuer and back. */
export interface Pending {
  state: string;
  nonce: string;
  verifier: string;
  /** Address to show afterwards. */
  address: string;
}

const request_limit_ms = 15_000;
/** The service checks the times of tokens: the clock of a browser can be wrong. */
const clock_tolerance_s = 86_400;

const { issuer = '', client_id = '', scope = '', claim = '' } = pageSettings.oidc ?? {};
const client: oauth.Client = { client_id, [oauth.clockTolerance]: clock_tolerance_s };
const redirect_uri = `${location.origin}${pageSettings.prefix}/console/`;
const options = () => ({
  signal: AbortSignal.timeout(request_limit_ms),
  [oauth.allowInsecureRequests]: issuer.startsWith('http:'),
});

async function discover(): Promise<oauth.AuthorizationServer> {
  const url = new URL(issuer);
  return oauth.processDiscoveryResponse(url, await oauth.discoveryRequest(url, options()));
}

/** Prepares the way to the issuer: authorization code with PKCE (RFC 7636), without a secret. */
export async function prepareSignIn(): Promise<{ url: string; pending: Pending }> {
  const { authorization_endpoint } = await discover();
  if (authorization_endpoint === undefined) throw new Error('The issuer has no authorization endpoint.');
  const pending = {
    state: oauth.generateRandomState(),
    nonce: oauth.generateRandomNonce(),
    verifier: oauth.generateRandomCodeVerifier(),
    address: location.href,
  };
  const url = new URL(authorization_endpoint);
  const parameters = {
    client_id,
    redirect_uri,
    response_type: 'code',
    scope,
    state: pending.state,
    nonce: pending.nonce,
    code_challenge: await oauth.calculatePKCECodeChallenge(pending.verifier),
    code_challenge_method: 'S256',
  };
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  return { url: url.href, pending };
}

/** Exchanges the answer of the issuer for tokens. @throws Error */
export async function redeemCode(answer: URLSearchParams, { state, nonce, verifier }: Pending): Promise<Tokens> {
  const server = await discover();
  const code = oauth.validateAuthResponse(server, client, answer, state);
  const response = await oauth.authorizationCodeGrantRequest(
    server,
    client,
    oauth.None(),
    code,
    redirect_uri,
    verifier,
    options(),
  );
  const checks = { expectedNonce: nonce, requireIdToken: true };
  return toTokens(await oauth.processAuthorizationCodeResponse(server, client, response, checks), state);
}

/** Gets new tokens. @returns undefined if the issuer has ended the session @throws Error if it does not answer */
export async function renewTokens({ session, refresh_token = '' }: Tokens): Promise<Tokens | undefined> {
  const server = await discover();
  const response = await oauth.refreshTokenGrantRequest(server, client, oauth.None(), refresh_token, options());
  try {
    const answer = await oauth.processRefreshTokenResponse(server, client, response);
    return { refresh_token, ...toTokens(answer, session) };
  } catch (error) {
    if (error instanceof oauth.ResponseBodyError) return undefined;
    throw error;
  }
}

function toTokens({ id_token, access_token, refresh_token }: oauth.TokenEndpointResponse, session: string): Tokens {
  const bearer = chooseBearer([id_token, access_token], claim);
  const issued_at_ms = Date.now();
  const { exp = 0, iat = issued_at_ms / 1000 } = readPayload(bearer);
  const tokens = { session, bearer, issued_at_ms, lifetime_ms: (exp - iat) * 1000 };
  return refresh_token === undefined ? tokens : { ...tokens, refresh_token };
}

/** Revokes the tokens of a session, as far as the issuer allows. @returns the address that ends the session there */
export async function endSession({ refresh_token }: Tokens): Promise<string | undefined> {
  const server = await discover();
  if (refresh_token !== undefined && server.revocation_endpoint !== undefined)
    await oauth.revocationRequest(server, client, oauth.None(), refresh_token, options());
  if (server.end_session_endpoint === undefined) return undefined;
  const url = new URL(server.end_session_endpoint);
  // no id_token_hint: a token does not belong in an address
  url.searchParams.set('client_id', client_id);
  return url.href;
}
