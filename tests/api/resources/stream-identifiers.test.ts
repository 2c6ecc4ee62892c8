import { describe, expect, it } from '@jest/globals';
import { summarize, useTestService } from '../../support/expect-status.js';
import { type Api, pathOf } from '../../support/service.js';

/** Identifiers of streams (reference/streams.md#stream-identifiers). */
const ctx = await useTestService();
let device = '';
let path = '';

device = await ctx.fixtures.device();
path = pathOf('devices', device, 'streams');

/** Stores a stream and returns its identifier. */
async function createStream(data: object, api: Api = ctx.api): Promise<string> {
  expect((await api.post(path, { data })).body.code).toBe(2001);
  const { result } = (await api.get(`${path}?sort=created_at&order=-1&max=1`)).body;
  expect(result[0].data).toEqual(data);
  return result[0].id_developer;
}

describe('a stream', () => {
  it('has an identifier of 64 hexadecimal digits and the account, the same wherever it is shown', async () => {
    const first = await createStream({ n: 1 });
    const second = await createStream({ n: 2 });
    expect(first).toMatch(/^[0-9a-f]{64}@acme$/);
    expect(second).not.toBe(first);
    const stored = await ctx.service.db.collection('streams').findOne({ '_id.device': device, 'data.n': 2 });
    // the internal id of the device, the time as a double, and the number
    const at = Buffer.alloc(8);
    at.writeDoubleBE(ctx.service.now());
    const { _id, parent: sender } = stored as unknown as { _id: { n: { toBigInt(): bigint } }; parent: unknown };
    const parent = String(sender).replaceAll('-', '');
    expect(second).toBe(`${parent}${at.toString('hex')}${_id.n.toBigInt().toString(16).padStart(16, '0')}@acme`);
    for (const list of [path, '/streams/']) {
      const { result } = (await ctx.api.get(list)).body;
      expect(result.map(({ id_developer }: { id_developer: string }) => id_developer)).toContain(second);
    }
    const xml = await ctx.api.get('/streams/', { accept: 'application/xml' });
    expect(xml.text).toContain(`<id_developer>${second}</id_developer>`);
  });

  it('is shown without leaving a session of the database open', async () => {
    const id = await createStream({ shown: 'often' });
    const { client } = ctx.service.db.collection('streams').db;
    // those of this service only: other tests use the database at the same time
    const { activeSessions } = (client as unknown as { s: { activeSessions: ReadonlySet<unknown> } }).s;
    const reads = 300;
    const before = activeSessions.size;
    for (let count = 0; count < reads; count++) expect((await ctx.api.get(pathOf('streams', id))).status).toBe(200);
    // the maintenance may have some at any time
    expect(activeSessions.size).toBeLessThan(before + reads / 10);
  });

  it('is shown by its identifier, without an entity tag', async () => {
    const id = await createStream({ shown: true });
    for (const address of [pathOf('streams', id), `/streams/${id}`]) {
      const reply = await ctx.api.get(address);
      expect(reply.status).toBe(200);
      expect(reply.headers).not.toHaveProperty('etag');
      expect(reply.body).toEqual({
        id_developer: id,
        device,
        _t: 'str',
        protocol: 'http',
        at: ctx.service.now(),
        data: { shown: true },
        owner: 'alice',
        updater: 'alice',
        created_at: ctx.service.now(),
      });
    }
    const xml = await ctx.api.get(pathOf('streams', id), { accept: 'application/xml' });
    expect(xml.text).toMatch(/^<\?xml version="1.0" encoding="UTF-8"\?><stream><_t>.*<\/stream>$/);
  });

  it('is deleted by its identifier, once, and its device keeps its status', async () => {
    const id = await createStream({ deleted: true });
    const kept = await createStream({ kept: true });
    const before = (await ctx.api.get(pathOf('devices', device))).body;
    const reply = await ctx.api.delete(pathOf('streams', id));
    expect([reply.status, reply.body]).toEqual([200, { code: 2004, message: 'stream deleted', details: {} }]);
    expect(await ctx.service.db.collection('streams').countDocuments({ 'data.deleted': true })).toBe(0);
    for (const repeated of [await ctx.api.get(pathOf('streams', id)), await ctx.api.delete(pathOf('streams', id))])
      expect(summarize(repeated)).toBe('4041');
    expect((await ctx.api.get(pathOf('streams', kept))).status).toBe(200);
    expect((await ctx.api.get(pathOf('devices', device))).body).toEqual(before);
  });

  it('is found by no other identifier', async () => {
    const id = await createStream({ exact: true });
    const [digits = ''] = id.split('@');
    const changed = (at: number) => digits.slice(0, at) + (digits[at] === '0' ? '1' : '0') + digits.slice(at + 1);
    const others = [
      changed(0),
      changed(31),
      changed(32),
      changed(48),
      digits.slice(0, 32),
      `${digits}00`,
      `${'0'.repeat(32)}${'f'.repeat(32)}`,
    ];
    for (const other of [...others.map((text) => `${text}@acme`), `${digits}@globex`, `${digits}@`, `x@${id}`, '@'])
      for (const method of ['GET', 'DELETE'])
        expect([method, other, summarize(await ctx.api.send(method, pathOf('streams', other)))]).toEqual([
          method,
          other,
          '4041',
        ]);
    for (const method of ['GET', 'DELETE'])
      expect(summarize(await ctx.api.send(method, pathOf('streams', digits)))).toBe('4004 stream_id_developer');
    expect((await ctx.api.get(pathOf('streams', id))).status).toBe(200);
  });

  it('is neither filtered nor sorted by its identifier, which is ignored in a body', async () => {
    for (const list of [path, '/streams/']) {
      expect(summarize(await ctx.api.get(`${list}?id_developer=x@acme`))).toBe('4004 id_developer');
      expect(summarize(await ctx.api.get(`${list}?sort=id_developer`))).toBe('4004 sort');
    }
    expect((await ctx.api.post(path, { data: { echo: 1 }, id_developer: 'x' })).body.code).toBe(2001);
  });

  it('is found by its key', async () => {
    const id = await createStream({ planned: true });
    const streams = ctx.service.db.collection('streams');
    const stored = await streams.findOne({ 'data.planned': true });
    const { executionStats } = await streams.find({ _id: stored?._id ?? ctx.service.db.newId() }).explain();
    // the document behind it ends the search
    expect(executionStats.totalDocsExamined).toBeLessThanOrEqual(2);
    expect((await ctx.api.get(pathOf('streams', id))).body.data).toEqual({ planned: true });
  });
});
