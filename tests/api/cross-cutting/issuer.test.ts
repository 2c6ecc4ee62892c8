import { afterAll, afterEach, beforeEach, expect, it } from '@jest/globals';
import { SignJWT } from 'jose';
import { AppError, failures } from '../../../src/errors.js';
import type { TokenLogin } from '../../../src/http/authenticate.js';
import { openTokenLogin } from '../../../src/oidc/token-login.js';
import { repeat, summarize } from '../../support/expect-status.js';
import { client_id, type Issuer, startIssuer } from '../../support/issuer.js';
import type { Answer } from '../../support/receiver.js';
import { startTestService } from '../../support/service.js';
import { createKey } from '../../support/sse.js';

let issuer: Issuer;
let login: TokenLogin;
let now: number;
const warnings: { message: string; reason: string }[] = [];
const log = {
  info() {},
  warn: ({ err }: { err?: Error }, message: string) => void warnings.push({ message, reason: String(err?.message) }),
  error() {},
};
const settings = () => ({ oidc_issuer: issuer.url, oidc_client_id: client_id, oidc_claim: 'platform' });
const service = await startTestService();
await createKey(service);
afterAll(() => service.stop());
beforeEach(async () => {
  now = 1_800_000_000;
  warnings.splice(0);
  issuer = await startIssuer();
  const opened = openTokenLogin(settings(), service.db, log);
  if (opened === undefined) throw new Error('not configured');
  login = opened;
});
afterEach(() => issuer.stop());

const platform = { account: 'acme', username: 'olga', scope: 'read' };
const sign = () => issuer.sign(now, { platform });
/** Signs with a key under another name. */
const signUnder = (kid: string, { key } = issuer.keyFor('ES256')) =>
  new SignJWT({ iss: issuer.url, aud: client_id, exp: now + 300, platform })
    .setProtectedHeader({ alg: 'ES256', kid })
    .sign(key);
/** Logs in. @returns the code of the answer, 200 for a principal */
async function send(token: string): Promise<number> {
  try {
    const principal = await login.find(token, now);
    if (principal !== undefined) expect(principal).toMatchObject({ account: 'acme', user: 'olga' });
    return principal === undefined ? 4011 : 200;
  } catch (error) {
    if (error instanceof AppError) return failures[error.failure].code;
    throw error;
  }
}
const forget_principals_s = 5;

it('reads the keys once, with the first token', async () => {
  expect(issuer.countKeyReads()).toBe(0);
  expect(await repeat(20, async () => send(await sign()))).toEqual(Array(20).fill(200));
  now += 300;
  expect(await send(await sign())).toBe(200);
  expect(issuer.countKeyReads()).toBe(1);
});

it('reads the keys again at once when they were rotated, and refuses the former ones then', async () => {
  const former = await sign();
  expect(await send(former)).toBe(200);
  await issuer.rotate();
  expect(await repeat(10, async () => send(await sign()))).toEqual(Array(10).fill(200));
  expect(issuer.countKeyReads()).toBe(2);
  now += forget_principals_s;
  expect(await send(former)).toBe(4011);
});

it('reads the keys again at most once a minute, however many unknown ones are named', async () => {
  expect(await send(await sign())).toBe(200);
  const storm = (begin: number) => repeat(100, async (n) => send(await signUnder(`unknown-${begin + n}`)));
  expect(new Set(await storm(0))).toEqual(new Set([4011]));
  expect(issuer.countKeyReads()).toBe(2);
  now += 59;
  expect(new Set(await storm(100))).toEqual(new Set([4011]));
  expect(issuer.countKeyReads()).toBe(2);
  now += 1;
  expect(new Set(await storm(200))).toEqual(new Set([4011]));
  expect(issuer.countKeyReads()).toBe(3);
  expect(await send(await sign())).toBe(200);
});

it('does not read the keys twice for a first token that names an unknown one', async () => {
  expect(await send(await signUnder('unknown'))).toBe(4011);
  expect(issuer.countKeyReads()).toBe(1);
});

it('refuses a key that the issuer has withdrawn after ten minutes', async () => {
  await send(await sign());
  const former = issuer.keyFor('ES256');
  await issuer.rotate();
  const signFormer = () => signUnder(former.kid, former);
  now += 599;
  expect(await send(await signFormer())).toBe(200);
  now += 1;
  // the first one has the keys read again, without waiting for it
  await send(await signFormer());
  while (issuer.countKeyReads() < 2) await send(await signFormer());
  now += forget_principals_s;
  expect(await send(await signFormer())).toBe(4011);
});

it('answers 5031 while the issuer is down and its keys are not known, and asks again within 60 s', async () => {
  await issuer.stop();
  expect(await send(await sign())).toBe(5031);
  // what no key can make valid needs none
  const hs256 = await new SignJWT({ platform }).setProtectedHeader({ alg: 'HS256' }).sign(Buffer.alloc(32));
  expect(await send(hs256)).toBe(4011);
  await issuer.restart();
  expect(await send(await sign())).toBe(5031);
  expect(issuer.countKeyReads()).toBe(0);
  now += 5;
  expect(await send(await sign())).toBe(200);
});

it('goes on with the keys that it knows while the issuer is down', async () => {
  expect(await send(await sign())).toBe(200);
  await issuer.stop();
  for (const seconds of [forget_principals_s, 600, 86_400]) {
    now += seconds;
    expect(await send(await sign())).toBe(200);
  }
  expect(await send(await signUnder('unknown'))).toBe(4011);
  await issuer.restart();
  await issuer.rotate();
  now += 60;
  expect(await send(await sign())).toBe(200);
});

const json =
  (body: unknown): Answer =>
  (response) =>
    void response.end(JSON.stringify(body));
const answers: [what: string, answer: () => Answer, reason: RegExp][] = [
  ['refuses', () => (response) => void response.writeHead(500).end(), /answered with status 500$/],
  ['redirects', () => (response) => void response.writeHead(302, { Location: '/other' }).end(), /redirects elsewhere/],
  [
    'switches protocols',
    () =>
      ({ socket }) =>
        void socket?.end('HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n'),
    /answered with status 101/,
  ],
  [
    'closes',
    () =>
      ({ socket }) =>
        void socket?.destroy(),
    /closed the connection without an answer/,
  ],
  ['sends no JSON', () => (response) => void response.end('<html>'), /JSON/],
  ['sends an array', () => json([]), /is no JSON object$/],
  ['sends too much', () => (response) => void response.end(`{"x":"${'x'.repeat(300_000)}"}`), /answers with too much$/],
  ['is another one', () => json({ issuer: 'https://example.org', jwks_uri: `${issuer.url}/jwks` }), /another issuer$/],
  ['has no jwks_uri', () => json({ issuer: issuer.url }), /no jwks_uri/],
  ['has keys without TLS', () => json({ issuer: issuer.url, jwks_uri: 'http://192.0.2.1/jwks' }), /no jwks_uri/],
  ['has no key set', () => json({ issuer: issuer.url, jwks_uri: `${issuer.url}/jwks` }), /Key Set malformed$/],
];
it('answers 5031 and logs why, whatever the issuer answers instead of its keys', async () => {
  for (const [what, answer, reason] of answers) {
    issuer.answer(answer());
    expect([what, await send(await sign())]).toEqual([what, 5031]);
    expect(warnings.splice(0)).toEqual([
      { message: 'the keys of OIDC_ISSUER could not be read', reason: expect.stringMatching(reason) },
    ]);
    now += 5;
  }
  issuer.answer(undefined);
  expect(await send(await sign())).toBe(200);
});

/** Keeps every request, and begins an answer that does not end. @returns a promise of the first request */
function holdAnswers(held: unknown[]): Promise<void> {
  return new Promise<void>((resolve) => {
    issuer.answer((response) => {
      held.push(response.writeHead(200).write('{'));
      resolve();
    });
  });
}

it('answers within 5 s while the issuer does not, and API keys do not wait', async () => {
  const waitingService = await startTestService({ ...settings(), log });
  const api = await waitingService.client();
  const held: unknown[] = [];
  const isHeld = holdAnswers(held);
  const headers = { Authorization: `Bearer ${await issuer.sign(waitingService.now(), { platform })}` };
  const waiting = repeat(10, () => waitingService.clientWith(undefined).get('/self/', headers));
  await isHeld;
  expect((await api.get('/self/')).status).toBe(200);
  expect((await waiting).map(summarize)).toEqual(Array(10).fill('5031'));
  expect(held).toHaveLength(1);
  await waitingService.stop();
});

it('has room for 1,000 tokens that wait for the issuer, and rejects more', async () => {
  const held: unknown[] = [];
  const isHeld = holdAnswers(held);
  const token = await sign();
  const codes = Array.from({ length: 1010 }, () => send(token));
  await isHeld;
  const count = new Map<number, number>();
  for (const code of await Promise.all(codes)) count.set(code, (count.get(code) ?? 0) + 1);
  expect([...count].sort()).toEqual([
    [5031, 1000],
    [5033, 10],
  ]);
  expect(held).toHaveLength(1);
});
