import { afterAll, beforeEach, describe, expect, it } from '@jest/globals';
import { createFixtures, pathOf, startTestService } from '../../support/service.js';
import { wordsOf } from '../../support/words.js';

let id_group = '';
let device = '';
let credentials = '';
let topics = '';
let login = { username: '', password: '' };

const service = await startTestService();
const api = await service.client();
const given = createFixtures(api);
id_group = await given.group();
afterAll(() => service.stop());
beforeEach(async () => {
  device = await given.device({ id_group });
  credentials = pathOf('mqttdevices', device, 'credentials');
  topics = pathOf('mqttdevices', device, 'topics');
  login = { username: `user of ${device}`, password: 'correct horse' };
});

const invalid = (details: object) => ({ code: 4003, message: 'validation error', details });
const notFound = { code: 4041, message: 'not found', details: {} };
const stored = (id = device) => service.db.collection('mqttcredentials').findOne({ device: id });
const namesOf = async () => (await api.get(topics)).body.result.map(({ name }: { name: string }) => name);

describe('credentials', () => {
  it('are created, changed and deleted', async () => {
    const made = await api.post(credentials, login);
    expect([made.status, made.body]).toEqual([200, { code: 2001, message: 'credentials created', details: {} }]);
    const changed = await api.put(credentials, { username: `new ${device}`, password: 'another one' });
    expect([changed.status, changed.body]).toEqual([
      200,
      { code: 2005, message: 'credentials updated', details: { username: `new ${device}` } },
    ]);
    const gone = await api.delete(pathOf('mqttdevices', device));
    expect([gone.status, gone.body]).toEqual([200, { code: 2004, message: 'credentials deleted', details: {} }]);
    expect(await stored()).toBeNull();
    expect((await api.post(credentials, login)).body.code).toBe(2001);
  });

  it('keep the password as a salted scrypt hash, and show it nowhere', async () => {
    const other = await given.device({ id_group });
    const password = 'the very same secret';
    const replies = [
      await api.post(credentials, { ...login, password }),
      await api.post(pathOf('mqttdevices', other, 'credentials'), { username: `user of ${other}`, password }),
    ];
    const [one, two] = [await stored(), await stored(other)];
    expect(one?.hash).toMatch(/^scrypt\$/);
    expect(one?.hash).not.toBe(two?.hash);
    expect(JSON.stringify([one, two])).not.toContain(password);
    replies.push(await api.put(credentials, { ...login, password }));
    expect((await stored())?.hash).not.toBe(one?.hash);
    replies.push(await api.get(pathOf('devices', device)), await api.get(topics));
    for (const { text } of replies) expect(text).not.toMatch(/very same secret|scrypt/);
  });

  it('take a username of 1 to 100 and a password of 8 to 128 characters', async () => {
    for (const [body, details] of [
      [{}, { username: 'is required', password: 'is required' }],
      [
        { username: '', password: 'x'.repeat(7) },
        { username: expect.any(String), password: expect.any(String) },
      ],
      [
        { username: 'u'.repeat(101), password: 'x'.repeat(129) },
        { username: expect.any(String), password: expect.any(String) },
      ],
      [{ ...login, password: 5 }, { password: expect.any(String) }],
      [{ ...login, password: null }, { password: 'is required' }],
      [{ ...login, username: 'a\0' }, { username: expect.any(String) }],
      [{ ...login, role: 'admin' }, { role: 'unknown field' }],
    ] as const) {
      for (const reply of [await api.post(credentials, body), await api.put(credentials, body)])
        expect([reply.status, reply.body]).toEqual([400, invalid(details)]);
    }
    expect(await stored()).toBeNull();
    const maxLengths = { username: device.padEnd(100, 'é'), password: '😀'.repeat(128) };
    expect((await api.post(credentials, maxLengths)).body.code).toBe(2001);
    expect((await api.put(credentials, { username: device.padEnd(100, 'ü'), password: 'é'.repeat(8) })).body.code).toBe(
      2005,
    );
  });

  it('are one set a device', async () => {
    await api.post(credentials, login);
    const before = await stored();
    const again = await api.post(credentials, { username: `second ${device}`, password: 'password' });
    expect([again.status, again.body]).toEqual([400, invalid({ username: expect.any(String) })]);
    expect(await stored()).toEqual(before);
  });

  it('have a username that is in use nowhere, in no account', async () => {
    await api.post(credentials, login);
    const other = await given.device({ id_group });
    const theirs = pathOf('mqttdevices', other, 'credentials');
    const taken = invalid({ username: expect.any(String) });
    expect((await api.post(theirs, login)).body).toEqual(taken);
    expect((await api.post(theirs, { ...login, username: `user of ${other}` })).body.code).toBe(2001);
    expect((await api.put(theirs, login)).body).toEqual(taken);
    expect((await stored(other))?.username).toBe(`user of ${other}`);

    const stranger = await service.client({ account: 'evil' });
    const foreign = await createFixtures(stranger).device();
    expect((await stranger.post(pathOf('mqttdevices', foreign, 'credentials'), login)).body).toEqual(taken);
    await api.delete(pathOf('devices', device));
    expect((await stranger.post(pathOf('mqttdevices', foreign, 'credentials'), login)).body.code).toBe(2001);
  });

  it('are given to exactly one of many who ask for the same username', async () => {
    const ids = await Promise.all(Array.from({ length: 8 }, () => given.device({ id_group })));
    const replies = await Promise.all(ids.map((id) => api.post(pathOf('mqttdevices', id, 'credentials'), login)));
    expect(replies.map(({ body }) => body.code).sort()).toEqual([2001, ...Array(7).fill(4003)]);
  });

  it('answer 404 where there are none', async () => {
    for (const reply of [await api.put(credentials, login), await api.delete(pathOf('mqttdevices', device))])
      expect([reply.status, reply.body]).toEqual([404, notFound]);
    expect((await api.put(credentials, { username: 5 })).body.code).toBe(4003);
  });

  it('leave the topics when they go', async () => {
    await api.post(credentials, login);
    await api.post(topics, { name: 'a/b' });
    await api.delete(pathOf('mqttdevices', device));
    expect(await namesOf()).toEqual(['a/b']);
  });
});

describe('topics', () => {
  it('are created, listed and deleted', async () => {
    const made = await api.post(topics, { name: 'plant/1/#' });
    expect([made.status, made.body]).toEqual([200, { code: 2001, message: 'topic created', details: {} }]);
    const first = service.now();
    service.advance(3);
    await api.post(topics, { name: 'plant/+/alarm' });
    expect((await api.get(topics)).body).toEqual({
      total_documents: 2,
      result: [
        { name: 'plant/+/alarm', created_at: first + 3 },
        { name: 'plant/1/#', created_at: first },
      ],
    });
    expect((await api.get(`${topics}?created_at_from=${first + 1}`)).body.result).toHaveLength(1);
    const gone = await api.delete(topics, { name: 'plant/1/#' });
    expect([gone.status, gone.body]).toEqual([200, { code: 2004, message: 'topic deleted', details: {} }]);
    expect(await namesOf()).toEqual(['plant/+/alarm']);
    const again = await api.delete(topics, { name: 'plant/1/#' });
    expect([again.status, again.body]).toEqual([404, notFound]);
  });

  it.each(['#', '+', '/', '+/+/#', 'a//b', 'a/$b', 'é'.repeat(100), 'with space', 'a/#', '😀/+'])(
    'take the filter %j, once a device',
    async (name) => {
      expect((await api.post(topics, { name })).body.code).toBe(2001);
      expect((await api.post(topics, { name })).body).toEqual(invalid({ name: expect.any(String) }));
      expect(await namesOf()).toEqual([name]);
      const other = await given.device({ id_group });
      expect((await api.post(pathOf('mqttdevices', other, 'topics'), { name })).body.code).toBe(2001);
      expect((await api.delete(topics, { name })).body.code).toBe(2004);
    },
  );

  it.each([
    ...wordsOf('a# #/a a/#/b a+ +a/b ## $SYS/# $share/g/a $'),
    '',
    'a\0b',
    `${'é'.repeat(100)}x`,
    5,
    null,
    true,
    ['a'],
    undefined,
  ])('refuse %j', async (name) => {
    const reply = await api.post(topics, { name });
    expect([reply.status, reply.body]).toEqual([400, invalid({ name: expect.any(String) })]);
    expect((await api.get(topics)).body).toEqual({ total_documents: 0, result: [] });
  });

  it('are created once, however many ask', async () => {
    const replies = await Promise.all(Array.from({ length: 8 }, () => api.post(topics, { name: 'a' })));
    expect(replies.map(({ body }) => body.code).sort()).toEqual([2001, ...Array(7).fill(4003)]);
    expect(await namesOf()).toEqual(['a']);
  });

  it('are at most 100 a device; a deleted one makes room', async () => {
    for (let n = 0; n < 100; n++) expect((await api.post(topics, { name: `t/${n}` })).body.code).toBe(2001);
    const tooMany = invalid({ name: 'exceeds the 100 topics of a device' });
    expect((await api.post(topics, { name: 't/100' })).body).toEqual(tooMany);
    expect((await api.get(topics)).body.total_documents).toBe(100);
    await api.delete(topics, { name: 't/50' });
    expect((await api.post(topics, { name: 't/100' })).body.code).toBe(2001);
    expect((await api.post(topics, { name: 't/50' })).body).toEqual(tooMany);
    expect(Object.keys((await api.get(topics)).body.result[0]).sort()).toEqual(['created_at', 'name']);
  });

  it('are at most 100 a device, however many are created at once', async () => {
    const replies = await Promise.all(Array.from({ length: 130 }, (_, n) => api.post(topics, { name: `t/${n}` })));
    const codes = replies.map(({ body }) => body.code);
    expect(codes.filter((code) => code === 2001)).toHaveLength(100);
    expect(codes.filter((code) => code === 4003)).toHaveLength(30);
    expect(await service.db.collection('mqtttopics').countDocuments({ device })).toBe(100);
  });

  it('have no other fields and filters', async () => {
    expect((await api.post(topics, { name: 'a', qos: 1 })).body).toEqual(invalid({ qos: 'unknown field' }));
    expect((await api.delete(topics, {})).body).toEqual(invalid({ name: 'is required' }));
    expect((await api.delete(topics)).body.code).toBe(4001);
    expect((await api.get(`${topics}?enabled=1`)).body.code).toBe(4004);
  });

  it('are listed by name, in parts too', async () => {
    for (const name of ['b', 'a', 'c']) await api.post(topics, { name });
    expect(await namesOf()).toEqual(['a', 'b', 'c']);
    const part = (await api.get(`${topics}?max=1&offset=1&order=-1`)).body;
    expect(part).toMatchObject({ total_documents: 3, result: [{ name: 'b' }] });
  });
});
