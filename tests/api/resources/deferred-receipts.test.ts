import { once } from 'node:events';
import { afterAll, beforeEach, expect, it } from '@jest/globals';
import { AppError } from '../../../src/errors.js';
import { createDeferredReceipts, type DeferredReceipts } from '../../../src/objects/receipts/deferred-receipts.js';
import { saveLostReceipts } from '../../../src/objects/receipts/lost-receipts.js';
import { createIngest } from '../../../src/streams/ingest.js';
import { parseStreams } from '../../../src/streams/parse-streams.js';
import { createFixtures, pathOf, startTestService } from '../../support/service.js';

/** Receipts in the memory of a process that crashes before it stores them (`src/objects/receipts/deferred-receipts.ts`). */
const service = await startTestService();
const api = await service.client();
const fixtures = createFixtures(api);
let id_group = '';
let deferred = 0;

const ingest = createIngest({
  db: service.db,
  deferred: {
    add(moves) {
      deferred += moves.length;
      return true;
    },
    async store() {},
    storeOf: () => undefined,
    async work() {},
  },
  areAncestorsEnabled: async () => true,
  metrics: { stored() {}, batch() {}, ingested() {} },
  clock: () => service.now() * 1000,
});

const minute = 60;
const show = async (id: string) => (await api.get(pathOf('devices', id))).body;
const stored = (id: string) => service.db.collection('devices').findOne({ id_developer: id });
function send(device: string, stream: object = {}, options: object = {}): Promise<unknown> {
  const submission = parseStreams([{ device, data: {}, ...stream }], {});
  return ingest({ ...submission, account: 'acme', limit: undefined, user: 'alice', now: service.now(), ...options });
}

afterAll(() => service.stop());
beforeEach(async () => {
  id_group = await fixtures.group();
  deferred = 0;
});

/** Creates a device that has sent a stream, and another one 20 s later. */
async function createSender(fields: object = {}): Promise<{ id: string; begun: number }> {
  const id = await fixtures.device({ id_group, frequency_stream: 2, ...fields });
  const begun = service.now();
  await send(id);
  service.advance(20);
  await send(id);
  expect(deferred).toBe(1);
  expect(await stored(id)).toMatchObject({ last_stream_at: begun, stream_due_at: begun + 2 * minute });
  return { id, begun };
}

it('are shown by a device alone', async () => {
  const { id, begun } = await createSender();
  expect(await show(id)).toMatchObject({ last_stream_at: begun + 20, stream_due_at: begun + 140, status: 'no_status' });
  expect(await stored(id)).toMatchObject({ last_stream_at: begun + 20, stream_due_at: begun + 140 });
});

const isSilent: [string, object, object][] = [
  ['a last will', {}, { isWill: true }],
  ['imported streams', { at: 5 }, { isImport: true }],
];

it('are stored by another process after a crash', async () => {
  const { id, begun } = await createSender();
  service.advance(1);
  for (const [, stream, options] of isSilent) await send(id, stream, options);
  const leases = service.db.collection<{ _id: string; until: Date }>('leases');
  await leases.insertOne({ _id: 'receipts-of-one-that-lives', until: new Date(Date.now() + 1e6) });
  await saveLostReceipts(service.db);
  expect(await stored(id)).toMatchObject({ last_stream_at: begun });
  await leases.insertOne({ _id: 'receipts-of-one-that-crashed', until: new Date(Date.now() - 1) });
  await saveLostReceipts(service.db);
  expect(await stored(id)).toMatchObject({ last_stream_at: begun + 20, stream_due_at: begun + 140 });
  expect(await leases.distinct('_id', { _id: /^receipts-/ })).toEqual(['receipts-of-one-that-lives']);
});

it.each(isSilent)('are not those of %s', async (_name, stream, options) => {
  const { id, begun } = await createSender();
  service.advance(5);
  await send(id, stream, options);
  expect(await show(id)).toMatchObject({ last_stream_at: begun + 20 });
});

it('leave no former stream as the latest', async () => {
  const { id } = await createSender();
  const latest = async () => (await api.get(`${pathOf('devices', id)}?fields=latest`)).body.latest.data;
  await send(id, { data: { n: 1 } });
  expect(await latest()).toEqual({ n: 1 });
  service.advance(1);
  await send(id, { data: { n: 2 } });
  expect(await latest()).toEqual({ n: 2 });
});

it('survive the deletion of the streams', async () => {
  const { id, begun } = await createSender();
  expect((await api.delete(pathOf('devices', id, 'streams'))).body.code).toBe(2004);
  expect(await show(id)).toMatchObject({ last_stream_at: begun + 20, stream_due_at: begun + 140 });
});

it('are counted from when the frequency changes', async () => {
  const { id, begun } = await createSender();
  const { details } = (await api.put(pathOf('devices', id), { frequency_stream: 1 })).body;
  expect(details).toMatchObject({ last_stream_at: begun + 20, stream_due_at: begun + 80 });
});

it.each([
  ['after more than a quarter of the period', [16], {}, { frequency_stream: 1 }],
  ['after more than 25 s', [26], {}, { frequency_stream: 60 }],
  ['where less than half a period is left until a bound', [16, 15], {}, { frequency_stream: 1 }],
  ['of streams that come late', [10], { at: 5 }, {}],
])('are stored at once %s', async (_name, pauses, stream, fields) => {
  const id = await fixtures.device({ id_group, frequency_stream: 2, ...fields });
  await send(id);
  for (const pause of pauses) {
    service.advance(pause);
    await send(id, stream);
    expect(await stored(id)).toMatchObject({ last_stream_at: service.now() });
  }
  expect(deferred).toBe(0);
});

it('are stored at once for a device with a condition that is met', async () => {
  const rule = { name: 'hot', severity: 'info', conditions: [{ path: 't', op: '>', value: 1 }], id_group };
  expect((await api.post('/alarmrules/', rule)).body.code).toBe(2001);
  const { id } = await createSender();
  await api.post(pathOf('devices', id, 'streams'), { data: { t: 2 } });
  service.advance(1);
  deferred = 0;
  await send(id);
  expect(deferred).toBe(0);
  expect(await stored(id)).toMatchObject({ last_stream_at: service.now() });
});

/** Begins a turn. @returns ends it */
function beginTurn(kept: DeferredReceipts): () => Promise<void> {
  const ended = new AbortController();
  const turn = { tag: '', signal: ended.signal, isLeaseHeld: () => !ended.signal.aborted, wake() {} };
  const working = kept.work({ ...turn, pause: async () => void (await once(ended.signal, 'abort')) });
  return () => {
    ended.abort();
    return working;
  };
}

it('stay in memory until they are stored, where a command fails and where the device sends meanwhile', async () => {
  const ids = [await fixtures.device({ id_group }), await fixtures.device({ id_group })];
  let [isFailing, sendMeanwhile] = [true, () => {}];
  const kept = createDeferredReceipts({
    ...service.db,
    collection: (plural) => {
      if (isFailing) throw new AppError('database');
      sendMeanwhile();
      return service.db.collection(plural);
    },
  });
  const end = beginTurn(kept);
  const move = async (id: string, at: number) => ({ _id: (await stored(id))?._id, receipts: { stream: at } });
  const receipts = () => Promise.all(ids.map(async (id) => (await stored(id))?.last_stream_at));
  const [first, last] = await Promise.all(ids.map((id, index) => move(id, 1000 * (index + 1))));
  const others = Array.from({ length: 600 }, () => ({ _id: service.db.newId(), receipts: { stream: 1500 } }));
  expect(kept.add([first, last, ...others] as never)).toBe(true);
  await expect(kept.store()).rejects.toThrow(AppError);
  expect(await receipts()).toEqual([undefined, undefined]);
  isFailing = false;
  sendMeanwhile = () => {
    sendMeanwhile = () => {};
    kept.add([{ ...first, receipts: { stream: 3000 } }] as never);
  };
  await kept.store();
  expect(await receipts()).toEqual([1000, 2000]);
  expect([await kept.storeOf(last?._id), await kept.storeOf(first?._id)]).toEqual([undefined, true]);
  expect(await receipts()).toEqual([3000, 2000]);
  await end();
});

it('are kept while the lease is held, and stored when the device is shown or the turn ends', async () => {
  const kept = createDeferredReceipts(service.db);
  const ids = [await fixtures.device({ id_group }), await fixtures.device({ id_group })];
  const moves = await Promise.all(
    ids.map(async (id) => ({ _id: (await stored(id))?._id, receipts: { stream: 1000 } })),
  );
  expect(kept.add(moves)).toBe(false);
  const end = beginTurn(kept);
  expect(kept.add(moves)).toBe(true);
  const receipts = () => Promise.all(ids.map(async (id) => (await stored(id))?.last_stream_at));
  expect(await receipts()).toEqual([undefined, undefined]);
  expect([await kept.storeOf(moves[0]?._id), await kept.storeOf(moves[0]?._id)]).toEqual([true, undefined]);
  expect(await receipts()).toEqual([1000, undefined]);
  const ended = end();
  expect(kept.add(moves)).toBe(false);
  await ended;
  expect(await receipts()).toEqual([1000, 1000]);
});
