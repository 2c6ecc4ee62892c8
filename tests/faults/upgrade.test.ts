import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import mongoose, { type mongo } from 'mongoose';
import { openSandbox, type RunningService, type Sandbox } from '../support/process.js';

interface Recording {
  /** A key of scope `admin`. */
  key: string;
  /** Answers of that version, by path. */
  answers: Record<string, { total_documents: number; result: Record<string, unknown>[] }>;
  collections: Record<string, mongo.BSON.Document[]>;
}

/** A database and its answers as version 0.1.0 (commit 181ce5a) left them after batched updates. */
const recording = mongoose.mongo.BSON.EJSON.parse(readFileSync('tests/faults/fixtures/version-0.1.0.json', 'utf8'), {
  relaxed: true,
}) as unknown as Recording;

let sandbox: Sandbox;
let service: RunningService;
let db: mongo.Db;
const uri = new URL(process.env.TEST_MONGODB_URI ?? '');

beforeAll(async () => {
  uri.pathname = `/test-upgrade-${process.pid}-${Date.now()}`;
  sandbox = await openSandbox();
  db = sandbox.database(uri.href);
  for (const [name, documents] of Object.entries(recording.collections))
    await db.collection(name).insertMany(documents);
  expect(await db.collection('devices').countDocuments({ marks: { $exists: true } })).toBe(6);
  await db.collection('events').createIndex({ account: 1, resource: 1, _id: 1 });
  await start();
});
afterAll(async () => {
  await db.dropDatabase();
  await sandbox.close();
});

async function start(): Promise<void> {
  const secret = 'only for this test, secret';
  service = await sandbox.service({ MONGODB_URI: uri.href, SECRET_KEY: secret, BOOTSTRAP_API_KEY: recording.key });
}

/** An object without its status, which depends on the time of the request. */
const timeless = ({ status: _, ...fields }: Record<string, unknown>) => fields;

/** Identifiers of streams, which version 0.1.0 did not have. */
const streamIds = [
  '01a201cfd9867473a093eb7ad2839387fe5dfe3026798b8c5f6c14852d7c6c78@demo',
  '01a201cfd9867501af6776bd6a77d9f4fe5dfe3026798afe509889429588260b@demo',
];
const streamsPath = '/devices/meter%40demo/streams/';

it.each(Object.keys(recording.answers))('answers GET %s as version 0.1.0 did', async (path) => {
  const { body } = await service.send('GET', path);
  const recorded = recording.answers[path];
  expect(body.total_documents).toBe(recorded?.total_documents);
  const added = (index: number) => (path === streamsPath ? { id_developer: streamIds[index] } : {});
  expect(body.result.map(timeless)).toEqual(
    recorded?.result.map((object, index) => ({ ...timeless(object), ...added(index) })),
  );
});

it('shows each stream of version 0.1.0 by its identifier', async () => {
  const { result } = (await service.send('GET', streamsPath)).body;
  for (const [index, id] of streamIds.entries())
    expect((await service.send('GET', `/streams/${id}/`)).body).toEqual(result[index]);
});

it('removes the tokens of batched updates, once', async () => {
  for (const name of Object.keys(recording.collections))
    expect(await db.collection(name).countDocuments({ marks: { $exists: true } })).toBe(0);
  const ids = (await db.collection('migrations').find().toArray()).map(({ _id }) => String(_id));
  expect(ids.toSorted()).toEqual([
    'ancestors',
    'bulk-pieces',
    'deadline-bounds',
    'event-resource',
    'last-request-id',
    'mqtt-state',
    'reported-state',
    'search-text',
    'tombstones',
    'topic-slots',
  ]);
});

it('finds objects of version 0.1.0 by a part of their name', async () => {
  const found = async (q: string) => (await service.send('GET', `/devices/?q=${q}`)).body.total_documents;
  expect([await found('MET'), await found('meter-2@'), await found('upgraded')]).toEqual([6, 1, 0]);
  for (const plural of ['projects', 'services', 'groups', 'assets', 'models', 'devices'])
    expect(await db.collection(plural).countDocuments({ search_text: { $exists: false } })).toBe(0);
});

it('updates an object of version 0.1.0 and numbers the next device of its name', async () => {
  const path = '/devices/meter%40demo/';
  const { version } = (await service.send('GET', path)).body;
  const changed = await service.send('PUT', path, { version, description: 'upgraded' });
  expect(changed.body.details).toMatchObject({ version: version + 1, description: 'upgraded', properties: { own: 0 } });
  const stored = await db.collection('devices').findOne({ id_developer: 'meter@demo' });
  expect(stored?.last_request_id).toBe(changed.headers['x-request-id']);
  const created = await service.send('POST', '/devices/', { name: 'meter', type: 'sensor', id_group: 'hall@demo' });
  expect(created.headers.location).toBe('/devices/meter-7%40demo/');
});

it('starts again on the upgraded data', async () => {
  service.kill('SIGTERM');
  await service.ended;
  await start();
  expect((await service.send('GET', '/devices/')).body.total_documents).toBe(7);
});

it('drops the index of events by resource', async () => {
  const keys = (await db.collection('events').indexes()).map(({ key }) => Object.keys(key).join());
  expect(keys).toContain('account,type,_id');
  expect(keys).not.toContain('account,resource,_id');
});
