import { createPrivateKey, createPublicKey, type JsonWebKey } from 'node:crypto';
import { afterAll, describe, expect, it } from '@jest/globals';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { summarize } from '../../support/expect-status.js';
import { client_id, type Issuer, startIssuer } from '../../support/issuer.js';
import { type Api, type Reply, startTestService } from '../../support/service.js';
import { createKey, follow } from '../../support/sse.js';

const anonymous = () => service.clientWith(undefined);
const issuer = await startIssuer(['RS256', 'PS256', 'ES256', 'EdDSA']);
const service = await startTestService({
  oidc_issuer: issuer.url,
  oidc_client_id: client_id,
  oidc_claim: 'realm.platform',
});
const api = await service.client();
for (const account of ['acme', 'other']) await createTree(await service.client({ account }), account);

/** Creates one object of each level. */
async function createTree(client: Api, account: string): Promise<void> {
  const bodies = [
    ['projects', { name: account === 'acme' ? 'Plant' : 'Works', id_customer: 'c-1' }],
    ['services', { name: 'Cooling', id_project: account === 'acme' ? 'Plant@acme' : 'Works@other' }],
    ['groups', { name: account === 'acme' ? 'Hall' : 'Depot', id_service: `Cooling@${account}` }],
    ['devices', { name: 'Pump', type: 'pump', id_group: account === 'acme' ? 'Hall@acme' : 'Depot@other' }],
  ] as const;
  for (const [plural, body] of bodies) expect(summarize(await client.post(`/${plural}/`, body))).toBe('2001');
}
afterAll(async () => {
  await service?.stop();
  await issuer?.stop();
});

type Claims = Parameters<Issuer['sign']>[1];
const claim = { account: 'acme', username: 'olga', scope: 'write' };
const withClaim = (value: unknown) => ({ realm: { platform: value } });
const sign = (claims: Claims = {}, ...rest: [Parameters<Issuer['sign']>[2]?]) =>
  issuer.sign(service.now(), { ...withClaim(claim), ...claims }, ...rest);
const send = (token: string, path = '/self/', method = 'GET', body?: object): Promise<Reply> =>
  anonymous().send(
    method,
    path,
    { Authorization: `Bearer ${token}`, ...(body && { 'Content-Type': 'application/json' }) },
    body && JSON.stringify(body),
  );
const unauthorized = { code: 4011, message: 'unauthorized', details: { 'service.apikey': 'is not valid' } };
const forbidden = { code: 4031, message: 'forbidden', details: {} };
const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');

describe('a token that is accepted', () => {
  it.each(['RS256', 'PS256', 'ES256', 'EdDSA'] as const)('is signed with %s, and is shown by /self/', async (alg) => {
    const reply = await send(await sign({}, alg));
    expect(reply.status).toBe(200);
    expect(reply.body).toEqual({ account: 'acme', username: 'olga', scope: 'write', expires_at: service.now() + 300 });
  });

  it.each<[string, () => Claims]>([
    ['names more audiences', () => ({ aud: ['account', client_id] })],
    ['is for more audiences, and for us in the first place', () => ({ aud: ['account', client_id], azp: client_id })],
    ['has its claim in an array', () => withClaim([claim])],
    ['expired 59 s ago', () => ({ exp: service.now() - 59 })],
    ['begins in 60 s', () => ({ nbf: service.now() + 60 })],
    ['was issued in an hour, by its own clock', () => ({ iat: service.now() + 3600 })],
  ])('%s', async (_what, claims) => {
    expect((await send(await sign(claims()))).body).toMatchObject({ account: 'acme', username: 'olga' });
  });

  it('may call itself an access token, and the scheme has any letter case', async () => {
    const { kid, key } = issuer.keyFor('ES256');
    const payload = { iss: issuer.url, aud: client_id, exp: service.now() + 9, ...withClaim(claim) };
    const token = await new SignJWT(payload).setProtectedHeader({ alg: 'ES256', kid, typ: 'at+jwt' }).sign(key);
    const reply = await anonymous().get('/self/', { Authorization: `bEARER  ${token}` });
    expect(reply.body).toMatchObject({ username: 'olga' });
  });

  it('acts for its user, in its account, within its scope', async () => {
    const project = { name: 'Of a token', id_customer: 'c-1' };
    const token = await sign();
    const created = await send(token, '/projects/', 'POST', project);
    expect(summarize(created)).toBe('2001');
    expect((await api.get('/projects/Of%20a%20token@acme/')).body).toMatchObject({ owner: 'olga', updater: 'olga' });
    const other = await sign(withClaim({ ...claim, account: 'other' }));
    await createKey(service, { account: 'other' });
    expect(summarize(await send(other, '/projects/Of%20a%20token@acme/'))).toBe('4041');
    expect(summarize(await send(token, '/apikeys/'))).toBe('4031');
    const reader = await sign(withClaim({ ...claim, scope: 'read' }));
    expect((await send(reader, '/projects/')).status).toBe(200);
    expect(summarize(await send(reader, '/projects/', 'POST', project))).toBe('4031');
    const admin = await sign(withClaim({ ...claim, scope: 'admin' }));
    expect((await send(admin, '/apikeys/')).status).toBe(200);
  });

  it.each([
    ['id_project', 'Plant@acme', 'write'],
    ['id_service', 'Cooling@acme', 'read'],
    ['id_group', 'Hall@acme', 'stream'],
    ['id_device', 'Pump@acme', 'device'],
  ])('is limited by %s, as a key is', async (field, id, scope) => {
    const reply = await send(await sign(withClaim({ ...claim, scope, [field]: id })));
    expect(reply.body).toEqual({
      account: 'acme',
      username: 'olga',
      scope,
      [field]: id,
      expires_at: service.now() + 300,
    });
  });

  it('stands beside API keys, whose headers come first', async () => {
    const { key } = await createKey(service, { username: 'alice' });
    const token = await sign();
    expect((await send(key)).body).toMatchObject({ username: 'alice' });
    const both = { Authorization: `Bearer ${token}`, 'service.apikey': key };
    expect((await anonymous().get('/self/', both)).body).toMatchObject({ username: 'alice' });
    expect((await service.clientWith(token).get('/self/')).body).toEqual(unauthorized);
  });
});

/** The claims of a valid token, with changes; `undefined` leaves one out. */
const signWith = (change: (now: number) => Record<string, unknown>) => sign(change(service.now()) as Claims);

describe('a token that is not valid', () => {
  it.each<[string, (now: number) => Record<string, unknown>]>([
    ['another audience', () => ({ aud: 'someone-else' })],
    ['other audiences', () => ({ aud: ['account', `${client_id}-2`] })],
    ['other audiences, for one of which it was issued', () => ({ aud: ['other', client_id], azp: 'other' })],
    ['no audience', () => ({ aud: undefined })],
    ['another issuer', () => ({ iss: 'https://example.org' })],
    ['the issuer with a slash', () => ({ iss: `${issuer.url}/` })],
    ['no issuer', () => ({ iss: undefined })],
    ['no expiry', () => ({ exp: undefined })],
    ['text as expiry', (now) => ({ exp: String(now + 300) })],
    ['an expiry 60 s ago', (now) => ({ exp: now - 60 })],
    ['a begin in 61 s', (now) => ({ nbf: now + 61 })],
    ['text as begin', () => ({ nbf: 'now' })],
  ])('has %s', async (_what, change) => {
    const reply = await send(await signWith(change));
    expect([reply.status, reply.body]).toEqual([401, unauthorized]);
  });

  const payload = () => ({ iss: issuer.url, aud: client_id, exp: service.now() + 300, ...withClaim(claim) });
  const unsigned = (header: object) => `${encode(header)}.${encode(payload())}`;
  const signSymmetric = async (alg: string, secret: string | Buffer, kid: string) =>
    new SignJWT(payload()).setProtectedHeader({ alg, kid }).sign(Buffer.from(secret));
  const readPublicKey = async () => {
    const { keys } = await issuer.readKeys();
    const jwk = keys.find(({ alg }) => alg === 'RS256');
    return { jwk, key: createPublicKey({ key: jwk as JsonWebKey, format: 'jwk' }), kid: String(jwk?.kid) };
  };

  it.each<[string, () => Promise<string> | string]>([
    ['alg none', () => `${unsigned({ alg: 'none' })}.`],
    ['alg None', () => `${unsigned({ alg: 'None', kid: 'RS256-1' })}.`],
    ['alg none and a signature', async () => `${unsigned({ alg: 'none' })}.${(await sign()).split('.')[2]}`],
    ['no signature', async () => (await sign()).replace(/[^.]*$/, '')],
    ['two parts', async () => (await sign()).replace(/\.[^.]*$/, '')],
    [
      'the signature of another payload',
      async () => {
        const [header, , signature] = (await sign()).split('.');
        return `${header}.${encode({ ...payload(), ...withClaim({ ...claim, scope: 'admin' }) })}.${signature}`;
      },
    ],
    ['HS256 with a secret', () => signSymmetric('HS256', 'a secret of thirty-two characters', 'RS256-1')],
    [
      'HS256 with the public key as PEM',
      async () => {
        const { key, kid } = await readPublicKey();
        return signSymmetric('HS256', key.export({ type: 'spki', format: 'pem' }), kid);
      },
    ],
    [
      'HS512 with the public key as DER',
      async () => {
        const { key, kid } = await readPublicKey();
        return signSymmetric('HS512', key.export({ type: 'spki', format: 'der' }), kid);
      },
    ],
    [
      'HS256 with the public key as JWK',
      async () => {
        const { jwk, kid } = await readPublicKey();
        return signSymmetric('HS256', JSON.stringify(jwk), kid);
      },
    ],
    [
      'RS512, with the key for RS256',
      async () => {
        const key = createPrivateKey({
          key: (await exportJWK(issuer.keyFor('RS256').key)) as JsonWebKey,
          format: 'jwk',
        });
        return new SignJWT(payload()).setProtectedHeader({ alg: 'RS512', kid: 'RS256-1' }).sign(key);
      },
    ],
    [
      'a key of its own under the name of another',
      async () => {
        const { privateKey } = await generateKeyPair('ES256');
        return new SignJWT(payload()).setProtectedHeader({ alg: 'ES256', kid: 'ES256-1' }).sign(privateKey);
      },
    ],
    [
      'a key of its own in its header',
      async () => {
        const { privateKey, publicKey } = await generateKeyPair('ES256', { extractable: true });
        const jwk = await exportJWK(publicKey);
        return new SignJWT(payload()).setProtectedHeader({ alg: 'ES256', jwk }).sign(privateKey);
      },
    ],
    [
      'an extension that must be understood',
      async () => {
        const { key, kid } = issuer.keyFor('ES256');
        const header = { alg: 'ES256', kid, crit: ['x'], x: 1 };
        return new SignJWT(payload()).setProtectedHeader(header).sign(key, { crit: { x: true } });
      },
    ],
    ['five parts', async () => `${await sign()}.a.b`],
    ['a payload that is no JSON', () => `${encode({ alg: 'RS256' })}.e30x.${encode('x')}`],
    ['no header', async () => (await sign()).replace(/^[^.]*/, 'ey')],
  ])('has %s', async (_what, create) => {
    const reply = await send(await create());
    expect([reply.status, reply.body]).toEqual([401, unauthorized]);
  });

  it('is longer than 8 KiB', async () => {
    let token = '';
    for (let padding = 5000; token.length < 8192; padding += Math.max(1, Math.floor((8192 - token.length) / 2)))
      token = await sign({ padding: 'x'.repeat(padding) }, 'EdDSA');
    expect(token.length).toBe(8192);
    expect((await send(token)).status).toBe(200);
    for (const padding of [6200, 9000]) {
      const reply = await send(await sign({ padding: 'x'.repeat(padding) }, 'EdDSA'));
      expect([reply.status, reply.body]).toEqual([401, unauthorized]);
    }
  });
});

describe('a token of a user without access is 403', () => {
  it.each<[string, Record<string, unknown>]>([
    ['no claim', { realm: undefined }],
    ['a claim that ends above', { realm: 'platform' }],
    ['the claim at another path', { realm: undefined, 'realm.platform': claim }],
    ['null', withClaim(null)],
    ['text', withClaim('acme')],
    ['an empty object', withClaim({})],
    ['an empty array', withClaim([])],
    ['an array of two', withClaim([claim, claim])],
    ['an array in an array', withClaim([[claim]])],
    ['no account', withClaim({ ...claim, account: undefined })],
    ['an account that has no such name', withClaim({ ...claim, account: 'a/b' })],
    ['a number as account', withClaim({ ...claim, account: 7 })],
    ['no username', withClaim({ ...claim, username: undefined })],
    ['a username with a space', withClaim({ ...claim, username: 'o l' })],
    ['a username of 51 characters', withClaim({ ...claim, username: 'o'.repeat(51) })],
    ['no scope', withClaim({ ...claim, scope: undefined })],
    ['an unknown scope', withClaim({ ...claim, scope: 'owner' })],
    ['scopes in an array', withClaim({ ...claim, scope: ['read'] })],
    ['an unknown member', withClaim({ ...claim, id_grp: 'Hall@acme' })],
    ['an unknown group', withClaim({ ...claim, id_group: 'None@acme' })],
    ['a group of another account', withClaim({ ...claim, id_group: 'Depot@other' })],
    ['a project as group', withClaim({ ...claim, id_group: 'Plant@acme' })],
    ['a number as group', withClaim({ ...claim, id_group: 7 })],
    ['two limits', withClaim({ ...claim, id_group: 'Hall@acme', id_project: 'Plant@acme' })],
    ['a limit with scope admin', withClaim({ ...claim, scope: 'admin', id_group: 'Hall@acme' })],
    ['a device with scope write', withClaim({ ...claim, id_device: 'Pump@acme' })],
    ['scope device without a device', withClaim({ ...claim, scope: 'device' })],
    ['an account without keys', withClaim({ ...claim, account: 'nobody' })],
  ])('%s', async (_what, claims) => {
    const reply = await send(await signWith(() => claims));
    expect([reply.status, reply.body]).toEqual([403, forbidden]);
  });

  it('an account gets its first key, so that its users are let in', async () => {
    const token = await sign(withClaim({ ...claim, account: 'new' }));
    expect(summarize(await send(token))).toBe('4031');
    await createKey(service, { account: 'new' });
    expect((await send(token)).body).toMatchObject({ account: 'new' });
  });
});

it('ends live feeds when the token expires', async () => {
  const headers = { Authorization: `Bearer ${await sign({ exp: service.now() + 100 })}` };
  const feeds = [
    await follow(`${service.url}/events/live/`, headers),
    await follow(`${service.url}/streams/live/`, headers),
  ];
  const longer = await follow(`${service.url}/events/live/`, { Authorization: `Bearer ${await sign()}` });
  expect([...feeds, longer].map(({ status }) => status)).toEqual([200, 200, 200]);
  service.advance(100);
  await Promise.all(feeds.map(({ ended }) => ended));
  let isEnded = false;
  void longer.ended.then(
    () => {
      isEnded = true;
    },
    () => undefined,
  );
  expect((await send(await sign())).status).toBe(200);
  expect(isEnded).toBe(false);
  await longer.close();
});

it('counts requests by user, not by token', async () => {
  const options = { oidc_issuer: issuer.url, oidc_client_id: client_id, oidc_claim: '/realm/platform' };
  const limited = await startTestService({ ...options, rate_limit_per_minute: 2 });
  await createKey(limited);
  const get = async (username: string) => {
    const token = await sign({ jti: String(Math.random()), ...withClaim({ ...claim, username }) });
    return (await limited.clientWith(undefined).get('/self/', { Authorization: `Bearer ${token}` })).status;
  };
  expect([await get('olga'), await get('olga'), await get('olga'), await get('oleg')]).toEqual([200, 200, 429, 200]);
  await limited.stop();
});

it('stores and logs nothing of a token but the username', async () => {
  const lines: string[] = [];
  const record = (...entry: unknown[]) => void lines.push(JSON.stringify(entry));
  const logged = await startTestService({
    oidc_issuer: issuer.url,
    oidc_client_id: client_id,
    oidc_claim: 'realm.platform',
    log: { debug: record, info: record, warn: record, error: record },
    log_format: 'json',
    writeLine: record,
    eventLog: true,
  });
  await createKey(logged);
  const secrets = { sub: 'subject-of-olga', email: 'olga@example.org', name: 'Olga O.' };
  const tokens = [
    await sign(secrets),
    await sign({ ...secrets, aud: 'x' }),
    await sign({ ...secrets, ...withClaim({ account: 'of-nobody' }) }),
  ];
  const statuses: number[] = [];
  for (const token of tokens) {
    const headers = { Authorization: `Bearer ${token}` };
    const body = { name: `Project ${statuses.length}`, id_customer: 'c' };
    statuses.push((await logged.clientWith(undefined).post('/projects/', body, headers)).status);
  }
  expect(statuses).toEqual([200, 401, 403]);
  const { db } = logged.db.collection('projects');
  const collections = await db.listCollections({ type: 'collection' }).toArray();
  const stored = await Promise.all(collections.map(({ name }) => db.collection(name).find().toArray()));
  const text = JSON.stringify(stored);
  expect(text).toContain('"owner":"olga"');
  await logged.stop();
  const output = lines.join('\n');
  expect(output).toContain('"user\\":\\"olga\\"');
  const parts = tokens.flatMap((token) => token.split('.').slice(1));
  for (const secret of [...parts, ...Object.values(secrets), 'of-nobody']) {
    expect(text).not.toContain(secret);
    expect(output).not.toContain(secret);
  }
});
