import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import type { StoredDocument } from '../../src/db/database.js';
import type { StoredEvent } from '../../src/resources/event.js';
import { findOrphans } from '../support/orphans.js';
import {
  type Api,
  createFixtures,
  pathOf,
  type Reply,
  startTestService,
  type TestService,
} from '../support/service.js';

/**
 * Changes of more objects than one transaction takes, concurrent with requests for single ones on two instances, against a
 * model: at one position of the event log, the objects that match are exactly those that the change has changed
 * (reference/bulk.md#concurrency).
 */
const fleet_size = 2000;
/** Attempts that may go unanswered on a slow machine; in the last of them nothing else changes. */
const max_attempts = 5;
const uri = new URL(process.env.TEST_MONGODB_URI ?? '');
uri.pathname = `/test-${randomUUID()}`;

const instances: TestService[] = [];
let apis: [Api, Api];
let fixtures: ReturnType<typeof createFixtures>;
let groups: [string, string];
let pattern: StoredDocument;

beforeAll(async () => {
  const log = { info() {}, warn() {}, error() {} };
  instances.push(await startTestService({ uri: uri.href, eventLog: true, log }));
  while (!(await service().db.isReady())) await sleep(20);
  instances.push(await startTestService({ uri: uri.href, log }));
  while (!(await instances[1]?.db.isReady())) await sleep(20);
  apis = (await Promise.all(instances.map((instance) => instance.client()))) as [Api, Api];
  fixtures = createFixtures(apis[0]);
  groups = [await fixtures.group(), await fixtures.group()];
  const id = await fixtures.device({ id_group: groups[0], type: 'pattern' });
  pattern = (await devices().findOne({ id_developer: id })) as StoredDocument;
});
afterAll(async () => {
  for (const instance of instances.toReversed()) await instance.stop();
});

const outcomes: string[] = [];
const service = () => instances[0] as TestService;
const devices = () => service().db.collection('devices');
const pumps = '/devices/?type=pump';

/** Inserts devices of type pump. @returns their identifiers */
async function addPumps(count: number, id_group: string): Promise<string[]> {
  const group = await service().db.collection('groups').findOne({ id_developer: id_group });
  const added = Array.from({ length: count }, () => ({
    ...pattern,
    ...{ _id: service().db.newId(), id_developer: `${randomUUID()}@acme`, type: 'pump', id_group },
    parent: group?._id,
  }));
  await devices().insertMany(added as StoredDocument[]);
  return added.map((device) => device.id_developer);
}

interface Bulk {
  request_id: string;
  /** The number of objects that was confirmed. */
  confirmed: number;
  /** Undefined: 5031, the change may take place later. */
  isDone: boolean | undefined;
}

/** Waits until every change that was begun is done or withdrawn. */
async function waitForChanges(): Promise<void> {
  const { db } = service();
  while ((await db.collection('bulkchanges').countDocuments()) > 0) await sleep(50);
  while ((await db.collection('removals').countDocuments({ done: false })) > 0) await sleep(50);
}

/** Repeats a change with the number of matches until it is not refused. Checks each answer. */
async function changeAll(send: (path: string) => Promise<Reply>): Promise<Bulk[]> {
  const changes: Bulk[] = [];
  for (;;) {
    const { matched: confirmed } = (await send(pumps)).body.details;
    const { status, headers, body } = await send(`${pumps}&confirm=${confirmed}`);
    const isDone = status === 503 ? undefined : status === 200;
    changes.push({ request_id: headers['x-request-id'] ?? '', confirmed, isDone });
    if (isDone === undefined) await waitForChanges();
    if (isDone) expect(body.details).toEqual({ matched: confirmed, changed: confirmed });
    if (isDone || (isDone === undefined && changes.length >= max_attempts)) return changes;
  }
}

/** A request for a single object, and what it does to the objects that match. */
type Single = { reply: Reply; effect: 'enters' | 'leaves' | 'leaves with others' | 'stays' };

/** Waits until everything that was begun is done, and in the log. @returns the events of devices in order */
async function readLog(): Promise<StoredEvent[]> {
  await waitForChanges();
  const last = await fixtures.project();
  const events = service().db.collection('events');
  while ((await events.countDocuments({ type: 'project.created', id_developer: last })) === 0) await sleep(50);
  const found = await events.find({ resource: 'device' }, { sort: { _id: 1 } }).toArray();
  return found as unknown as StoredEvent[];
}

/** Finds a position of the log at which exactly the objects of `changed` match. */
function findMoment(
  log: readonly StoredEvent[],
  before: readonly string[],
  changed: ReadonlySet<string>,
  singles: readonly Single[],
) {
  const effects = new Map(singles.map(({ reply, effect }) => [reply.headers['x-request-id'], effect]));
  const matching = new Set(before);
  let differing =
    [...matching].filter((id) => !changed.has(id)).length + [...changed].filter((id) => !matching.has(id)).length;
  if (differing === 0) return true;
  for (const { request_id, id_developer, type } of log) {
    const effect = effects.get(request_id ?? '');
    if (effect === undefined || effect === 'stays') continue;
    const matches = effect === 'enters' && type !== 'device.deleted';
    if (matching.has(id_developer) === matches) continue;
    if (matches) matching.add(id_developer);
    else matching.delete(id_developer);
    differing += changed.has(id_developer) === matches ? -1 : 1;
    if (differing === 0) return true;
  }
  return false;
}

const listPumps = async () =>
  (
    await devices()
      .find({ type: 'pump' }, { projection: { id_developer: 1 } })
      .toArray()
  ).map((device) => String(device.id_developer));

/** Sends requests for single objects at random moments. */
async function sendSingles(
  requests: readonly { effect: Single['effect']; send(api: Api): Promise<Reply> }[],
  span_ms: number,
) {
  return Promise.all(
    requests.map(async ({ effect, send }, index): Promise<Single> => {
      await sleep(Math.random() * span_ms);
      return { reply: await send(apis[index % 2] as Api), effect };
    }),
  );
}

it.each(['patch', 'delete', 'patch', 'delete'] as const)(
  'changes exactly those that match at one moment, while others are created, moved, updated and deleted: %s',
  async (method) => {
    const [first, second] = groups;
    const doomed = await fixtures.group();
    await addPumps(Math.max(fleet_size - (await listPumps()).length, 1), first);
    const ofDoomed = await addPumps(50, doomed);
    const before = await listPumps();
    const versions = new Map<string, number>();
    for (const { id_developer, version } of await devices().find({}).toArray())
      versions.set(String(id_developer), Number(version));
    const position = (await readLog()).length;
    const chosen = before.filter((id) => !ofDoomed.includes(id)).sort(() => Math.random() - 0.5);
    const some = (count: number) => chosen.splice(0, count);
    const requests = [
      ...some(8).map((id) => ({
        effect: 'leaves' as const,
        send: (api: Api) => api.put(pathOf('devices', id), { type: 'valve' }),
      })),
      ...some(4).map((id) => ({
        effect: 'leaves' as const,
        send: (api: Api) => api.put(pathOf('devices', id), { type: 'valve', id_group: second }),
      })),
      ...some(8).map((id) => ({ effect: 'leaves' as const, send: (api: Api) => api.delete(pathOf('devices', id)) })),
      ...some(40).map((id) => ({
        effect: 'stays' as const,
        send: (api: Api) => api.put(pathOf('devices', id), { sensor: 's' }),
      })),
      ...some(20).map((id) => ({
        effect: 'stays' as const,
        send: (api: Api) => api.put(pathOf('devices', id), { id_group: second }),
      })),
      ...Array.from({ length: 8 }, () => ({
        effect: 'enters' as const,
        send: (api: Api) => api.post('/devices/', { name: randomUUID(), type: 'pump', id_group: first }),
      })),
      { effect: 'leaves with others' as const, send: (api: Api) => api.delete(pathOf('groups', doomed)) },
    ];
    const changes = apis
      .slice(0, method === 'patch' ? 2 : 1)
      .map((api, index) =>
        changeAll((path) => (method === 'patch' ? api.patch(path, { firmware: `${index}` }) : api.delete(path))),
      );
    const [singles, ...bulks] = await Promise.all([sendSingles(requests, 3000), ...changes]);
    const log = (await readLog()).slice(position);
    const deleted = new Set<string>();
    const type = method === 'patch' ? 'device.updated' : 'device.deleted';
    for (const { request_id, confirmed, isDone } of bulks.flat()) {
      const own = log.filter((event) => event.request_id === request_id);
      const changed = new Set(own.map(({ id_developer }) => id_developer));
      if (isDone === false || (isDone === undefined && own.length === 0)) {
        expect(own).toEqual([]);
        continue;
      }
      outcomes.push(method);
      // one event for each object
      expect([own.length, changed.size]).toEqual([confirmed, confirmed]);
      expect(own.filter((event) => event.type !== type)).toEqual([]);
      const present = (id: string) => !deleted.has(id);
      const moment = findMoment(
        log.filter(({ id_developer }) => present(id_developer)),
        before.filter(present),
        changed,
        singles,
      );
      expect(moment).toBe(true);
      if (method === 'delete') for (const id of changed) deleted.add(id);
    }
    // what was acknowledged has happened, once
    for (const { reply, effect } of singles) {
      const own = log.filter((event) => event.request_id === reply.headers['x-request-id']);
      if (effect === 'leaves with others') continue;
      if (reply.status === 200) expect(own.length).toBe(1);
      else if (reply.status !== 503) expect(own).toEqual([]);
    }
    const left = await devices().find({}).toArray();
    for (const { type, id_developer } of log) {
      const id = String(id_developer);
      if (type === 'device.updated') versions.set(id, (versions.get(id) ?? 0) + 1);
    }
    const wrong = left.filter(({ id_developer, version }) => version !== (versions.get(String(id_developer)) ?? 0));
    expect(wrong).toEqual([]);
    expect(left.filter(({ claim }) => claim !== undefined)).toEqual([]);
    expect(await service().db.collection('bulkchanges').countDocuments()).toBe(0);
    expect(await findOrphans((plural) => service().db.collection(plural))).toEqual([]);
  },
);

it('takes up at once what it has given up itself, although others see signs of life', async () => {
  const { db } = service();
  const { collection } = db;
  await addPumps(fleet_size, groups[0]);
  const count = (await listPumps()).length;
  // the database fails from the moment at which the change is confirmed until the request ends
  let isConfirmed = false;
  db.collection = (plural) => {
    if (plural !== 'bulkchanges') return collection(plural);
    if (isConfirmed) throw new mongoose.mongo.MongoNetworkError('cut');
    const journal = collection(plural);
    const updateOne: typeof journal.updateOne = (filter, update, options) => {
      isConfirmed ||= '$set' in update && update.$set?.state === 'confirmed';
      return journal.updateOne(filter, update, options);
    };
    return Object.assign(Object.create(journal), { updateOne });
  };
  const reply = await apis[0].patch(`${pumps}&confirm=${count}`, { firmware: 'resumed' }).finally(() => {
    db.collection = collection;
  });
  expect([reply.status, reply.body.code, isConfirmed]).toEqual([503, 5031, true]);
  const beats = setInterval(
    () => void db.collection('bulkchanges').updateMany({ state: 'confirmed' }, [{ $set: { beat_at: '$$NOW' } }]),
    100,
  );
  try {
    await waitForChanges();
  } finally {
    clearInterval(beats);
  }
  expect(await devices().countDocuments({ type: 'pump', firmware: 'resumed' })).toBe(count);
});

it('has tried changes that were carried out', () => {
  expect(outcomes).toEqual(expect.arrayContaining(['patch', 'delete']));
});
