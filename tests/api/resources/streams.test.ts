import { afterAll, beforeEach, describe, expect, it } from '@jest/globals';
import { XMLParser } from 'fast-xml-parser';
import { waitFor } from '../../../scripts/support/service-process.js';
import type { Database } from '../../../src/db/database.js';
import { createIngest } from '../../../src/streams/ingest.js';
import { parseStreams } from '../../../src/streams/parse-streams.js';
import { sendImport } from '../../support/import.js';
import { findOrphans } from '../../support/orphans.js';
import { createFixtures, pathOf, startTestService } from '../../support/service.js';

let id_group = '';
/** A new device for each test, and the path of its streams. */
let device = '';
let path = '';

const created = { code: 2001, message: 'stream created', details: {} };
const deleted = { code: 2004, message: 'stream deleted', details: {} };
const invalid = (details: object) => ({ code: 4003, message: 'validation error', details });
const key40 = '0123456789abcdef0123456789abcdef01234567';

const service = await startTestService();
const api = await service.client();
const fixtures = createFixtures(api);
id_group = await fixtures.group();
afterAll(() => service.stop());
beforeEach(async () => {
  device = await fixtures.device({ id_group });
  path = pathOf('devices', device, 'streams');
});

const listStreams = async (query = '', from = path) => (await api.get(`${from}${query}`)).body;
const count = async (from = path): Promise<number> => (await listStreams('?max=1', from)).total_documents;
/** Values of `field` in the order of the list. */
const values = async (field: string, query = '') =>
  (await listStreams(query)).result.map((stream: Record<string, unknown>) => stream[field]);
/** An object nested `levels` deep, itself the first level. */
function nested(levels: number): object {
  return levels === 1 ? {} : { a: nested(levels - 1) };
}

describe('POST /devices/{id}/streams/', () => {
  it('stores one stream and fills in defaults', async () => {
    const reply = await api.post(path, { data: { t: 21.5 } });
    expect([reply.status, reply.body]).toEqual([200, created]);
    expect(await listStreams()).toEqual({
      total_documents: 1,
      result: [
        {
          id_developer: expect.stringMatching(/^[0-9a-f]{64}@acme$/),
          device,
          _t: 'str',
          protocol: 'http',
          at: service.now(),
          data: { t: 21.5 },
          owner: 'alice',
          updater: 'alice',
          created_at: service.now(),
        },
      ],
    });
  });

  it('stores every field, and accepts what GET returned', async () => {
    await api.post(path, { at: 1e9, protocol: 'lora', _t: 'sta', data: { battery: 3.3 } });
    const [shown] = (await listStreams()).result;
    expect(shown).toMatchObject({ at: 1e9, protocol: 'lora', _t: 'sta', data: { battery: 3.3 } });
    const bob = await service.client({ username: 'bob' });
    expect((await bob.post(path, { ...shown, device: 'other@acme', created_at: 5 })).body).toEqual(created);
    expect((await listStreams('?sort=created_at&order=-1')).result[0]).toEqual({
      ...shown,
      id_developer: expect.not.stringMatching(shown.id_developer),
      owner: 'bob',
      updater: 'bob',
    });
  });

  it.each([1, 1000])('stores an array of %d in its order', async (length) => {
    const reply = await api.post(
      path,
      Array.from({ length }, (_, n) => ({ data: { n } })),
    );
    expect(reply.body).toEqual(created);
    expect((await values('data')).map(({ n }: { n: number }) => n)).toEqual([...Array(length).keys()]);
  });

  it.each([0, 1001])('rejects an array of %d with 4003', async (length) => {
    const reply = await api.post(path, Array(length).fill({ data: {} }));
    expect([reply.status, reply.body]).toEqual([400, invalid({ streams: expect.any(String) })]);
    expect(await count()).toBe(0);
  });

  it.each(['', 'nonsense', '"text"', '5', 'null', '{"data":{}', '\uFEFF'])('answers 4001 to %j', async (body) => {
    const reply = await api.post(path, body);
    expect([reply.status, reply.body]).toEqual([400, { code: 4001, message: 'Json bad formed', details: {} }]);
  });

  it('accepts JSON with any Content-Type', async () => {
    const reply = await api.send(
      'POST',
      path,
      { 'Content-Type': 'application/x-www-form-urlencoded' },
      '{"data":{"n":1}}',
    );
    expect(reply.body).toEqual(created);
  });

  it('tells an unknown field with an empty name from an entry that is no object', async () => {
    const entries = [{ data: {}, '': 1 }, 7, null, { data: {} }];
    expect((await api.post(path, entries)).body.details).toEqual({
      '0.': 'unknown field',
      1: 'must be an object',
      2: 'must be an object',
    });
    expect((await api.post(path, entries[0])).body.details).toEqual({ '': 'unknown field' });
  });

  it('stores all or nothing, and reports invalid entries by index', async () => {
    const good = { data: {} };
    const reply = await api.post(path, [good, 5, null, { data: 'x', at: 'soon' }, good, {}, { ...good, foo: 1 }]);
    expect([reply.status, reply.body]).toEqual([
      400,
      invalid({
        1: expect.any(String),
        2: expect.any(String),
        '3.data': expect.any(String),
        '3.at': expect.any(String),
        '5.data': 'is required',
        '6.foo': 'unknown field',
      }),
    ]);
    expect(await count()).toBe(0);
  });

  it('reports all invalid fields of a single stream without an index', async () => {
    const reply = await api.post(path, { at: 'x', protocol: '', _t: 'x', checksum: 'x', foo: 1 });
    expect(Object.keys(reply.body.details).sort()).toEqual(['_t', 'at', 'checksum', 'data', 'foo', 'protocol']);
  });

  it.each([
    [1.5, 1.5],
    [0, 0],
    [1_700_000_000.25, 1_700_000_000.25],
    ['1700000000', 1_700_000_000],
    ['1700000000.5', 1_700_000_000.5],
    ['0', 0],
    ['2026-11-27T09:00:00.5+01:00', 1_795_766_400.5],
    ['2026-11-27t08:00:00z', 1_795_766_400],
    ['2026-11-27 13:45:00.000001+05:45', 1_795_766_400.000_001],
    ['2024-02-29T23:59:60-00:00', 1_709_251_200],
    ['1969-12-31T23:30:00-00:30', 0],
  ])('accepts %j as time', async (sent, stored) => {
    await api.post(path, { at: sent, data: {} });
    expect(await values('at')).toEqual([stored]);
  });

  it.each([undefined, null, 'now'])('uses the time of receipt for %j', async (sent) => {
    service.advance(7);
    await api.post(path, { at: sent, data: {} });
    expect(await values('at')).toEqual([service.now()]);
  });

  it.each([
    ...['', 'NOW', 'yesterday', '1e3', '0x10', '-5', ' 5', '5.', '.5', -1, true, {}, [1], 1e13],
    ...['2026-11-27', '2026-11-27T09:00:00', '2026-11-27T09:00Z', '2026-02-29T09:00:00Z', '2026-13-01T09:00:00Z'],
    ...['2026-11-27T24:00:00Z', '2026-11-27T09:60:00Z', '2026-11-27T09:00:00+24:00', '2026-11-27T09:00:00+0100'],
    ...['1969-12-31T23:59:59Z', '2026-11-27T09:00:00.Z', '2026-11-27T09:00:00Z\n', '2026-11-27T22:13:60Z'],
  ])('rejects %j as time', async (sent) => {
    expect((await api.post(path, { at: sent, data: {} })).body).toEqual(invalid({ at: expect.any(String) }));
  });

  it('accepts a protocol of 1 to 50 characters, and `str` or `sta` as kind', async () => {
    for (const protocol of ['x', '😀'.repeat(50), null])
      expect((await api.post(path, { protocol, data: {} })).body).toEqual(created);
    for (const protocol of ['', 'x'.repeat(51), 5, true])
      expect((await api.post(path, { protocol, data: {} })).body).toEqual(invalid({ protocol: expect.any(String) }));
    for (const _t of ['STR', '', 'data', 1])
      expect((await api.post(path, { _t, data: {} })).body).toEqual(invalid({ _t: expect.any(String) }));
    expect(await values('protocol', '?sort=created_at')).toEqual(['x', '😀'.repeat(50), 'http']);
  });
});

describe('?on_conflict=skip', () => {
  const skipping = () => `${path}?on_conflict=skip`;
  const stream = (at: unknown, n: number, _t = 'str') => ({ at, _t, data: { n } });
  const shown = async () =>
    (await listStreams('?sort=at')).result.map((each: Record<string, never>) => [each.at, each._t, each.data]);

  it('leaves out what the device has, and what stands before in the array', async () => {
    await api.post(path, [stream(10, 1), stream(20, 2, 'sta')]);
    const sent = [stream('10', 3), stream(10, 4, 'sta'), stream(20, 5), stream(20, 6, 'sta'), stream(30, 7)];
    const reply = await api.post(skipping(), [...sent, stream('1970-01-01T00:00:30Z', 8), stream(30.5, 9)]);
    expect(reply.body).toEqual({ ...created, details: { created: 4, skipped: 3 } });
    expect(await shown()).toEqual([
      ...[[10, 'str', { n: 1 }] as const, [10, 'sta', { n: 4 }] as const, [20, 'sta', { n: 2 }] as const],
      ...[[20, 'str', { n: 5 }] as const, [30, 'str', { n: 7 }] as const, [30.5, 'str', { n: 9 }] as const],
    ]);
    expect((await api.post(skipping(), [stream(30, 1), stream(10, 1)])).body.details).toEqual({
      created: 0,
      skipped: 2,
    });
  });

  it('finds few times among many, and those of another device are no reason', async () => {
    const many = Array.from({ length: 600 }, (_, n) => stream(n, n));
    const other = await fixtures.device({ id_group });
    await api.post(path, many);
    const sent = [stream(0, 1), stream(299.5, 2), stream(300, 3), stream(599, 4), stream(600, 5)];
    expect((await api.post(skipping(), sent)).body.details).toEqual({ created: 2, skipped: 3 });
    const elsewhere = `${pathOf('devices', other, 'streams')}?on_conflict=skip`;
    expect((await api.post(elsewhere, sent)).body.details).toEqual({ created: 5, skipped: 0 });
  });

  it('stores one of many that are sent at once', async () => {
    const replies = await Promise.all(Array.from({ length: 30 }, (_, n) => api.post(skipping(), stream(5, n))));
    expect(
      replies
        .map(({ body }) => body.details.created)
        .sort()
        .slice(-2),
    ).toEqual([0, 1]);
    expect(await count()).toBe(1);
  });

  it('serves the legacy paths, with their answer, and XML', async () => {
    for (const [target, _t] of [['/streams/', 'str'] as const, ['/status/', 'sta'] as const]) {
      for (const n of [1, 2]) {
        const reply = await api.post(`${target}?on_conflict=skip`, {
          ...stream('2026-11-27T09:00:00Z', n, _t),
          device,
        });
        expect(reply.text).toBe('{ "response": "OK" }');
      }
    }
    const xml = `<stream><device>${device}</device><at>1795770000</at><data/></stream>`;
    const reply = await api.send('POST', '/streams/?on_conflict=skip', { 'Content-Type': 'text/xml' }, xml);
    expect(reply.text).toBe('{ "response": "OK" }');
    expect(await shown()).toEqual([
      [1_795_770_000, 'str', { n: 1 }],
      [1_795_770_000, 'sta', { n: 1 }],
    ]);
  });

  it('moves no deadline for what is left out, and checks it all the same', async () => {
    await api.post(path, stream(10, 1));
    const before = (await api.get(pathOf('devices', device))).body;
    service.advance(60);
    expect((await api.post(skipping(), stream(10, 1))).body.details).toEqual({ created: 0, skipped: 1 });
    expect((await api.get(pathOf('devices', device))).body).toEqual(before);
    const faulty = await api.post(skipping(), [stream(10, 1), { ...stream(10, 1), checksum: 'a'.repeat(40) }]);
    expect(faulty.body).toEqual(invalid({ '1.checksum': expect.any(String) }));
  });

  it.each(['on_conflict=create', 'on_conflict=', 'skip=1', 'on_conflict=skip&on_conflict=skip'])(
    'answers 4004 to %j, before faults of the body',
    async (query) => {
      const reply = await api.post(`${path}?${query}`, {});
      expect([reply.status, reply.body.code]).toEqual([400, 4004]);
    },
  );
});

describe('the data of a stream', () => {
  const expectRejected = async (data: unknown) =>
    expect((await api.post(path, { data })).body).toEqual(invalid({ data: expect.any(String) }));

  it('must be a JSON object', async () => {
    for (const data of [undefined, null, 'x', 5, true, [], [{}]]) await expectRejected(data);
    expect((await api.post(path, { data: {} })).body).toEqual(created);
  });

  it('may have 16 levels, but not 17', async () => {
    const data = nested(16);
    expect((await api.post(path, { data })).body).toEqual(created);
    expect(await values('data')).toEqual([data]);
    await expectRejected(nested(17));
    await expectRejected({ a: [[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]] });
  });

  it('may have 64 KiB as compact UTF-8 JSON, regardless of the formatting sent', async () => {
    // {"s":"…"} adds 8 bytes to the text
    const exact = { s: 'é'.repeat((65_536 - 8) / 2) };
    expect(Buffer.byteLength(JSON.stringify(exact))).toBe(65_536);
    expect((await api.post(path, { data: exact })).body).toEqual(created);
    const escaped = JSON.stringify({ data: exact }, null, 8).replaceAll('é', '\\u00e9');
    expect((await api.post(path, escaped)).body).toEqual(created);
    await expectRejected({ s: `${exact.s}x` });
    await expectRejected({ s: '"'.repeat(33_000) });
    const [first] = (await listStreams()).result;
    expect(first.data).toEqual(exact);
  });

  it('may have 100 keys of 100 characters, but no more', async () => {
    const keys = (length: number) => Object.fromEntries(Array.from({ length }, (_, n) => [`k${n}`, n]));
    expect((await api.post(path, { data: keys(100) })).body).toEqual(created);
    await expectRejected(keys(101));
    expect((await api.post(path, { data: { ['é'.repeat(100)]: 1 } })).body).toEqual(created);
    await expectRejected({ ['é'.repeat(101)]: 1 });
  });

  it('must not contain NUL, a lone surrogate or a number beyond the range of a double', async () => {
    await expectRejected({ a: 'x\0' });
    await expectRejected({ 'x\0': 1 });
    expect((await api.post(path, '{"data":{"a":{"b":"\\ud800"}}}')).body).toEqual(
      invalid({ data: expect.any(String) }),
    );
    expect((await api.post(path, '{"data":{"a":1e999}}')).body).toEqual(invalid({ data: expect.any(String) }));
  });

  it('is returned unchanged, whatever its keys mean to JavaScript or MongoDB', async () => {
    const text =
      '{"$where":"1","a.b":{"$gt":""},"_bsontype":"ObjectId","__proto__":{"x":1},"toJSON":1,"constructor":null,"":0,"n":-1.5e-7,"l":[1,[],{}]}';
    await api.post(path, `{"data":${text}}`);
    const reply = await api.get(path);
    const shown = /"data":(\{.*?\}),"device"/.exec(reply.text)?.[1] ?? '';
    expect(JSON.parse(shown)).toEqual(JSON.parse(text));
    expect(Object.hasOwn(JSON.parse(shown), '__proto__')).toBe(true);
  });
});

describe('the checksum of a stream', () => {
  // printf '%s' '{"n":1,"t":21.5,"unit":"°C"}' | openssl dgst -sha1 [-hmac 0123…4567]
  const data = { unit: '°C', t: 21.5, n: 1 };
  const plain = '04cfa51e43f63fd1a43d94ae9a7446a6f4e402be';
  const keyed = '06d157e0c9f1194e6ab75a6b62b503b6170f3325';

  it('is a SHA-1 if the device has no checksum', async () => {
    expect((await api.post(path, { data, checksum: plain })).body).toEqual(created);
    expect((await api.post(path, { data, checksum: plain.toUpperCase() })).body).toEqual(created);
    for (const checksum of [keyed, key40, plain.replace('0', '1')])
      expect((await api.post(path, { data, checksum })).body).toEqual(invalid({ checksum: expect.any(String) }));
    expect((await api.post(path, { data: { ...data, n: 2 }, checksum: plain })).body.code).toBe(4003);
    expect(await count()).toBe(2);
    expect((await listStreams()).result[0]).not.toHaveProperty('checksum');
  });

  it("is an HMAC keyed with the device's current checksum, if it has one", async () => {
    await api.put(pathOf('devices', device), { checksum: key40 });
    expect((await api.post(path, { data, checksum: keyed })).body).toEqual(created);
    expect((await api.post(path, { data, checksum: plain })).body).toEqual(invalid({ checksum: expect.any(String) }));
    await api.put(pathOf('devices', device), { checksum: 'k'.repeat(40) });
    expect((await api.post(path, { data, checksum: keyed })).body.code).toBe(4003);
    await api.put(pathOf('devices', device), { checksum: null });
    expect((await api.post(path, { data, checksum: plain })).body).toEqual(created);
  });

  it('is required with protocol v3 if the device has a checksum', async () => {
    expect((await api.post(path, { data, protocol: 'v3' })).body).toEqual(created);
    await api.put(pathOf('devices', device), { checksum: key40 });
    const entries = [{ data }, { data, protocol: 'v3', checksum: keyed }, { data, protocol: 'v3' }];
    expect((await api.post(path, entries)).body).toEqual(invalid({ '2.checksum': expect.any(String) }));
    expect((await api.post(path, entries.slice(0, 2))).body).toEqual(created);
    expect(await count()).toBe(3);
  });

  it('counts as not given if it is blank', async () => {
    for (const checksum of ['', null]) expect((await api.post(path, { data, checksum })).body).toEqual(created);
    await api.put(pathOf('devices', device), { checksum: key40 });
    for (const checksum of ['', null]) {
      expect((await api.post(path, { data, checksum })).body).toEqual(created);
      const reply = await api.post('/streams/', { device, data, protocol: 'v3', checksum });
      expect(reply.body).toEqual(invalid({ checksum: 'is required' }));
    }
    expect(await count()).toBe(4);
  });

  it('is ignored with protocol v1 and v2, whatever it holds', async () => {
    await api.put(pathOf('devices', device), { checksum: key40 });
    for (const protocol of ['v1', 'v2']) {
      for (const checksum of [plain, 'x', 5, [keyed], { a: null }])
        expect((await api.post(path, { data, protocol, checksum })).body).toEqual(created);
    }
    for (const protocol of ['v3', 'V2', 'v', 'http'])
      expect((await api.post(path, { data, protocol, checksum: plain })).body.details).toEqual({
        checksum: 'does not match the data',
      });
    expect(await count()).toBe(10);
    expect((await listStreams()).result[0]).not.toHaveProperty('checksum');
  });

  it('must be 40 hexadecimal digits', async () => {
    for (const checksum of [' ', plain.slice(1), `${plain}0`, `g${plain.slice(1)}`, 5, {}])
      expect((await api.post(path, { data, checksum })).body).toEqual(invalid({ checksum: expect.any(String) }));
    expect((await api.post(path, { data, checksum: null })).body).toEqual(created);
  });
});

describe('a device accepts streams while it and all its ancestors are enabled', () => {
  it.each(['project', 'service', 'group', 'asset', 'device'])('but not with a disabled %s', async (type) => {
    const id_project = await fixtures.project();
    const id_service = await fixtures.service({ id_project });
    const parentGroup = await fixtures.group({ id_service });
    const id_asset = await fixtures.asset({ id_group: parentGroup });
    const id = await fixtures.device({ id_asset });
    const ids: Record<string, string> = {
      project: id_project,
      service: id_service,
      group: parentGroup,
      asset: id_asset,
      device: id,
    };
    const streamsPath = pathOf('devices', id, 'streams');
    const target = pathOf(`${type}s`, ids[type] ?? '');
    const refused = [400, invalid({ device: 'disabled' })];

    expect((await api.post(streamsPath, { data: {} })).body).toEqual(created);
    await api.put(target, { enabled: false });
    for (const send of [
      () => api.post(streamsPath, { data: {} }),
      () => api.post('/streams/', { device: id, data: {} }),
      () => api.post('/status/', { device: id, data: {} }),
    ]) {
      const reply = await send();
      expect([reply.status, reply.body]).toEqual(refused);
    }
    expect(
      (
        await api.post('/streams/', [
          { device, data: {} },
          { device: id, data: {} },
        ])
      ).body,
    ).toEqual(invalid({ '1.device': 'disabled' }));
    expect([await count(streamsPath), await count()]).toEqual([1, 0]);
    await api.put(target, { enabled: true });
    expect((await api.post(streamsPath, { data: {} })).body).toEqual(created);
  });

  it('but not after a move to a disabled parent', async () => {
    const disabledGroup = await fixtures.group({ enabled: false });
    await api.put(pathOf('devices', device), { id_group: disabledGroup });
    expect((await api.post(path, { data: {} })).body).toEqual(invalid({ device: 'disabled' }));
    await api.put(pathOf('devices', device), { id_group });
    expect((await api.post(path, { data: {} })).body).toEqual(created);
  });
});

describe.each([
  ['/streams/', 'str', 'sta'],
  ['/status/', 'sta', 'str'],
])('POST %s', (legacyPath, kind, other) => {
  it('answers exactly what legacy firmware expects', async () => {
    for (const body of [{ device, data: { n: 1 } }, [{ device, data: { n: 2 } }]]) {
      const reply = await api.post(legacyPath, body);
      expect([reply.status, reply.text, reply.headers['content-type']]).toEqual([
        200,
        '{ "response": "OK" }',
        'application/json; charset=utf-8',
      ]);
    }
    expect(await values('_t')).toEqual([kind, kind]);
  });

  it('answers all other errors with a code', async () => {
    const reader = await service.client({ scope: 'read' });
    expect((await reader.post(legacyPath, { device, data: {} })).body).toEqual({
      code: 4031,
      message: 'forbidden',
      details: {},
    });
    expect((await api.post(legacyPath, '{')).body).toEqual({ code: 4001, message: 'Json bad formed', details: {} });
    expect((await api.post(legacyPath, { data: {} })).body).toEqual(invalid({ device: 'is required' }));
    expect((await api.post(legacyPath, { device: 5, data: {} })).body).toEqual(invalid({ device: expect.any(String) }));
    expect((await api.post(legacyPath, { device: 'no', data: {} })).body).toEqual(
      invalid({ device: 'does not exist' }),
    );
    expect((await api.post(legacyPath, { device, data: {}, _t: other })).body).toEqual(
      invalid({ _t: expect.any(String) }),
    );
    expect((await api.post(`${legacyPath}?a=1`, { device, data: {} })).body.code).toBe(4004);
    expect((await api.post(legacyPath, [])).body).toEqual(invalid({ streams: expect.any(String) }));
    expect((await api.post(legacyPath, Array(1001).fill({ device, data: {} }))).body.code).toBe(4003);
    expect((await api.put(legacyPath, {})).body.code).toBe(4051);
    expect(await count()).toBe(0);
  });

  it('stores streams of several devices, all or none', async () => {
    const second = await fixtures.device({ id_group });
    const entries = [device, second, device].map((id, n) => ({ device: id, _t: kind, data: { n } }));
    const withMissing = [...entries, { device: 'missing@acme', data: {} }];
    expect((await api.post(legacyPath, withMissing)).body).toEqual(invalid({ '3.device': 'does not exist' }));
    expect(await count()).toBe(0);
    expect((await api.post(legacyPath, entries)).body).toEqual({ response: 'OK' });
    expect([await count(), await count(pathOf('devices', second, 'streams'))]).toEqual([2, 1]);
  });

  it('stores 1,000 streams', async () => {
    expect((await api.post(legacyPath, Array(1000).fill({ device, data: {} }))).text).toBe('{ "response": "OK" }');
    expect(await count()).toBe(1000);
  });
});

it('stores concurrent posts exactly once each', async () => {
  const bodies = Array.from({ length: 300 }, (_, n) => ({ data: { n }, ...(n % 10 === 0 && { at: 'never' }) }));
  const replies = await Promise.all(bodies.map((body) => api.post(path, body)));
  expect(replies.map(({ status }) => status)).toEqual(bodies.map((_, n) => (n % 10 === 0 ? 400 : 200)));
  const stored = (await values('data')).map(({ n }: { n: number }) => n);
  expect(stored.sort((a: number, b: number) => a - b)).toEqual(bodies.flatMap((_, n) => (n % 10 === 0 ? [] : [n])));
});

describe('GET', () => {
  /** Posts ten streams, two seconds apart; n is the order of creation. */
  const createTenStreams = async () => {
    const startedAt = service.now();
    for (let n = 0; n < 10; n++) {
      const sender = n % 5 === 0 ? await service.client({ username: 'bob' }) : api;
      const body = { at: 100 - n + n / 2, protocol: n % 2 ? 'lora' : 'http', _t: n % 3 ? 'str' : 'sta', data: { n } };
      expect((await sender.post(path, body)).body).toEqual(created);
      service.advance(2);
    }
    return startedAt;
  };
  const numbersFor = async (query: string): Promise<number[]> =>
    (await values('data', query)).map(({ n }: { n: number }) => n);

  it('filters by every parameter, alone and combined', async () => {
    const startedAt = await createTenStreams();
    const cases: [string, number[]][] = [
      ['?', [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]],
      ['?_t=sta', [9, 6, 3, 0]],
      ['?_t=str', [8, 7, 5, 4, 2, 1]],
      ['?protocol=lora', [9, 7, 5, 3, 1]],
      ['?protocol=none', []],
      ['?at=97.5', [5]],
      ['?at_from=98', [4, 3, 2, 1, 0]],
      ['?at_to=96', [9, 8]],
      ['?at_from=96&at_to=97', [8, 7, 6]],
      ['?at=97&at_from=96', [6]],
      ['?at=97&at_from=98', []],
      ['?owner=bob', [5, 0]],
      ['?updater=alice&protocol=http', [8, 6, 4, 2]],
      [`?created_at=${startedAt + 4}`, [2]],
      [`?created_at_from=${startedAt + 14}`, [9, 8, 7]],
      [`?created_at_to=${startedAt + 2}`, [1, 0]],
      [`?updated_at_from=${startedAt + 6}&updated_at_to=${startedAt + 8}`, [4, 3]],
      [`?_t=sta&protocol=lora&created_at_from=${startedAt + 6}&owner=alice`, [9, 3]],
      ['?max=3', [9, 8, 7]],
      ['?offset=8', [1, 0]],
      ['?max=2&offset=3&order=-1', [3, 4]],
      ['?offset=50', []],
      ['?sort=created_at', [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]],
      ['?sort=at&order=-1', [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]],
      ['?sort=protocol', [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]],
      ['?sort=protocol&order=-1', [9, 7, 5, 3, 1, 8, 6, 4, 2, 0]],
      ['?sort=_t&max=4', [0, 3, 6, 9]],
      ['?sort=owner&order=-1&max=3', [5, 0, 9]],
      ['?sort=device&order=1&max=1', [9]],
    ];
    for (const [query, expected] of cases) expect([query, await numbersFor(query)]).toEqual([query, expected]);
    expect((await listStreams('?max=3&_t=str')).total_documents).toBe(6);
    expect((await listStreams('?offset=50')).total_documents).toBe(10);
  });

  it.each([
    ['at_from=2026-11-27T09:00:00.5%2B01:00', [2, 3]],
    ['at_from=2026-11-27T09:00:00.5+01:00', [2, 3]],
    ['at_to=2026-11-27T08:00:00Z', [1]],
    ['at=2026-11-27T03:00:01-05:00', [3]],
    ['at_from=2026-11-27T08:00:00Z&at_to=1795766400.9', [1, 2]],
    ['created_at_from=2026-11-27T08:00:00Z&at_to=2026-11-27T08:00:00Z', [1]],
  ])('takes times as RFC 3339: %s', async (query, expected) => {
    const times = [1_795_766_400, 1_795_766_400.5, 1_795_766_401];
    await api.post(
      path,
      times.map((at, index) => ({ at, data: { n: index + 1 } })),
    );
    expect((await values('data', `?${query}`)).map(({ n }: { n: number }) => n)).toEqual(expected);
  });

  it('says that seconds are meant, or RFC 3339', async () => {
    const rule = 'must be in seconds since 1970, up to 1000000000000, or RFC 3339 with an offset';
    for (const at of ['1795766400000', '2026-11-27T09:00:00', 'yesterday']) {
      const reply = await api.get(`${path}?at=${at}`);
      expect([reply.status, reply.body.details]).toEqual([400, { at: rule }]);
    }
    const reply = await api.delete(path, { at_to: '2026-11-27T09:00:00 01:00' });
    expect(reply.body.code).toBe(2004);
  });

  it('orders streams of the same time by creation, also reversed', async () => {
    await api.post(
      path,
      [2, 1, 1, 1].map((time, n) => ({ at: time, data: { n } })),
    );
    expect(await numbersFor('')).toEqual([1, 2, 3, 0]);
    expect(await numbersFor('?order=-1')).toEqual([0, 3, 2, 1]);
  });

  it('adds metadata with _m=1', async () => {
    await createTenStreams();
    const reply = await listStreams('?_m=1&_t=sta&max=3&offset=1');
    expect(Object.keys(reply)).toEqual(expect.arrayContaining(['total_documents', 'result', 'metadata']));
    expect(reply.total_documents).toBe(4);
    expect(reply.metadata).toEqual({
      parameters: { _m: 1, _t: 'sta', max: 3, offset: 1 },
      returned: 3,
      took_ms: expect.any(Number),
      at_first: 97,
      at_last: 100,
    });
    expect((await listStreams('?_m=1&protocol=none')).metadata).toMatchObject({
      returned: 0,
      at_first: null,
      at_last: null,
    });
    expect(await listStreams('')).not.toHaveProperty('metadata');
    const account = await listStreams('?_m=1&max=2', '/streams/');
    expect(account.metadata).toMatchObject({ parameters: { _m: 1, max: 2 }, returned: 2 });
    const xml = await api.get(`${path}?_m=1&max=3`, { Accept: 'application/xml' });
    expect(new XMLParser().parse(xml.text).response.metadata).toMatchObject({
      returned: 3,
      at_first: 95.5,
      at_last: 96.5,
    });
  });

  it('describes with metadata the very page that it sends, whatever is written meanwhile', async () => {
    await createTenStreams();
    const { collection } = service.db;
    let finds = 0;
    service.db.collection = (plural) => {
      const real = collection(plural);
      const command = async (...args: Parameters<typeof real.db.command>) => {
        const reply = await real.db.command(...args);
        // between the query for the metadata and that for the page
        if (plural === 'streams' && ++finds === 1)
          await api.post(path, [
            { at: 1, data: {} },
            { at: 2, data: {} },
          ]);
        return reply;
      };
      return Object.create(real, { db: { value: Object.create(real.db, { command: { value: command } }) } });
    };
    try {
      const { metadata, result } = await listStreams('?_m=1&max=4&sort=at');
      expect(finds).toBeGreaterThan(1);
      expect(metadata).toMatchObject({ returned: 4, at_first: result[0].at, at_last: result[3].at });
      expect(result[0].at).toBeGreaterThan(2);
    } finally {
      service.db.collection = collection;
    }
    expect((await listStreams('?max=1&sort=at')).result[0].at).toBe(1);
  });

  const invalidParams = [
    ['name', 'name=x'],
    ['enabled', 'enabled=1'],
    ['id_developer', 'id_developer=x@acme'],
    ['version', 'version=1'],
    ['data', 'data=1'],
    ['at_before', 'at_before=1'],
    ['_t', '_t=x'],
    ['_t', '_t='],
    ['_t', '_t=str&_t=str'],
    ['protocol', 'protocol='],
    ['protocol', `protocol=${'x'.repeat(51)}`],
    ['at', 'at=now'],
    ['at', 'at=0x10'],
    ['at_from', 'at_from=2&at_to=1'],
    ['created_at_from', 'created_at_from=2&created_at_to=1'],
    ['max', 'max=0'],
    ['max', 'max=1001'],
    ['max', 'max=1.5'],
    ['order', 'order=0'],
    ['offset', 'offset=-1'],
    ['sort', 'sort=data'],
    ['sort', 'sort=checksum'],
  ];
  it.each([...invalidParams, ['_m', '_m=2'], ['_m', '_m=0'], ['_m', '_m=true'], ['device', 'device=x@acme']])(
    'answers 4004 for %s in ?%s',
    async (param, query) => {
      const reply = await api.get(`${path}?${query}`);
      expect([reply.status, reply.body]).toEqual([
        400,
        { code: 4004, message: 'format parameter invalid', details: { [param]: expect.any(String) } },
      ]);
    },
  );

  it.each([...invalidParams, ['_m', '_m=1'], ['device', 'device=x@acme']])(
    'DELETE answers 4004 for %s in ?%s, and deletes nothing',
    async (param, query) => {
      await api.post(path, { data: {} });
      const reply = await api.delete(`${path}?${query}`);
      expect([reply.status, reply.body]).toEqual([
        400,
        { code: 4004, message: 'format parameter invalid', details: { [param]: expect.any(String) } },
      ]);
      expect(await count()).toBe(1);
    },
  );

  it('lists the streams of the account by device, then time', async () => {
    const solo = await service.client({ account: 'solo' });
    const soloFixtures = createFixtures(solo);
    const [b, a] = [await soloFixtures.device({ name: 'b' }), await soloFixtures.device({ name: 'a' })];
    expect([b, a]).toEqual(['b@solo', 'a@solo']);
    const entries = [b, a, b, a].map((id, n) => ({ device: id, at: 10 - n, data: { n } }));
    await solo.post('/streams/', entries);
    const order = async (query: string) =>
      (await solo.get(`/streams/${query}`)).body.result.map(({ data }: { data: { n: number } }) => data.n);
    expect(await order('')).toEqual([3, 1, 2, 0]);
    expect(await order('?order=-1')).toEqual([0, 2, 1, 3]);
    expect(await order('?sort=at')).toEqual([3, 2, 1, 0]);
    expect(await order(`?device=${encodeURIComponent(b)}`)).toEqual([2, 0]);
    expect(await order('?device=b@solo&at_from=9')).toEqual([0]);
    expect(await order('?device=nobody')).toEqual([]);
    expect((await solo.get('/streams/?max=1&offset=1')).body).toMatchObject({
      total_documents: 4,
      result: [{ device: a, data: { n: 1 } }],
    });
    for (const query of ['?device=', '?name=x', '?enabled=1', '?device=a&device=b'])
      expect((await solo.get(`/streams/${query}`)).body.code).toBe(4004);
  });
});

describe('DELETE', () => {
  const remaining = async (): Promise<number[]> =>
    (await values('data', '?sort=created_at')).map(({ n }: { n: number }) => n);
  const postTen = (fieldsOf: (n: number) => object = () => ({})) =>
    api.post(
      path,
      Array.from({ length: 10 }, (_, n) => ({ at: 100 - n, data: { n }, ...fieldsOf(n) })),
    );

  it('reads filters from the query', async () => {
    await postTen((n) => ({ protocol: n % 2 ? 'lora' : 'http', _t: n > 6 ? 'sta' : 'str' }));
    const reply = await api.delete(`${path}?protocol=lora&_t=str`);
    expect([reply.status, reply.body]).toEqual([200, deleted]);
    expect(await remaining()).toEqual([0, 2, 4, 6, 7, 8, 9]);
    await api.delete(`${path}?at_from=98&at_to=100`);
    expect(await remaining()).toEqual([4, 6, 7, 8, 9]);
  });

  it('reads filters from a body, as JSON numbers or text, and from both', async () => {
    await postTen((n) => ({ protocol: n % 2 ? 'lora' : 'http' }));
    expect((await api.delete(path, { at: 91 })).body).toEqual(deleted);
    expect((await api.delete(path, { at_from: '99' })).body).toEqual(deleted);
    expect(await remaining()).toEqual([2, 3, 4, 5, 6, 7, 8]);
    await api.delete(`${path}?protocol=lora`, { at_to: 95 });
    expect(await remaining()).toEqual([2, 3, 4, 6, 8]);
    await api.delete(path, {});
    expect(await remaining()).toEqual([]);
  });

  it('answers 4004 for an invalid body, and deletes nothing', async () => {
    await postTen();
    for (const [param, body] of [
      ['name', { name: 'x' }],
      ['enabled', { enabled: true }],
      ['device', { device: 'x@acme' }],
      ['at', { at: { $gt: 0 } }],
      ['at', { at: [1] }],
      ['at', { at: true }],
      ['at', { at: '' }],
      ['_t', { _t: 'x' }],
      ['max', { max: 0 }],
      ['order', { order: 2 }],
      ['at_from', { at_from: 2, at_to: 1 }],
      ['$where', { $where: '1' }],
      ['_m', { _m: 1 }],
      ['$unknown', { $unknown: null }],
      ...[
        'at',
        'at_from',
        'at_to',
        'created_at',
        'created_at_from',
        'created_at_to',
        'updated_at',
        'updated_at_from',
      ].map((param) => [param, { [param]: null }] as const),
      ...['updated_at_to', 'protocol', 'owner', 'updater', '_t', 'max', 'sort', 'order', 'offset'].map(
        (param) => [param, { at: 91, [param]: null }] as const,
      ),
    ] as const) {
      const reply = await api.delete(path, body);
      expect([reply.status, reply.body]).toEqual([
        400,
        { code: 4004, message: 'format parameter invalid', details: { [param]: expect.any(String) } },
      ]);
    }
    expect((await api.delete(path, { at: null, max: [1], protocol: 'x' })).body.details).toEqual({
      at: 'must be a text, a number or a boolean',
      max: 'must be a text, a number or a boolean',
    });
    for (const body of ['[]', '5', 'null', '{', '"x"', '[{"at":1}]']) {
      const reply = await api.delete(path, body);
      expect([body, reply.status, reply.body.code]).toEqual([body, 400, 4004]);
    }
    for (const encoding of ['gzip', 'deflate', 'br']) {
      const reply = await api.send('DELETE', path, { 'Content-Encoding': encoding }, '{"at":1}');
      expect([encoding, reply.status, reply.body.code]).toEqual([encoding, 400, 4004]);
    }
    expect((await api.delete(`${path}?at=100`, { at: 100 })).body).toMatchObject({
      code: 4004,
      details: { at: 'must be given once' },
    });
    expect(await count()).toBe(10);
  });

  it.each([
    ['?max=3', [0, 1, 2, 3, 4, 5, 6]],
    ['?max=3&order=-1', [3, 4, 5, 6, 7, 8, 9]],
    ['?max=3&sort=created_at', [3, 4, 5, 6, 7, 8, 9]],
    ['?max=2&offset=1', [0, 1, 2, 3, 4, 5, 6, 9]],
    ['?offset=8', [2, 3, 4, 5, 6, 7, 8, 9]],
    ['?offset=8&order=-1', [0, 1, 2, 3, 4, 5, 6, 7]],
    ['?offset=10', [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]],
    ['?max=1000', []],
    ['?order=-1&sort=at', []],
    ['?max=2&at_to=95', [0, 1, 2, 3, 4, 5, 6, 7]],
  ])('deletes the page of the list that %s selects', async (query, expected) => {
    await postTen();
    expect((await api.delete(path + query)).body).toEqual(deleted);
    expect(await remaining()).toEqual(expected);
  });

  it('reads max, sort, order and offset from a body', async () => {
    await postTen();
    await api.delete(path, { max: 3, sort: 'created_at', order: -1, offset: '1' });
    expect(await remaining()).toEqual([0, 1, 2, 3, 4, 5, 9]);
  });

  it('deletes all matches without max, also more than 1,000', async () => {
    for (let round = 0; round < 3; round++)
      await api.post(
        path,
        Array.from({ length: 1000 }, (_, n) => ({ at: n, data: {} })),
      );
    await api.delete(`${path}?at_from=1`);
    expect(await count()).toBe(3);
    await api.delete(path);
    expect(await count()).toBe(0);
  });

  it("keeps other devices' streams and the device's own status", async () => {
    const other = await fixtures.device({ id_group });
    await api.post('/streams/', [
      { device, data: {} },
      { device: other, data: {} },
    ]);
    await api.post('/status/', { device, data: {} });
    const before = (await api.get(pathOf('devices', device))).body;
    expect(before.status).toBe('ok');
    await api.delete(path);
    expect([await count(), await count(pathOf('devices', other, 'streams'))]).toEqual([0, 1]);
    expect((await api.get(pathOf('devices', device))).body).toEqual(before);
    service.advance(1440 * 60);
    expect((await api.get(pathOf('devices', device))).body).toMatchObject({
      status: 'disconnected',
      last_stream_at: before.last_stream_at,
    });
  });
});

describe('streams in two writes at once', () => {
  it('counts the one received last of equal times as the last, also if it is stored first', async () => {
    let letGo: () => void = () => undefined;
    const isHeld = new Promise<void>((resolve) => (letGo = resolve));
    let lookups = 0;
    const ingest = createIngest({
      db: service.db,
      // the write of the first one is overtaken
      areAncestorsEnabled: async () => {
        if (lookups++ === 0) await isHeld;
        return true;
      },
      metrics: { stored() {}, batch() {}, ingested() {} },
      clock: () => service.now() * 1000,
    });
    const id = await fixtures.device({ id_group });
    const send = (n: number) =>
      ingest({
        ...parseStreams([{ device: id, data: { n } }], {}),
        ...{ account: 'acme', limit: undefined, user: 'alice', now: service.now() },
      });
    const first = send(1);
    while (lookups === 0) await new Promise((resolve) => setImmediate(resolve));
    await send(2);
    letGo();
    await first;
    expect((await api.get(`${pathOf('devices', id)}?fields=latest`)).body.latest.data).toEqual({ n: 2 });
  });
});

describe('a deleted device', () => {
  it('leaves no streams to a later device of the same name', async () => {
    const first = await fixtures.device({ id_group, name: 'phoenix' });
    await api.post('/streams/', { device: first, data: {} });
    await api.delete(pathOf('devices', first));
    expect(await fixtures.device({ id_group, name: 'phoenix' })).toBe(first);
    expect(await count(pathOf('devices', first, 'streams'))).toBe(0);
    expect((await api.get(pathOf('devices', first))).body).toMatchObject({ status: 'disconnected' });
  });

  it.each([
    ['the look-up of the device and before the insert', 'streams', 'insertMany', false],
    ['the insert and before the update of its deadline', 'devices', 'updateMany', false],
    ['the insert and before the second look at it', 'streams', 'insertMany', true],
  ] as const)('has streams stored meanwhile removed: after %s', async (_moment, plural, method, isSending) => {
    const id = await fixtures.device({ id_group });
    // its receipt is stored later
    if (isSending) for (const each of [id, device]) await api.post('/streams/', { device: each, data: {} });
    const { collection } = service.db;
    // deletes the device right before this one call, or after it
    const db: Database = {
      ...service.db,
      collection: (name) =>
        new Proxy(collection(name), {
          get(target, property) {
            const value: unknown = Reflect.get(target, property);
            if (typeof value !== 'function') return value;
            if (name !== plural || property !== method) return value.bind(target);
            return async (...args: unknown[]) => {
              const inserted = isSending && (await value.apply(target, args));
              await api.delete(pathOf('devices', id));
              return isSending ? inserted : value.apply(target, args);
            };
          },
        }),
    };
    const metrics = { stored() {}, batch() {}, ingested() {} };
    let deferred = 0;
    const add = (moves: readonly object[]) => {
      deferred += moves.length;
      return isSending;
    };
    const ingest = createIngest({
      db,
      deferred: { ...service.store.deferred, add },
      areAncestorsEnabled: async () => true,
      metrics,
      clock: () => service.now() * 1000,
    });
    const job = (...names: string[]) =>
      ingest({
        ...parseStreams(
          names.map((name) => ({ device: name, data: {} })),
          {},
        ),
        account: 'acme',
        limit: undefined,
        user: 'alice',
        now: service.now(),
      });
    // both share one write, and the other sender's stream must be stored
    const outcomes = await Promise.allSettled([job(device, id), job(device)]);
    expect(outcomes).toMatchObject([
      { status: 'rejected', reason: { failure: 'invalid', details: { '1.device': 'does not exist' } } },
      { status: 'fulfilled' },
    ]);
    expect(await count()).toBe(isSending ? 2 : 1);
    expect(deferred > 0).toBe(isSending);
    expect(await findOrphans(service.db.collection)).toEqual([]);
  });
});

describe('GET /streams/rate/', () => {
  it('counts the streams of the last hour by minute of receipt, once a minute is over', async () => {
    const other = await service.client({ account: 'rated' });
    const { device: createDevice } = createFixtures(other);
    const device = await createDevice();
    const path = pathOf('devices', device, 'streams');
    const rate = async () => (await other.get('/streams/rate/')).body;
    const none = Array.from({ length: 60 }, () => 0);
    service.advance(60 - (service.now() % 60));
    const begun = service.now();
    expect(await rate()).toEqual({ at_from: begun - 3660, counts: none });
    expect(
      (
        await other.post(
          path,
          [1, 2].map((t) => ({ at: 7, data: { t } })),
        )
      ).status,
    ).toBe(200);
    expect((await other.post(path, { _t: 'sta', data: {} })).status).toBe(200);
    expect((await other.post(path, { data: 1 })).status).toBe(400);
    const simulated = await sendImport(other, [{ resource: 'stream', device, at: 8, data: {} }], '?dry_run=1');
    expect(simulated.totals.created).toBe(1);
    service.advance(62);
    // the minute may still be added to by other processes
    expect((await rate()).at_from).toBe(begun - 3600);
    service.advance(1);
    await waitFor(rate, ({ counts }) => counts.at(-1) > 0);
    expect(await rate()).toEqual({ at_from: begun - 3540, counts: none.with(-1, 3) });
    expect((await other.post(path, { data: { t: 3 } })).status).toBe(200);
    service.advance(120);
    await waitFor(rate, ({ counts }) => counts.at(-2) > 0);
    expect((await rate()).counts).toEqual(none.with(-3, 3).with(-2, 1));
    service.advance(58 * 60);
    expect((await rate()).counts).toEqual(none.with(0, 1));
  });
});
