import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import type { StoredDocument } from '../../../src/db/database.js';
import type { StoredEvent } from '../../../src/resources/event.js';
import { findOrphans } from '../../support/orphans.js';
import { waitUntil } from '../../support/process.js';
import {
  type Api,
  createFixtures,
  pathOf,
  type Reply,
  startTestService,
  type TestService,
} from '../../support/service.js';

/**
 * Changes of more objects than one transaction takes, concurrent with requests for single ones on two instances: each object
 * that matched at the beginning is changed once, unless it no longer matches when its piece is reached
 * (reference/bulk.md#concurrency).
 */
const fleet_size = 1200;
const uri = new URL(process.env.TEST_MONGODB_URI ?? '');
uri.pathname = `/test-${randomUUID()}`;

const instances: TestService[] = [];
const service = () => instances[0] as TestService;
const devices = () => service().db.collection('devices');
const log = { info() {}, warn() {}, error() {} };
instances.push(await startTestService({ uri: uri.href, eventLog: true, log }));
await waitUntil(() => service().db.isReady());
instances.push(await startTestService({ uri: uri.href, log }));
await waitUntil(async () => (await instances[1]?.db.isReady()) === true);
const apis = (await Promise.all(instances.map((instance) => instance.client()))) as [Api, Api];
const fixtures = createFixtures(apis[0]);
const groups = [await fixtures.group(), await fixtures.group()] as const;
const id = await fixtures.device({ id_group: groups[0], type: 'pattern' });
const pattern = (await devices().findOne({ id_developer: id })) as StoredDocument;
afterAll(async () => {
  for (const instance of instances.toReversed()) await instance.stop();
});

const pumps = '/devices/?type=pump';

/** Inserts devices of type pump. @returns their identifiers */
async function addPumps(count: number, id_group: string): Promise<string[]> {
  if (count <= 0) return [];
  const group = await service().db.collection('groups').findOne({ id_developer: id_group });
  const added = Array.from({ length: count }, () => ({
    ...pattern,
    ...{ _id: service().db.newId(), id_developer: `${randomUUID()}@acme`, type: 'pump', id_group },
    parent: group?._id,
  }));
  await devices().insertMany(added as StoredDocument[]);
  return added.map((device) => device.id_developer);
}

/** Waits until every change that was begun is done or withdrawn. */
async function waitForChanges(): Promise<void> {
  const { db } = service();
  await waitUntil(async () => (await db.collection('bulkchanges').countDocuments()) === 0);
  await waitUntil(async () => (await db.collection('removals').countDocuments({ done: false })) === 0);
}

/** Repeats a change with the number of matches until it is not refused, and has begun. @returns the last answer */
async function changeAll(send: (path: string) => Promise<Reply>): Promise<Reply> {
  const isJournaled = async () => (await service().db.collection('bulkchanges').countDocuments()) > 0;
  for (;;) {
    const { code, details } = (await send(pumps)).body;
    if (code === 5031) continue;
    const reply = await send(`${pumps}&confirm=${details.matched}`);
    if (reply.body.code !== 4005 && (reply.status !== 503 || (await isJournaled()))) return reply;
  }
}

/** Waits until everything that was begun is done, and in the log. @returns the events of devices in order */
async function readLog(): Promise<StoredEvent[]> {
  await waitForChanges();
  const last = await fixtures.project();
  const events = service().db.collection('events');
  await waitUntil(async () => (await events.countDocuments({ type: 'project.created', id_developer: last })) > 0);
  const found = await events.find({ resource: 'device' }, { sort: { _id: 1 } }).toArray();
  return found as unknown as StoredEvent[];
}

const listPumps = async () =>
  (
    await devices()
      .find({ type: 'pump' }, { projection: { id_developer: 1 } })
      .toArray()
  ).map((device) => String(device.id_developer));

/** Sends requests for single objects at random moments, on both instances. */
async function sendSingles(requests: readonly ((api: Api) => Promise<Reply>)[], span_ms: number): Promise<Reply[]> {
  return Promise.all(
    requests.map(async (send, index) => {
      await sleep(Math.random() * span_ms);
      return send(apis[index % 2] as Api);
    }),
  );
}

it.each(['patch', 'delete'] as const)(
  'changes each object that matches once, while others are created, moved, updated and deleted: %s',
  async (method) => {
    const [first, second] = groups;
    await addPumps(fleet_size - (await listPumps()).length, first);
    const before = await listPumps();
    const versions = new Map<string, number>();
    for (const { id_developer, version } of await devices().find({}).toArray())
      versions.set(String(id_developer), Number(version));
    const position = (await readLog()).length;
    const chosen = before.toSorted(() => Math.random() - 0.5);
    const some = (count: number) => chosen.splice(0, count);
    const [leaving, deleted, staying, moved] = [some(12), some(8), some(40), some(20)];
    const [bulk, ...singles] = await Promise.all([
      changeAll((path) => (method === 'patch' ? apis[0].patch(path, { firmware: '2' }) : apis[0].delete(path))),
      sendSingles(
        leaving.map((id) => (api) => api.put(pathOf('devices', id), { type: 'valve' })),
        2000,
      ),
      sendSingles(
        deleted.map((id) => (api) => api.delete(pathOf('devices', id))),
        2000,
      ),
      sendSingles(
        staying.map((id) => (api) => api.put(pathOf('devices', id), { sensor: 's' })),
        2000,
      ),
      sendSingles(
        moved.map((id) => (api) => api.put(pathOf('devices', id), { id_group: second })),
        2000,
      ),
      sendSingles(
        Array.from(
          { length: 8 },
          () => (api: Api) => api.post('/devices/', { name: randomUUID(), type: 'pump', id_group: first }),
        ),
        2000,
      ),
    ]);
    const log = (await readLog()).slice(position);
    const eventsOf = ({ headers }: Reply) => log.filter(({ request_id }) => request_id === headers['x-request-id']);
    const own = eventsOf(bulk).map(({ id_developer }) => id_developer);
    const changed = new Set(own);
    // one event for each object, of those that were there when it was confirmed
    expect(own.length).toBe(changed.size);
    const created = log.filter(({ type }) => type === 'device.created').map(({ id_developer }) => id_developer);
    expect(own.filter((id) => !before.includes(id) && !created.includes(id))).toEqual([]);
    if (bulk.status === 200) expect(bulk.body.details.changed).toBe(changed.size);
    else expect(bulk.body.code).toBe(5031);
    // objects that no other request touched are changed
    expect(chosen.filter((id) => !changed.has(id))).toEqual([]);
    if (method === 'patch') expect([...staying, ...moved].filter((id) => !changed.has(id))).toEqual([]);
    // what was acknowledged has happened, once; an object that has left is not changed afterwards
    for (const reply of singles.flat()) expect(eventsOf(reply).length).toBe(reply.status === 200 ? 1 : 0);
    const positionOf = (id: string, type: string, request: Reply) =>
      log.findIndex((event) => event.id_developer === id && event.type === type && eventsOf(request).includes(event));
    for (const [index, id] of leaving.entries()) {
      const left = singles[0]?.[index] as Reply;
      if (changed.has(id) && left.status === 200)
        expect(positionOf(id, 'device.updated', bulk)).toBeLessThan(positionOf(id, 'device.updated', left));
    }
    const left = await devices()
      .find({ id_developer: { $in: [...before, ...created] } })
      .toArray();
    for (const { id_developer, version } of left)
      expect(Number(version) - (versions.get(String(id_developer)) ?? 0)).toBe(
        log.filter((event) => event.id_developer === id_developer && event.type !== 'device.created').length,
      );
    expect(left.filter(({ id_developer }) => changed.has(String(id_developer))).length).toBe(
      method === 'patch' ? changed.size - deleted.filter((id) => changed.has(id)).length : 0,
    );
    expect(await service().db.collection('bulkchanges').countDocuments()).toBe(0);
    expect(await findOrphans((plural) => service().db.collection(plural))).toEqual([]);
  },
);

it('leaves alone what is invalid when its piece is reached', async () => {
  await addPumps(fleet_size - (await listPumps()).length, groups[0]);
  const pumpIds = (await listPumps()).sort();
  const [early = '', late = ''] = [pumpIds[0], pumpIds.at(-1)];
  const count = pumpIds.length;
  // a device that has no place can be given a longitude only together with a latitude
  await devices().updateMany({ type: 'pump' }, { $set: { location: { type: 'Point', coordinates: [1, 2] } } });
  const bulkchanges = service().db.collection('bulkchanges');
  // holds up the first piece; a client of its own: the service ends its own transactions that are idle for 3 s
  const client = new mongoose.mongo.MongoClient(uri.href);
  const session = client.startSession();
  session.startTransaction();
  const held = client.db().collection('devices');
  await held.updateOne({ id_developer: early }, { $set: { held: 1 } }, { session });
  const changing = apis[0].patch(`${pumps}&confirm=${count}`, { lon: 3 });
  await waitUntil(async () => (await bulkchanges.countDocuments({ isConfirmed: true })) > 0);
  const { modifiedCount } = await devices().updateOne({ id_developer: late }, { $unset: { location: 1 } });
  await session.abortTransaction();
  await client.close();
  const { body } = await changing;
  expect([modifiedCount, body.code, body.details]).toEqual([1, 2005, { matched: count, changed: count - 1 }]);
  expect((await devices().findOne({ id_developer: late }))?.location).toBeUndefined();
  const refused = await apis[0].patch(`${pumps}&confirm=${count}`, { lon: 4 });
  expect([refused.status, refused.body.code, refused.body.details]).toEqual([400, 4003, { lat: expect.any(String) }]);
  expect(await devices().countDocuments({ 'location.coordinates': [4, 2] })).toBe(0);
  await devices().updateMany({ type: 'pump' }, { $unset: { location: 1 } });
});

it('takes up at once what it has given up itself, although others see signs of life', async () => {
  await addPumps(fleet_size - (await listPumps()).length, groups[0]);
  const count = (await listPumps()).length;
  const cut = await cutOnceConfirmed(() => apis[0].patch(`${pumps}&confirm=${count}`, { firmware: 'resumed' }));
  expect(cut).toEqual([503, 5031, true]);
  await waitForChangesOfLiving();
  expect(await devices().countDocuments({ type: 'pump', firmware: 'resumed' })).toBe(count);
});

it('queues a command once for each device, also after it was given up', async () => {
  await addPumps(fleet_size - (await listPumps()).length, groups[0]);
  const pumpIds = await listPumps();
  const [full = ''] = pumpIds;
  const path = `/devices/commands/?type=pump&confirm=${pumpIds.length}`;
  const cut = await cutOnceConfirmed(() => apis[0].post(path, { name: 'restart', data: { delay: 5 } }));
  expect(cut).toEqual([503, 5031, true]);
  await waitForChangesOfLiving();
  const commands = () => service().db.collection('commands');
  const stored = await commands().find({}).toArray();
  expect(stored.map(({ device }) => device).sort()).toEqual([...pumpIds].sort());
  expect(new Set(stored.map(({ name, status, owner }) => `${name} ${status} ${owner}`))).toEqual(
    new Set(['restart queued alice']),
  );
  for (let n = 0; n < 99; n++) await apis[0].post(pathOf('devices', full, 'commands'), { name: 'fill' });
  const refused = await apis[0].post(path, { name: 'restart' });
  expect([refused.body.code, refused.body.details]).toEqual([
    4003,
    { name: 'exceeds the 100 open commands of a device' },
  ]);
  expect(await commands().countDocuments()).toBe(pumpIds.length + 99);
});

/** Lets the database fail from the moment at which a change is confirmed until its request ends. */
async function cutOnceConfirmed(send: () => Promise<Reply>) {
  const { db } = service();
  const { collection } = db;
  let isConfirmed = false;
  db.collection = (plural) => {
    if (plural !== 'bulkchanges') return collection(plural);
    if (isConfirmed) throw new mongoose.mongo.MongoNetworkError('cut');
    const journal = collection(plural);
    const updateOne: typeof journal.updateOne = (filter, update, options) => {
      isConfirmed ||= '$set' in update && update.$set?.isConfirmed === true;
      return journal.updateOne(filter, update, options);
    };
    return Object.assign(Object.create(journal), { updateOne });
  };
  const reply = await send().finally(() => {
    db.collection = collection;
  });
  return [reply.status, reply.body.code, isConfirmed];
}

/** Waits for changes that show signs of life, as if another instance carried them out. */
async function waitForChangesOfLiving(): Promise<void> {
  const beats = setInterval(
    () =>
      void service()
        .db.collection('bulkchanges')
        .updateMany({ isConfirmed: true }, [{ $set: { beat_at: '$$NOW' } }]),
    100,
  );
  try {
    await waitForChanges();
  } finally {
    clearInterval(beats);
  }
}
