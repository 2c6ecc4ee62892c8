import { createHash } from 'node:crypto';
import { describe, expect, it } from '@jest/globals';
import { summarize, useTestService } from '../../support/expect-status.js';
import { type Api, pathOf } from '../../support/service.js';

const ctx = await useTestService();

async function issue(body: object): Promise<{ id: string; key: string; api: Api }> {
  const reply = await ctx.api.post('/apikeys/', body);
  if (summarize(reply) !== '2001') throw new Error(reply.text);
  const { id, key } = reply.body.details;
  return { id, key, api: ctx.service.clientWith(key) };
}
const listKeys = async (query = ''): Promise<{ id: string }[]> => (await ctx.api.get(`/apikeys/${query}`)).body.result;

it('issues a key, shows its text once and lists it without the text', async () => {
  const fields = {
    username: 'bob.the-builder_1',
    scope: 'read',
    expires_at: ctx.service.now() + 0.5,
    description: 'of the tests',
  };
  const reply = await ctx.api.post('/apikeys/', fields);
  expect([reply.status, reply.body]).toEqual([
    200,
    {
      code: 2001,
      message: 'apikey created',
      details: { id: expect.any(String), key: expect.stringMatching(/^[\x21-\x7e]{43,}$/) },
    },
  ]);
  const { id, key } = reply.body.details;
  expect(reply.headers.location).toBe(`/apikeys/${id}/`);
  const found = (await ctx.api.get('/apikeys/')).body.result.find((key: { id: string }) => key.id === id);
  expect(found).toEqual({ id, ...fields, created_at: ctx.service.now() });
  const stored = await ctx.service.db.collection('apikeys').findOne({ id });
  expect(JSON.stringify(stored)).not.toContain(key);
  expect(JSON.stringify(stored)).toContain(createHash('sha256').update(key).digest('hex'));
});

const now = Math.floor(Date.now() / 1000);
it.each<[object, string]>([
  [{}, '4003 scope username'],
  [{ username: 'x', scope: 'owner' }, '4003 scope'],
  [{ username: 'x', scope: null }, '4003 scope'],
  [{ username: '', scope: 'read' }, '4003 username'],
  [{ username: 'x'.repeat(51), scope: 'read' }, '4003 username'],
  [{ username: 'two words', scope: 'read' }, '4003 username'],
  [{ username: 'a@b', scope: 'read' }, '4003 username'],
  [{ username: '\u00e9', scope: 'read' }, '4003 username'],
  [{ username: 5, scope: ['read'] }, '4003 scope username'],
  [{ username: 'x', scope: 'read', expires_at: 1 }, '4003 expires_at'],
  [{ username: 'x', scope: 'read', expires_at: now - 60 }, '4003 expires_at'],
  [{ username: 'x', scope: 'read', expires_at: 'tomorrow' }, '4003 expires_at'],
  [{ username: 'x', scope: 'read', description: 'd'.repeat(201) }, '4003 description'],
  [{ username: 'x', scope: 'read', account: 'stranger', key: 'mine' }, '4003 account key'],
  [{ username: 'x y', scope: 'none', expires_at: 1, digest: 'd' }, '4003 digest expires_at scope username'],
])('rejects the key %j with 4003', async (body, expected) => {
  const before = await listKeys();
  expect(summarize(await ctx.api.post('/apikeys/', body))).toBe(expected);
  expect(await listKeys()).toEqual(before);
});

it.each([
  { username: 'x'.repeat(50), scope: 'write' },
  { username: '._-', scope: 'admin', expires_at: null, description: '' },
])('issues the key %j', async (body) => {
  expect((await (await issue(body)).api.get('/projects/')).status).toBe(200);
});

it('rejects a revoked key immediately', async () => {
  const { id, api } = await issue({ username: 'bob', scope: 'write' });
  expect((await api.get('/projects/')).status).toBe(200);
  const reply = await ctx.api.delete(pathOf('apikeys', id));
  expect([reply.status, reply.body]).toEqual([200, { code: 2004, message: 'apikey deleted', details: {} }]);
  expect(summarize(await api.get('/projects/'))).toBe('4011 service.apikey');
  expect((await listKeys()).some((key) => key.id === id)).toBe(false);
  expect(summarize(await ctx.api.delete(pathOf('apikeys', id)))).toBe('4041');
});

it('rejects a key from expires_at on', async () => {
  const { api } = await issue({ username: 'bob', scope: 'read', expires_at: ctx.service.now() + 30 });
  ctx.service.advance(29);
  expect((await api.get('/projects/')).status).toBe(200);
  ctx.service.advance(1);
  expect(summarize(await api.get('/projects/'))).toBe('4011 service.apikey');
});

it.each(['', 'x', 'k'.repeat(43), 'k'.repeat(5000), '\u00e9', '{"$gt":""}'])(
  'answers 4011 to the key %j',
  async (key) => {
    const api = ctx.service.clientWith(key);
    for (const reply of [await api.get('/projects/'), await api.post('/devices/'), await api.get('/apikeys/')])
      expect(summarize(reply)).toBe('4011 service.apikey');
  },
);

describe('a bearer token', () => {
  it('is an API key, whatever the letter case of the scheme', async () => {
    const { key } = (await ctx.api.post('/apikeys/', { username: 'bearer', scope: 'write' })).body.details;
    const anonymous = ctx.service.clientWith(undefined);
    for (const authorization of [`Bearer ${key}`, `bearer ${key}`, `BEARER   ${key}`]) {
      const name = `by ${authorization.slice(0, 9)}`;
      const created = await anonymous.post('/projects/', { name, id_customer: 'c' }, { authorization });
      expect(summarize(created)).toBe('2001');
      expect((await anonymous.get(created.headers.location ?? '', { authorization })).body.owner).toBe('bearer');
    }
  });

  it('of another scheme counts as missing, a wrong one as not valid', async () => {
    const { key } = (await ctx.api.post('/apikeys/', { username: 'bearer', scope: 'read' })).body.details;
    const anonymous = ctx.service.clientWith(undefined);
    const faultOf = async (headers: Record<string, string>) => {
      const { status, body } = await anonymous.get('/projects/', headers);
      expect([status, body]).toEqual([401, { code: 4011, message: 'unauthorized', details: expect.any(Object) }]);
      return body.details;
    };
    for (const authorization of ['', key, `Basic ${key}`, `Token ${key}`, 'Bearer', 'Bearer ', `Bearer${key}`])
      expect([authorization, await faultOf({ authorization })]).toEqual([
        authorization,
        { 'service.apikey': 'is missing' },
      ]);
    for (const authorization of ['Bearer x', `Bearer ${key}x`, `Bearer ${key} ${key}`])
      expect(await faultOf({ authorization })).toEqual({ 'service.apikey': 'is not valid' });
    expect(await faultOf({ 'service.apikey': '' })).toEqual({ 'service.apikey': 'is missing' });
    expect(await faultOf({ 'service.apikey': 'x', authorization: `Bearer ${key}` })).toEqual({
      'service.apikey': 'is not valid',
    });
  });
});

it('answers 4011 without a key, also on unknown paths', async () => {
  const anonymous = ctx.service.clientWith(undefined);
  for (const path of ['/projects/', '/nothing/', '/projects/%zz/', '/apikeys/'])
    expect([path, summarize(await anonymous.get(path))]).toEqual([path, '4011 service.apikey']);
});

it('filters, sorts and pages the list', async () => {
  const zoe = await issue({ username: 'zoe', scope: 'read' });
  expect((await listKeys('?username=zoe')).map(({ id }) => id)).toEqual([zoe.id]);
  expect((await listKeys('?sort=username&order=-1&max=1')).map(({ id }) => id)).toEqual([zoe.id]);
  for (const query of ['digest=x', 'sort=digest', 'key=x', 'account=acme', 'max=0'])
    expect(summarize(await ctx.api.get(`/apikeys/?${query}`))).toBe(`4004 ${query.split('=')[0]}`);
});

it('shows keys in XML', async () => {
  const Accept = 'application/xml';
  const created = (await ctx.api.post('/apikeys/', { username: 'xml', scope: 'read' }, { Accept })).text;
  expect(created).toMatch(
    /<response><code>2001<\/code><message>apikey created<\/message><details><id>[^<]+<\/id><key>[^<]+<\/key><\/details><\/response>$/,
  );
  expect((await ctx.api.get('/apikeys/?username=xml', { Accept })).text).toMatch(
    /<response><total_documents>1<\/total_documents><result><apikey><id>[^<]+<\/id>.*<\/apikey><\/result><\/response>$/,
  );
});

describe('GET /self/', () => {
  it.each(['stream', 'read', 'write', 'admin'])('shows the key that asks, of scope %s', async (scope) => {
    const { id, api } = await issue({ username: 'frank', scope, description: 'not shown' });
    const { status, body, headers } = await api.get('/self/');
    expect([status, body]).toEqual([200, { account: 'acme', username: 'frank', scope, id }]);
    expect(headers).not.toHaveProperty('etag');
  });

  it('shows when the key expires, in JSON and XML', async () => {
    const expires_at = ctx.service.now() + 60;
    const { id, api } = await issue({ username: 'grace', scope: 'stream', expires_at });
    expect((await api.get('/self')).body).toEqual({
      account: 'acme',
      username: 'grace',
      scope: 'stream',
      expires_at,
      id,
    });
    expect((await api.get('/self/', { Accept: 'application/xml' })).text).toBe(
      `<?xml version="1.0" encoding="UTF-8"?><response><account>acme</account><username>grace</username><scope>stream</scope><expires_at>${expires_at}</expires_at><id>${id}</id></response>`,
    );
  });

  it('needs a key, and takes no parameters', async () => {
    expect(summarize(await ctx.service.clientWith(undefined).get('/self/'))).toBe('4011 service.apikey');
    expect(summarize(await ctx.api.get('/self/?account=stranger'))).toBe('4004 account');
  });
});
