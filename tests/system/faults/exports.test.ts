import { once } from 'node:events';
import { type ClientRequest, get, type IncomingMessage } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, expect, it } from '@jest/globals';
import { parse } from 'csv-parse/sync';
import { issueKey } from '../../../src/objects/api-keys.js';
import { useTestService } from '../../support/expect-status.js';
import { openSandbox, waitUntil } from '../../support/process.js';
import { pathOf } from '../../support/service.js';
import { buildStreamDocument } from '../../support/stream-documents.js';

// the refused export is logged as an error
const ctx = await useTestService({ log: { info() {}, warn() {}, error() {} } });
const count = 60_000;
let key: string;
let path: string;

beforeAll(async () => {
  const { db } = ctx.service;
  ({ key } = await issueKey(db, { account: 'acme', username: 'alice', scope: 'read' }, 0));
  const device = await ctx.fixtures.device();
  const stored = await db.collection('devices').findOne({ id_developer: device });
  path = `${pathOf('devices', device)}streams/`;
  for (let start = 0; start < count; start += 10_000) {
    const streams = Array.from({ length: 10_000 }, (_, index) => {
      const data = { value: start + index, text: 'x'.repeat(200) };
      return buildStreamDocument({ device, parent: stored?._id, at: start + index, place: 0, data });
    });
    await db.collection('streams').insertMany(streams);
  }
});

async function open(query: string, headers = {}): Promise<{ request: ClientRequest; response: IncomingMessage }> {
  const request = get(`${ctx.service.url}${path}?${query}`, { headers: { 'service.apikey': key, ...headers } });
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  return { request, response };
}

/** Waits until no export is in progress: their cursors are closed. */
async function waitForEnd(): Promise<void> {
  await waitUntil(() => ctx.service.store.exports.held === 0);
}

/** Cursors on the streams of this test: others use the same mongod. */
async function countOpenCursors(): Promise<number> {
  const { db, namespace } = ctx.service.db.collection('streams');
  const stages = [{ $currentOp: { idleCursors: true } }, { $match: { type: 'idleCursor', ns: namespace } }];
  return (await db.client.db('admin').aggregate(stages).toArray()).length;
}

it('adds no listener for each time that a compressed export waits for its client', async () => {
  const sandbox = await openSandbox();
  const uri = new URL(process.env.TEST_MONGODB_URI ?? '');
  uri.pathname = ctx.service.db.collection('streams').dbName;
  // Node.js warns of the eleventh
  const service = await sandbox.service({ MONGODB_URI: uri.href, SECRET_KEY: 'only for this test' });
  const headers = { 'service.apikey': key, 'Accept-Encoding': 'gzip' };
  const { status } = await service.send('GET', `${path}?format=csv`, undefined, headers);
  expect([status, service.err()]).toEqual([200, expect.not.stringContaining('MaxListeners')]);
  await sandbox.close();
});

it('exports all rows in order', async () => {
  const { response } = await open('format=csv&fields=at,data.value');
  let text = '';
  for await (const part of response.setEncoding('utf8')) text += part;
  const rows: string[][] = parse(text, { from_line: 2 });
  expect(rows.length).toBe(count);
  expect(rows.every(([at, value], index) => at === String(index) && value === String(index))).toBe(true);
});

it.each([{}, { 'Accept-Encoding': 'gzip' }, { 'Accept-Encoding': 'br' }])(
  'holds little for a client that does not read, and ends when it leaves: %j',
  async (headers) => {
    const before = await countOpenCursors();
    const { request, response } = await open('format=ndjson', headers);
    response.once('error', () => undefined);
    response.pause();
    expect(ctx.service.store.exports.heldBy('acme')).toBe(1);
    request.destroy();
    await waitForEnd();
    expect(await countOpenCursors()).toBe(before);
  },
);

it('ends without reading the list for HEAD', async () => {
  const request = await fetch(`${ctx.service.url}${path}?format=csv`, {
    method: 'HEAD',
    headers: { 'service.apikey': key },
  });
  expect([request.status, request.headers.get('content-type')]).toEqual([200, 'text/csv; charset=utf-8']);
  await waitForEnd();
});

it('refuses the 51st export of an account with 5033, and takes others', async () => {
  const opened = await Promise.all(
    Array.from({ length: 50 }, async () => {
      const one = await open('format=ndjson');
      one.response.once('error', () => undefined);
      one.response.pause();
      return one;
    }),
  );
  const refused = await ctx.api.get(`${path}?format=csv`);
  expect([refused.status, refused.body.code, refused.headers['retry-after']]).toEqual([503, 5033, '1']);
  const stranger = await ctx.service.client({ account: 'stranger' });
  expect((await stranger.get('/devices/?format=csv')).status).toBe(200);
  for (const { request } of opened) request.destroy();
  await waitForEnd();
  expect((await ctx.api.get(`${path}?format=csv&max=1`)).status).toBe(200);
});

it('takes longer than the time limit of a request, as long as its client reads', async () => {
  const { response } = await open('format=ndjson');
  const begun = performance.now();
  let lines = 0;
  for await (const part of response) {
    lines += (part as Buffer).reduce((sum, byte) => sum + (byte === 0x0a ? 1 : 0), 0);
    if (performance.now() - begun < 6000) await sleep(300);
  }
  expect(performance.now() - begun).toBeGreaterThan(5000);
  expect(lines).toBe(count);
});
