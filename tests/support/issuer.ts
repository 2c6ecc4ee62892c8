import { jest } from '@jest/globals';
import { type CryptoKey, exportJWK, generateKeyPair, type JWK, type JWTPayload, SignJWT } from 'jose';
import type Provider from 'oidc-provider';
import type { Configuration } from 'oidc-provider';
import { type Answer, startReceiver } from './receiver.js';

/** The client of the console at the issuer. */
export const client_id = 'device-platform';

type SigningAlgorithm = 'RS256' | 'PS256' | 'ES256' | 'EdDSA';
interface SigningKey {
  kid: string;
  key: CryptoKey;
}

/** An issuer on loopback: discovery and JWKS of oidc-provider, and tokens signed with its keys. */
export interface Issuer {
  url: string;
  /** Signs claims; `iss`, `aud` and `exp`, 300 s from `now`, have valid values unless the claims say otherwise. */
  sign(now: number, claims?: JWTPayload, alg?: SigningAlgorithm): Promise<string>;
  /** The private key for an algorithm. */
  keyFor(alg: SigningAlgorithm): SigningKey;
  /** Replaces all keys. */
  rotate(): Promise<void>;
  /** The public keys, as the issuer publishes them. */
  readKeys(): Promise<{ keys: JWK[] }>;
  /** Counts requests for the keys so far. */
  countKeyReads(): number;
  /** Answers otherwise; undefined: as the provider does. */
  answer(next: Answer | undefined): void;
  /** Closes the port, and opens it again. */
  stop(): Promise<void>;
  restart(): Promise<void>;
}

/** Generates a key pair. @returns the private key, also as a JWK */
export async function generateKey(alg: SigningAlgorithm, kid: string): Promise<SigningKey & { jwk: JWK }> {
  const { privateKey } = await generateKeyPair(alg, { extractable: true });
  return { kid, key: privateKey, jwk: { ...(await exportJWK(privateKey)), kid, use: 'sig', alg } };
}

/** Creates a provider without its warnings, which are about production. */
export async function createProvider(url: string, configuration: Configuration): Promise<Provider> {
  const muted = (['warn', 'info'] as const).map((method) => jest.spyOn(console, method).mockReturnValue(undefined));
  const { default: OidcProvider } = await import('oidc-provider');
  const provider = new OidcProvider(url, configuration);
  for (const spy of muted) spy.mockRestore();
  return provider;
}

/** Starts an issuer on 127.0.0.1. @param algorithms of which it has a key each */
export async function startIssuer(algorithms: readonly SigningAlgorithm[] = ['ES256']): Promise<Issuer> {
  let receiver = await startReceiver();
  const url = `http://127.0.0.1:${receiver.port}`;
  let generation = 0;
  let key_reads = 0;
  let keys = new Map<SigningAlgorithm, SigningKey>();
  let handle: ReturnType<Provider['callback']>;
  const serve: Answer = (response, { path }) => {
    if (path === '/jwks') key_reads++;
    void handle(response.req, response);
  };

  async function rotate(): Promise<void> {
    generation++;
    const generated = await Promise.all(algorithms.map((alg) => generateKey(alg, `${alg}-${generation}`)));
    keys = new Map(generated.map((key, index) => [algorithms[index] ?? 'ES256', key]));
    handle = (await createProvider(url, { jwks: { keys: generated.map(({ jwk }) => jwk) } })).callback();
  }
  await rotate();
  receiver.answer(serve);

  function keyFor(alg: SigningAlgorithm): SigningKey {
    const key = keys.get(alg);
    if (key === undefined) throw new Error(`no key for ${alg}`);
    return key;
  }

  return {
    url,
    sign(now, claims = {}, alg = 'ES256') {
      const { kid, key } = keyFor(alg);
      const payload = { iss: url, aud: client_id, sub: 'u-1', exp: now + 300, ...claims };
      return new SignJWT(payload).setProtectedHeader({ alg, kid }).sign(key);
    },
    keyFor,
    rotate,
    readKeys: async () => (await (await fetch(`${url}/jwks`)).json()) as { keys: JWK[] },
    countKeyReads: () => key_reads,
    answer: (next) => receiver.answer(next ?? serve),
    stop: () => receiver.close(),
    async restart() {
      receiver = await startReceiver(receiver.port, serve);
    },
  };
}
