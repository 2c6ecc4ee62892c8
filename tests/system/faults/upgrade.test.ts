import { readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { types } from 'node:util';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import mongoose, { type mongo } from 'mongoose';
import { connectAsync } from 'mqtt';
import { type Clients, createClients } from '../../support/mqtt.js';
import { findFreePort, openSandbox, type RunningService, type Sandbox, waitUntil } from '../../support/process.js';
import { runTool } from '../../support/tools.js';

interface Recording {
  /** A key of scope `admin`. */
  key: string;
  secret_key: string;
  /** Answers of that version, by path. */
  answers: Record<string, { total_documents: number; result: Record<string, unknown>[] }>;
  collections: Record<string, mongo.BSON.Document[]>;
  indexes: Record<string, (mongo.IndexDescription & { v: number })[]>;
}

/** A database of version 0.2.0 (commit 9bcbca2) after a SIGKILL, with its answers: scripts/checks/record-version.js. */
const recording = mongoose.mongo.BSON.EJSON.parse(
  readFileSync('tests/system/faults/fixtures/version-0.2.0.ejson', 'utf8'),
  { relaxed: true },
) as unknown as Recording;
const stream_count = 100_000;

let sandbox: Sandbox;
let service: RunningService;
let clients: Clients;
let db: mongo.Db;
const uri = new URL(process.env.TEST_MONGODB_URI ?? '');

beforeAll(async () => {
  uri.pathname = `/test-upgrade-${process.pid}-${Date.now()}`;
  sandbox = await openSandbox();
  db = sandbox.database(uri.href);
  for (const [name, documents] of Object.entries(recording.collections)) {
    const collection = await db.createCollection(name);
    // sessions and queues are deleted some time after their date
    if (name.startsWith('mqtt_'))
      for (const document of documents)
        for (const [field, value] of Object.entries(document)) if (types.isDate(value)) document[field] = new Date();
    if (documents.length > 0) await collection.insertMany(documents);
    const indexes = (recording.indexes[name] ?? []).map(({ v: _, ...index }) => index);
    if (indexes.length > 0) await collection.createIndexes(indexes);
  }
  await addFleet();
  // as that version imported it
  await db.collection('groups').updateOne({ id_developer: 'hall@demo' }, { $unset: { search_text: 1 } });
  await interruptUpgrade();
  // two instances at once
  const [other] = await Promise.all([sandbox.service({ ...databaseOptions(), MQTT_PORT: 'off' }), start()]);
  other.kill('SIGTERM');
  await other.ended;
});
afterAll(async () => {
  clients.close();
  await db.dropDatabase();
  await sandbox.close();
});

/** Gives a copy of the first device many streams, in another account. */
async function addFleet(): Promise<void> {
  const { UUID } = mongoose.mongo;
  const [device] = await db.collection('devices').find({ id_developer: 'meter@demo' }).toArray();
  const [stream] = await db.collection('streams').find({ parent: device?._id }).toArray();
  const parent = new UUID() as never;
  await db.collection('devices').insertOne({ ...device, _id: parent, account: 'fleet' });
  for (let from = 0; from < stream_count; from += 10_000) {
    const streams = Array.from({ length: 10_000 }, (_, n) => ({
      ...{ ...stream, _id: new UUID() as never, parent },
      ...{ account: 'fleet', at: 1_700_000_000 + from + n },
    }));
    await db.collection('streams').insertMany(streams, { ordered: false });
  }
}

function databaseOptions() {
  const { key, secret_key } = recording;
  return { MONGODB_URI: uri.href, SECRET_KEY: secret_key, BOOTSTRAP_API_KEY: key };
}

/** Log lines and answers of an upgrade that is killed in the middle. */
const interrupted: { log: string; copied: number; answers: unknown[] } = { log: '', copied: 0, answers: [] };

async function interruptUpgrade(): Promise<void> {
  const port = await findFreePort();
  const upgrading = await sandbox.service({ ...databaseOptions(), MQTT_PORT: String(port) }, { ready: false });
  const readOutput = () => upgrading.out() + upgrading.err();
  await waitUntil(() => readOutput().includes('streams are being upgraded'));
  const login = connectAsync(`mqtt://127.0.0.1:${port}`, {
    username: 'meter@demo',
    password: 'any',
    reconnectPeriod: 0,
  });
  const refusal = login.catch(({ code }) => code);
  const stream = { data: { n: 1 } };
  const bodies = (
    [
      ['GET', '/projects/'],
      ['POST', '/devices/meter%40demo/streams/', stream],
      ['GET', '/unknown/'],
    ] as const
  ).map(async ([method, path, body]) => (await upgrading.send(method, path, body)).body);
  const statuses = ['/healthz', '/readyz', '/metrics', '/openapi.json', '/docs/', '/console/'].map(
    async (path) => (await upgrading.send('GET', path)).status,
  );
  // at the same time, before everything is copied
  interrupted.answers.push(...(await Promise.all([...bodies, ...statuses, refusal])));
  upgrading.kill('SIGKILL');
  await upgrading.ended;
  interrupted.log = readOutput();
  const position = await db.collection('maintenance').findOne({ copied: { $gt: 0 } });
  interrupted.copied = position?.copied;
}

async function start(): Promise<void> {
  const env = databaseOptions();
  const port = await findFreePort();
  service = await sandbox.service({ ...env, MQTT_PORT: String(port), FILESTORE_LOCAL_ROOT: sandbox.folder });
  clients = createClients(`mqtt://127.0.0.1:${port}`);
}

const total = async (path: string) => (await service.send('GET', path)).body.total_documents;

/** An object without its status, which depends on the time of the request. */
const timeless = ({ status: _, ...fields }: Record<string, unknown>) => fields;
/** A stream without its identifier, which changes with the upgrade. */
const nameless = ({ id_developer: _, ...fields }: Record<string, unknown>) => fields;

it.each(Object.keys(recording.answers))('answers GET %s as version 0.2.0 did', async (path) => {
  const { body } = await service.send('GET', path);
  const recorded = recording.answers[path];
  // devices that are late since have more events
  const isLog = path.startsWith('/events/');
  if (!isLog) expect(body.total_documents).toBe(recorded?.total_documents);
  const shown = isLog ? body.result.slice(0, recorded?.total_documents) : body.result;
  const essence = path.includes('/streams/') ? nameless : timeless;
  // fields with a default that came later
  const later = path === '/webhooks/' ? { format: 'standard', digest_s: 0 } : {};
  expect(shown.map(essence)).toEqual(recorded?.result.map((answered) => ({ ...essence(answered), ...later })));
});

it('continues the MQTT sessions: the queue of one, and one whose connection was open', async () => {
  const open = (clientId: string) => clients.connect('meter@demo', { clientId, clean: false });
  const resting = await open('resting');
  expect(await resting.received(1)).toMatchObject([{ topic: 'site/two/alarm', text: 'while resting' }]);
  const running = await open('running');
  await resting.publish('site/one/state', 'after the upgrade', { qos: 1 });
  expect(await running.received(1)).toMatchObject([{ topic: 'site/one/state', text: 'after the upgrade' }]);
  await resting.subscribe('site/two/state', 1);
  expect((await resting.received(2)).at(-1)).toMatchObject({ text: 'retained', retain: true });
});

it('keeps links to storage', async () => {
  await mkdir(join(sandbox.folder, 'demo'));
  await writeFile(join(sandbox.folder, 'demo', 'kept.txt'), '');
  const { result } = (await service.send('GET', '/external/local/user/alice/?op=all')).body;
  expect(result).toMatchObject([{ path: 'kept.txt' }]);
});

it('updates an object of version 0.2.0 and numbers the next device of its name', async () => {
  const path = '/devices/meter%40demo/';
  const { version } = (await service.send('GET', path)).body;
  const changed = await service.send('PUT', path, { version, description: 'upgraded' });
  expect(changed.body.details).toMatchObject({ version: version + 1, description: 'upgraded', properties: { own: 0 } });
  const stored = await db.collection('devices').findOne({ id_developer: 'meter@demo' });
  expect(stored?.last_request_id).toBe(changed.headers['x-request-id']);
  const created = await service.send('POST', '/devices/', { name: 'meter', type: 'sensor', id_group: 'hall@demo' });
  expect(created.headers.location).toBe('/devices/meter-4%40demo/');
  const found = async (q: string) => total(`/devices/?q=${q}`);
  expect([await found('MET'), await found('meter-2@'), await found('upgraded')]).toEqual([4, 1, 1]);
  expect(await total('/groups/?q=HALL')).toBe(1);
  expect([await total('/devices/?id_project=north@demo'), await total('/assets/?id_project=north@demo')]).toEqual([
    4, 1,
  ]);
});

it('is not ready while it copies the streams, says how far it is, and goes on after kill -9', async () => {
  expect(interrupted.log).not.toContain('database ready');
  const line = interrupted.log.split('\n').find((text) => text.includes('streams are being upgraded')) ?? '{}';
  const total_documents = stream_count + (recording.collections.streams?.length ?? 0);
  expect(JSON.parse(line)).toMatchObject({
    total: total_documents,
    percent: expect.any(Number),
    remaining_s: expect.any(Number),
  });
  expect(interrupted.copied).toBeGreaterThan(0);
  expect(interrupted.copied).toBeLessThan(total_documents);
  expect((await db.listCollections({ name: /^streams/ }).toArray()).map(({ name }) => name)).toEqual(['streams']);
  const times = await db.collection('streams').distinct('_id.at', { '_id.account': 'fleet' });
  expect(times.length).toBe(stream_count);
});

it('serves health, metrics and documents alone while it copies them', () => {
  const refused = { code: 5031, message: 'BD error', details: { upgrade: expect.stringMatching(/^streams: \d+ %$/) } };
  expect(interrupted.answers).toEqual([refused, refused, refused, 200, 503, 200, 200, 200, 200, 3]);
});

it('leaves views in place of what earlier versions need, which tell why they fail', async () => {
  const moved = ['apikeys', 'instances', 'leases', 'mqttcredentials', 'removals'];
  const views = await db.listCollections({ type: 'view' }).toArray();
  expect(views.map(({ name }) => name).sort()).toEqual(moved);
  for (const name of moved) {
    await expect(db.collection(name).findOne({ digest: '' })).rejects.toThrow('version 0.3.0 or later');
    await expect(db.collection(name).updateOne({}, { $set: { holder: '' } }, { upsert: true })).rejects.toThrow('view');
  }
});

it('upgrades 100,000 streams of a device', async () => {
  const args = ['create', '--account', 'fleet', '--user', 'carol', '--scope', 'write', '--hex'];
  const { out } = await runTool('keys', args, { MONGODB_URI: uri.href });
  expect(out).toMatch(/^[0-9a-f]{64}\n$/);
  const headers = { 'service.apikey': out.trim() };
  const path = '/devices/meter%40demo/streams/';
  const { total_documents, result } = (await service.send('GET', `${path}?max=2`, undefined, headers)).body;
  expect([total_documents, result.length]).toEqual([stream_count, 2]);
  // it may outlast its request
  const { code } = (await service.send('DELETE', '/devices/meter%40demo/', undefined, headers)).body;
  expect([2004, 5031]).toContain(code);
  await waitUntil(async () => (await db.collection('streams').countDocuments({ '_id.account': 'fleet' })) === 0);
  expect(await db.collection('streams').countDocuments()).toBe(recording.collections.streams?.length);
});

it('starts again on the upgraded data', async () => {
  clients.close();
  service.kill('SIGTERM');
  await service.ended;
  await start();
  expect(await total('/devices/')).toBe(4);
});
