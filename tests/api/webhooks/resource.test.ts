import { describe, expect, it } from '@jest/globals';
import { summarize, useTestService } from '../../support/expect-status.js';
import { logEvents } from '../../support/logged-events.js';
import { pathOf } from '../../support/service.js';

const ctx = await useTestService();
const secretPattern = /^whsec_[A-Za-z0-9+/]{43}=$/;
let number = 0;

const body = (fields: object = {}) => ({
  name: `hook ${++number}`,
  url: 'https://hooks.example/in?token=1',
  types: ['device.'],
  ...fields,
});

async function create(fields: object = {}): Promise<string> {
  const created = await ctx.api.post('/webhooks/', body(fields));
  expect(summarize(created)).toBe('2001');
  return created.headers.location ?? '';
}

describe('creating', () => {
  it('answers the secret, once', async () => {
    const created = await ctx.api.post('/webhooks/', body({ name: 'Alarms' }));
    expect([created.status, created.headers.location]).toEqual([200, '/webhooks/Alarms%40acme/']);
    expect(created.body).toEqual({
      code: 2001,
      message: 'Webhook created',
      details: { secret: expect.stringMatching(secretPattern) },
    });
    const { secret } = created.body.details;
    const shown = await ctx.api.get('/webhooks/Alarms%40acme/');
    const now = ctx.service.now();
    expect(shown.headers.etag).toBe('"0"');
    expect(shown.body).toEqual({
      id_developer: 'Alarms@acme',
      name: 'Alarms',
      url: 'https://hooks.example/in?token=1',
      types: ['device.'],
      format: 'standard',
      digest_s: 0,
      enabled: true,
      owner: 'alice',
      updater: 'alice',
      created_at: now,
      updated_at: now,
      version: 0,
    });
    const stored = await ctx.service.db.collection('webhooks').findOne({ name: 'Alarms' }, { promoteBuffers: true });
    expect(JSON.stringify(stored)).not.toContain(secret);
    const sealed = stored?.secret as Buffer | undefined;
    expect(sealed?.includes(Buffer.from(secret.slice(6), 'base64'))).toBe(false);
    const xml = await ctx.api.get('/webhooks/?name=Alarms', { Accept: 'application/xml' });
    expect(xml.text).toContain('<webhook><id_developer>Alarms@acme</id_developer>');
    expect(xml.text).toContain('<types><item>device.</item></types>');
    expect(xml.text).not.toMatch(/secret|key_id|slot|log_from|<run>/);
  });

  it.each([
    [{ url: 'ftp://hooks.example/' }, '4003 url'],
    [{ url: 'https://user:pass@hooks.example/' }, '4003 url'],
    [{ url: 'https://hooks.example/#here' }, '4003 url'],
    [{ url: 'hooks.example' }, '4003 url'],
    [{ url: 'http:hooks.example' }, '4003 url'],
    [{ url: 'http:/hooks.example' }, '4003 url'],
    [{ url: 'http:///hooks.example' }, '4003 url'],
    [{ url: 'http:\\\\hooks.example' }, '4003 url'],
    [{ url: `https://hooks.example/${'x'.repeat(1000)}` }, '4003 url'],
    [{ types: [] }, '4003 types'],
    [{ types: 'device.' }, '4003 types'],
    [{ types: Array.from({ length: 51 }, () => 'device.') }, '4003 types'],
    [{ types: ['device.', 'Device', 7, ''] }, '4003 types.1 types.2 types.3'],
    [{ id_group: 'nowhere@acme', id_project: 'none@acme' }, '4003 id_group id_project'],
    [{ id_group: 'hall' }, '4003 id_group'],
    [{ secret: 'whsec_mine' }, '4003 secret'],
    [{ run: '1', slot: 1, log_from: '0' }, '4003 log_from run slot'],
    [{ enabled: 'yes', name: '' }, '4003 enabled name'],
  ])('refuses %j', async (fields, expected) => {
    expect(summarize(await ctx.api.post('/webhooks/', body(fields)))).toBe(expected);
  });

  it('takes all selectors, and objects of the account as filters', async () => {
    const id_group = await ctx.fixtures.group();
    const path = await create({ types: ['*', 'device.created', 'log.gap'], id_group, description: '', enabled: 0 });
    expect((await ctx.api.get(path)).body).toMatchObject({
      types: ['*', 'device.created', 'log.gap'],
      id_group,
      description: '',
      enabled: false,
    });
    expect(summarize(await ctx.api.delete(pathOf('groups', id_group)))).toBe('2004');
    expect((await ctx.api.get(path)).body.id_group).toBe(id_group);
  });

  it('keeps names unique, and takes no more than 100 in an account', async () => {
    const api = await ctx.service.client({ account: 'many' });
    const creates = Array.from({ length: 103 }, (_, index) => api.post('/webhooks/', body({ name: `w${index}` })));
    const outcomes = (await Promise.all(creates)).map(summarize);
    expect(outcomes.filter((outcome) => outcome === '2001')).toHaveLength(100);
    expect(outcomes.filter((outcome) => outcome === '4003 name')).toHaveLength(3);
    const { result, total_documents } = (await api.get('/webhooks/')).body;
    expect(total_documents).toBe(100);
    const refused = await api.post('/webhooks/', body());
    expect(refused.body.details).toEqual({ name: 'exceeds the 100 webhooks of an account' });
    await api.delete(pathOf('webhooks', result[0].id_developer));
    const taken = await api.post('/webhooks/', body({ name: result[1].name }));
    expect(taken.body.details).toEqual({ name: 'is taken' });
    expect(summarize(await api.post('/webhooks/', body()))).toBe('2001');
  });
});

describe('changing', () => {
  it('checks and counts the version', async () => {
    const path = await create();
    const changed = await ctx.api.put(path, { version: 0, types: ['*'], enabled: false });
    expect(changed.body).toMatchObject({
      code: 2005,
      message: 'Webhook updated',
      details: { types: ['*'], enabled: false, version: 1 },
    });
    expect(changed.text).not.toMatch(/whsec|key_id|"run"/);
    expect((await ctx.api.put(path, { version: 0, types: ['*'] })).body).toEqual({
      code: 4005,
      message: 'concurrency error',
      details: { version: 1 },
    });
    expect(summarize(await ctx.api.put(path, { types: null }))).toBe('4003 types');
    const shown = (await ctx.api.get(path)).body;
    expect(summarize(await ctx.api.put(path, { ...shown, description: 'x', id_asset: null }))).toBe('2005');
    expect(summarize(await ctx.api.put(path, { enabled: true, version: 2 }))).toBe('2005');
    expect(summarize(await ctx.api.put(path, { enabled: true, version: 2 }))).toBe('4005 version');
  });

  it('makes a new secret, as a new version', async () => {
    const created = await ctx.api.post('/webhooks/', body());
    const path = created.headers.location ?? '';
    const made = await ctx.api.post(`${path}secret/`);
    expect(made.body).toEqual({
      code: 2001,
      message: 'Webhook secret created',
      details: { secret: expect.stringMatching(secretPattern) },
    });
    expect(made.body.details.secret).not.toBe(created.body.details.secret);
    expect((await ctx.api.get(path)).body.version).toBe(1);
    const all = await Promise.all(Array.from({ length: 5 }, () => ctx.api.post(`${path}secret/`)));
    expect(all.map(summarize)).toEqual(Array.from({ length: 5 }, () => '2001'));
    expect((await ctx.api.get(path)).body.version).toBe(6);
    expect(summarize(await ctx.api.post('/webhooks/none%40acme/secret/'))).toBe('4041');
  });
});

it('answers what is not there', async () => {
  const path = await create();
  const [event] = await logEvents(ctx.service, [{ type: 'project.created' }]);
  const [foreign] = await logEvents(ctx.service, [{}], { account: 'globex', from: 2 });
  expect((await ctx.api.get(`${path}deliveries/`)).body).toEqual({ total_documents: 0, result: [] });
  const expectations: [string, string][] = [
    [`${path}deliveries/${event}/retry/`, '4041'],
    [`${path}deliveries/${foreign}/retry/`, '4041'],
    [`${path}deliveries/69214e6f000000ff00/retry/`, '4041'],
    [`${path}deliveries/nonsense/retry/`, '4004 event'],
    ['/webhooks/none%40acme/test/', '4041'],
    ['/webhooks/none/test/', '4004 webhook_id_developer'],
  ];
  for (const [address, expected] of expectations)
    expect([address, summarize(await ctx.api.post(address))]).toEqual([address, expected]);
  expect(summarize(await ctx.api.get(`${path}deliveries/?sort=at`))).toBe('4004 sort');
  expect(summarize(await ctx.api.get(`${path}deliveries/?max=0`))).toBe('4004 max');
  expect(summarize(await ctx.api.get('/webhooks/none%40acme/deliveries/'))).toBe('4041');
});

it('is refused private addresses when it connects, as a name too', async () => {
  for (const url of [
    'http://127.0.0.1:1/',
    'http://localhost:1/',
    'http://[::1]:1/',
    'http://0x7f000001/',
    'http://169.254.169.254/latest/meta-data/',
  ]) {
    const path = await create({ url });
    const tested = await ctx.api.post(`${path}test/`);
    expect([url, tested.status, tested.body]).toEqual([
      url,
      200,
      {
        code: 2001,
        message: 'Webhook tested',
        details: {
          event: expect.stringMatching(/^[0-9a-f]{18}$/),
          type: 'webhook.test',
          at: ctx.service.now(),
          attempt: 1,
          error: 'must be a public address, or one that WEBHOOK_ALLOW_NETS allows',
          took_ms: expect.any(Number),
        },
      },
    ]);
    const { result } = (await ctx.api.get(`${path}deliveries/`)).body;
    expect(result).toEqual([tested.body.details]);
  }
});
