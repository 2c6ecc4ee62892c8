import { createStore } from '../lib/store.js';
import { describeError, RequestError } from './errors.js';
import { dropKey, keyStore, storeTokens, type Tokens } from './key-store.js';
import type { Pending } from './openid.js';
import { pageSettings } from './page-settings.js';

const redirect_path = `${pageSettings.prefix}/console/`;
const pending_item = 'device-platform.sign-in';
/** A token is renewed when this part of its lifetime has passed. */
const renewed_at = 0.75;
/** After a failure the issuer is not asked for this time. */
const retry_ms = 5000;

/** Only a sign-in at an issuer loads the library. */
const loadOpenId = () => import('./openid.js');

/** Address that ends the session at the issuer, after a sign-out here. */
export const endOfSession = createStore<string | undefined>(undefined);

/** Leaves for the issuer. @throws Error if it cannot be reached */
export async function goToIssuer(): Promise<void> {
  const { url, pending } = await (await loadOpenId()).prepareSignIn();
  sessionStorage.setItem(pending_item, JSON.stringify(pending));
  location.assign(url);
}

/** Finishes a sign-in if the address holds the answer of the issuer, and shows the address from which it began. */
export async function finishSignIn(): Promise<void> {
  const stored = sessionStorage.getItem(pending_item);
  const answer = new URLSearchParams(location.search);
  const isAnswer =
    location.pathname === redirect_path && answer.has('state') && (answer.has('code') || answer.has('error'));
  if (stored === null || !isAnswer) return;
  sessionStorage.removeItem(pending_item);
  const pending = JSON.parse(stored) as Pending;
  history.replaceState(null, '', pending.address);
  try {
    storeTokens(await (await loadOpenId()).redeemCode(answer, pending));
  } catch (error) {
    // the codes of RFC 6749; a description could be anything that a link has in it
    const [reason] = /^[a-z_]{1,50}$/.exec(answer.get('error') ?? '') ?? [describeError(error)];
    keyStore.write({ notice: `The sign-in has failed: ${reason}` });
  }
}

/** Signs out here; afterwards `endOfSession` says how to sign out at the issuer, too. */
export async function signOut(): Promise<void> {
  const { tokens } = keyStore.read();
  dropKey();
  if (tokens === undefined) return;
  endOfSession.write(
    await loadOpenId()
      .then(({ endSession }) => endSession(tokens))
      .catch(() => undefined),
  );
}

/** Returns the header with the key or the token of this tab. @throws RequestError while an expired token cannot be renewed */
export async function readCredential(): Promise<Record<string, string>> {
  const { key, tokens } = keyStore.read();
  if (tokens === undefined) return { 'service.apikey': key ?? '' };
  const passed = () => (Date.now() - tokens.issued_at_ms) / tokens.lifetime_ms;
  if (tokens.refresh_token !== undefined && passed() >= renewed_at) {
    await renewal.run(tokens);
    if (keyStore.read().tokens === tokens && passed() >= 1) throw new RequestError(0, 0, 'the issuer does not answer');
  }
  const { bearer } = keyStore.read().tokens ?? tokens;
  return { Authorization: `Bearer ${bearer}` };
}

/** Renews tokens, once for all requests that wait for it. */
const renewal = createRenewal();

function createRenewal() {
  let running: Promise<void> | undefined;
  let not_before_ms = 0;

  async function renew(tokens: Tokens): Promise<void> {
    try {
      const renewed = await (await loadOpenId()).renewTokens(tokens);
      // the user may have signed out since
      if (keyStore.read().tokens !== tokens) return;
      if (renewed !== undefined) storeTokens(renewed);
      else dropKey('Your session has ended. Sign in again.');
    } catch {
      not_before_ms = Date.now() + retry_ms;
    }
  }

  return {
    async run(tokens: Tokens): Promise<void> {
      if (Date.now() < not_before_ms) return;
      running ??= renew(tokens).finally(() => {
        running = undefined;
      });
      await running;
    },
  };
}
