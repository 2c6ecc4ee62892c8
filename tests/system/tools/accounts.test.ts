import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import mongoose, { type mongo } from 'mongoose';
import { password } from '../../support/mqtt.js';
import { createMqttProcesses, type MqttProcess, type MqttProcesses } from '../../support/mqtt-process.js';
import { openSandbox, type Sandbox, sendRequest, waitUntil } from '../../support/process.js';
import { pathOf } from '../../support/service.js';
import { runTool, startTool } from '../../support/tools.js';

/** Removing an account (docs/operations.md#removing-an-account), beside a running service. */
let sandbox: Sandbox;
let processes: MqttProcesses;
let service: MqttProcess;
let db: mongo.Db;
let env: NodeJS.ProcessEnv;

const { Binary, BSON } = mongoose.mongo;

beforeAll(async () => {
  sandbox = await openSandbox();
  processes = createMqttProcesses(sandbox);
  for (const account of ['acme', 'globex']) await mkdir(join(sandbox.folder, 'files', account), { recursive: true });
  const allowed = { WEBHOOK_ALLOW_NETS: '127.0.0.0/8', FILESTORE_LOCAL_ROOT: join(sandbox.folder, 'files') };
  service = await processes.start(allowed);
  db = sandbox.database(processes.uri);
  env = { MONGODB_URI: processes.uri, SECRET_KEY: service.key };
});
afterAll(async () => {
  processes?.close();
  await sandbox?.close();
});

const keyOf = async (account: string) =>
  (await runTool('keys', ['create', '--account', account, '--user', 'alice', '--scope', 'admin'], env)).out.trim();

/** Gives an account something of everything. @returns its key and its device */
async function populate(account: string): Promise<{ key: string; device: string; id_group: string }> {
  const key = await keyOf(account);
  const send = async (method: string, path: string, body?: object) => {
    const reply = await sendRequest(method, service.url + path, body, { 'service.apikey': key });
    if (reply.status >= 300) throw new Error(`${path}: ${reply.text}`);
    return reply;
  };
  const create = async (plural: string, body: object) => {
    const { headers } = await send('POST', `/${plural}/`, body);
    return decodeURIComponent(headers.location?.split('/').at(-2) ?? '');
  };
  const id_project = await create('projects', { name: 'plant', id_customer: 'c' });
  const id_service = await create('services', { name: 'water', id_project });
  const id_group = await create('groups', { name: 'hall', id_service });
  const id_asset = await create('assets', { name: 'mast', id_group });
  const measures = [{ path: '/t', name: 'Temperature', type: 'number', filter: true }];
  const id_model = await create('models', { name: 'm', measures });
  const ids = [];
  for (let n = 0; n < 3; n++) ids.push(await create('devices', { name: 'pump', type: 'x', id_asset, id_model }));
  const [device = ''] = ids;
  const path = pathOf('devices', device);
  const conditions = [{ path: '/t', op: '>', value: 5 }];
  await create('alarmrules', { name: 'hot', id_project, severity: 'warning', conditions });
  await create('alarmrules', { name: 'hot for long', id_project, severity: 'warning', conditions, for: 3600 });
  await send('POST', `${path}streams/`, { data: { t: 9 } });
  await send('POST', `${path}deviceconfigs/`, { name: 'f', version: '1', file: 'YQ==' });
  await send('PATCH', `${path}state/`, { desired: { rate: 5 } });
  await send('POST', `${path}commands/`, { name: 'open' });
  await create('filters', { name: 'pumps', query: 'type=x' });
  await create('webhooks', { name: 'hook', url: 'http://127.0.0.1:1/', types: ['*'] });
  await send('PUT', '/external/local/user/alice/', { path: '.' });
  await send('POST', '/apikeys/', { username: 'bob', scope: 'device', id_device: device });
  await send('POST', `${pathOf('mqttdevices', device)}credentials/`, { username: `mqtt-${account}`, password });
  await send('POST', `${pathOf('mqttdevices', device)}topics/`, { name: 'valves/#' });
  await send('PATCH', '/devices/?type=x&confirm=3', { description: 'checked' });
  await send('DELETE', pathOf('devices', ids[2] ?? ''));
  const options = { clientId: `client-${account}`, clean: false };
  const absent = await service.connect(`mqtt-${account}`, options);
  await absent.subscribe('valves/#', 1);
  await absent.end();
  const sender = await service.connect(`mqtt-${account}`, { clientId: `sender-${account}` });
  await sender.publish('valves/1', 'open', { qos: 1, retain: true });
  await sender.end();
  // at an external broker
  await db
    .collection<{ _id: string }>('mqttclients')
    .insertOne({ _id: `rabbit-${account}`, owner: `device ${device}` } as never);
  return { key, device, id_group };
}

/** Texts and internal ids that a document holds. */
function textsOf(value: unknown): string[] {
  if (value instanceof Binary) return value.sub_type === 4 ? [String(value.toUUID())] : [];
  if (typeof value !== 'object' || value === null) return [String(value)];
  return Object.values(value).flatMap(textsOf);
}

/** All documents of all collections, by collection, without numbers of streams: they are written later, and expire. */
async function readAll(): Promise<Map<string, mongo.Document[]>> {
  const collections = await db.listCollections({ type: 'collection' }, { nameOnly: true }).toArray();
  const names = collections.map(({ name }) => name).filter((name) => !/^(system\.|stream_rates$)/.test(name));
  return new Map(
    await Promise.all(
      names.map(async (name) => [name, await db.collection(name).find({}, { promoteValues: true }).toArray()] as const),
    ),
  );
}

/** The documents of an account: those with its name in a text, or with an internal id of one of those. */
function selectOf(account: string, all: Map<string, mongo.Document[]>): Map<string, mongo.Document[]> {
  const named = new RegExp(`(^|[ @/-])${account}($|[ /])`);
  const isNamed = (document: mongo.Document) => textsOf(document).some((text) => named.test(text));
  const ids = new Set(
    [...all.values()]
      .flat()
      .filter(isNamed)
      .flatMap(({ _id }) => textsOf(_id)),
  );
  const sessions = (all.get('mqtt_sessions') ?? []).filter(isNamed).map(({ session }) => String(session));
  const isOf = (document: mongo.Document) =>
    isNamed(document) ||
    textsOf(document).some((text) => (text.length === 36 && ids.has(text)) || sessions.includes(text.slice(0, 36)));
  return new Map([...all].map(([name, documents]) => [name, documents.filter(isOf)]));
}

const countsOf = (all: Map<string, mongo.Document[]>) =>
  Object.fromEntries([...all].flatMap(([name, { length }]) => (length > 0 ? [[name, length]] : [])));

it('removes all that an account has while the service runs, also after a kill -9, and nothing of another', async () => {
  const [acme] = [await populate('acme'), await populate('globex')];
  await waitUntil(async () => (await db.collection('webhook_deliveries').countDocuments({ account: 'acme' })) > 0);
  await waitUntil(async () => (await db.collection('alarms').countDocuments()) >= 4);
  await waitUntil(async () => (await db.collection('alarm_scans').countDocuments()) === 0);
  await waitUntil(async () => (await db.collection('device_values').countDocuments({ value: 9 })) === 2);
  // enough to be killed in the middle
  const streams = Array.from({ length: 10_000 }, (_, n) => ({
    ...{ _id: { account: 'acme', device: acme.device, at: 1000 + n, n: 0 }, parent: acme.device, _t: 'str', data: {} },
  }));
  await db.collection('streams').insertMany(streams as never[]);
  // a change of more than 1,000 objects that was interrupted, and a counter of more than 64 names
  const [root, piece] = [new mongoose.mongo.UUID(), new mongoose.mongo.UUID()];
  const change = { _id: root, account: 'acme', plural: 'devices', isConfirmed: true, done: true, beat_at: new Date() };
  await db.collection('bulkchanges').insertMany([change, { _id: piece, root, ids: [] }] as never[]);
  const counters = ['acme', 'globex'].map((account) => ({ _id: `devices pump@${account}`, last: 65 }));
  await db.collection('identifier_counters').insertMany(counters as never[]);
  const held = Object.keys(countsOf(selectOf('acme', await readAll())));
  const places =
    'alarms bulkchanges commands device_states device_values deviceconfigs events filestores filters ' +
    'identifier_counters keys mqtt_credentials mqtt_queue mqtt_retained mqtt_sessions mqttclients mqtttopics removal_journal streams ' +
    'tombstones webhooks webhook_retries webhook_states';
  expect(places.split(' ').filter((place) => !held.includes(place))).toEqual([]);
  // deliveries are tried again, and records of deletions end by themselves
  const stable = (all: Map<string, mongo.Document[]>) =>
    [...selectOf('globex', all)]
      .filter(([name]) => !/^(?:webhook_.*|removal_journal|tombstones)$/.test(name))
      .flatMap(([name, documents]) => documents.map((document) => `${name} ${BSON.EJSON.stringify(document)}`))
      .sort();
  const globex = stable(await readAll());
  const live = await service.connect('mqtt-acme', { clientId: 'live' });
  const post = (path = pathOf('devices', acme.device)) =>
    sendRequest('POST', `${service.url}${path}streams/`, { data: { t: 1 } }, { 'service.apikey': acme.key });

  const unconfirmed = await runTool('accounts', ['remove', 'acme', '--confirm', '5'], env);
  const hint = 'accounts: acme has 2 devices; to remove it with everything it has: --confirm 2';
  expect([unconfirmed.code, unconfirmed.complaints]).toEqual([1, [hint]]);
  expect((await runTool('accounts', ['remove', 'acm'], env)).complaints).toEqual(['accounts: there is no account acm']);
  expect((await post()).body.code).toBe(2001);

  const killed = startTool('accounts', ['remove', 'acme', '--confirm', '2'], env);
  await waitUntil(async () => (await db.collection('keys').countDocuments({ account: 'acme' })) === 0);
  killed.kill('SIGKILL');
  await killed.ended;
  const listed = await runTool('accounts', ['list'], env);
  expect(listed.out).toMatch(
    /^acme\t\d devices\tremoval interrupted: repeat it\ndemo\t0 devices\nglobex\t2 devices\n$/,
  );

  // a client continues to send
  const completing = runTool('accounts', ['remove', 'acme'], env);
  await waitUntil(async () => (await post()).status === 401);
  expect((await completing).out).toMatch(/^removed acme: \d+ documents\n$/);
  await live.closed();
  expect(countsOf(selectOf('acme', await readAll()))).toEqual({});
  expect(stable(await readAll())).toEqual(globex);
  expect((await runTool('accounts', ['list'], env)).out).toBe('demo\t0 devices\nglobex\t2 devices\n');
  expect(service.err()).not.toContain('unforeseen');
});
