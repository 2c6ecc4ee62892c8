import { createStore } from '../lib/store.js';

const key_item = 'device-platform.apikey';
const tokens_item = 'device-platform.tokens';

/** The tokens of a session at the issuer. */
export interface Tokens {
  /** Identifies a sign-in; a renewal keeps it. */
  session: string;
  /** The token that requests carry. */
  bearer: string;
  refresh_token?: string | undefined;
  /** By the clock of the browser. */
  issued_at_ms: number;
  lifetime_ms: number;
}

interface Credential {
  key?: string;
  tokens?: Tokens;
  notice?: string | undefined;
}

/** The key or the tokens of this tab, or the reason why the last ones were dropped. `sessionStorage` ends with the tab. */
export const keyStore = createStore<Credential>(readStored());

function readStored(): Credential {
  const key = sessionStorage.getItem(key_item);
  if (key !== null) return { key };
  const tokens = sessionStorage.getItem(tokens_item);
  return tokens === null ? {} : { tokens: JSON.parse(tokens) as Tokens };
}

export function storeKey(key: string): void {
  sessionStorage.setItem(key_item, key);
  keyStore.write({ key });
}

export function storeTokens(tokens: Tokens): void {
  sessionStorage.setItem(tokens_item, JSON.stringify(tokens));
  keyStore.write({ tokens });
}

/** Forgets key and tokens; `notice` is shown above the form for the next sign-in. */
export function dropKey(notice?: string): void {
  const { key, tokens } = keyStore.read();
  if (key === undefined && tokens === undefined) return;
  for (const item of [key_item, tokens_item]) sessionStorage.removeItem(item);
  keyStore.write({ notice });
}

/** Forgets what the service has rejected. @param isFirst with the first request */
export function dropRejected(isFirst: boolean): void {
  if (keyStore.read().tokens !== undefined) dropKey('Your sign-in is no longer valid. Sign in again.');
  else dropKey(isFirst ? 'This key is not valid.' : 'The key is no longer valid: it was revoked or has expired.');
}
