import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { MongoMemoryServer } from 'mongodb-memory-server';
import { type Follower, follow } from '../../../scripts/support/follow.js';
import { runInParallel } from '../../../src/lib/parallel.js';
import { findMongod } from '../../../src/mongod/binary.js';
import { type Clients, type Connected, createClients, password } from '../../support/mqtt.js';
import {
  findFreePort,
  openSandbox,
  type RunningService,
  type Sandbox,
  sendRequest,
  type TestMongod,
  waitFor,
  waitUntil,
} from '../../support/process.js';
import { type Receiver, startReceiver } from '../../support/receiver.js';
import { startTestService } from '../../support/service.js';

/** One service whose database is missing at first, and then hangs and crashes (reference/configuration.md#start). */
let sandbox: Sandbox;
let mongod: TestMongod;
let service: RunningService;
let receiver: Receiver;
let clients: Clients;
let lasting: Connected;
let publisher: Connected;
let feed: Follower;
/** Calls of all operations, and reads that pass every check. */
let allCalls: Call[];
let reads: Call[];
let mqtt_port: number;
let rounds = 0;

/** 5 s, and what a hundred requests at once take on a busy machine; the driver alone would wait for 30 s. */
const max_answer_ms = 20_000;
/** 10 s, and more for a busy machine. */
const max_recovery_ms = 60_000;
/** Requests that a busy machine answers in time together. */
const max_at_once = 8;
const device = 'pump@demo';
/** Parameters of paths. What is not here names nothing, which the database has to find out. */
const objects: Record<string, string> = {
  device_id_developer: device,
  file_name: 'boot.cfg',
  provider: 'local',
  stream_id_developer: `${'01'.repeat(32)}@demo`,
  command: '00000000-0000-7000-8000-000000000000',
  event: '000000000000000000',
};
for (const name of ['project', 'service', 'group', 'asset', 'model', 'filter', 'webhook', 'alarmrule'])
  objects[`${name}_id_developer`] = `${name}@demo`;

type Call = [method: string, path: string, body?: unknown];

const createObjects = (): readonly Call[] => [
  ['POST', '/projects/', { name: 'project', id_customer: 'c' }],
  ['POST', '/services/', { name: 'service', id_project: 'project@demo' }],
  ['POST', '/groups/', { name: 'group', id_service: 'service@demo' }],
  ['POST', '/assets/', { name: 'asset', id_group: 'group@demo' }],
  ['POST', '/models/', { name: 'model', measures: [{ path: 'n', filter: true }] }],
  ['POST', '/devices/', { name: 'pump', type: 'pump', id_group: 'group@demo', id_model: 'model@demo' }],
  ['POST', '/devices/', { name: 'moving', type: 'crane', id_group: 'group@demo' }],
  ['POST', '/filters/', { name: 'filter', query: 'type=pump' }],
  ['POST', `/devices/${device}/deviceconfigs/`, { name: 'boot.cfg', version: '0', file: 'eA==' }],
  ['POST', `/mqttdevices/${device}/credentials/`, { username: device, password }],
  ['POST', `/mqttdevices/${device}/topics/`, { name: 'seen/#' }],
  ['POST', '/alarmrules/', { name: 'alarmrule', severity: 'info', conditions: [{ path: 'n', op: '>', value: 0 }] }],
  ['POST', '/webhooks/', { name: 'webhook', url: receiver.url, types: ['*'] }],
  ['PUT', '/external/local/user/x/', { path: '.' }],
];

/** Changes of every kind. @param n makes their names unique */
const createWrites = (n: number): readonly Call[] => [
  ['POST', '/projects/', { name: `new ${n}`, id_customer: 'c' }],
  ['PUT', '/groups/group@demo/', { description: `${n}` }],
  ['PUT', '/devices/moving@demo/', n % 2 === 0 ? { id_group: 'group@demo' } : { id_asset: 'asset@demo' }],
  ['POST', '/devices/', { name: `spare ${n}`, type: 'spare', id_group: 'group@demo' }],
  ['DELETE', `/devices/spare ${n - 1}@demo/`],
  ['PATCH', '/devices/?type=crane&confirm=1', { description: `${n}` }],
  ['DELETE', '/devices/?type=none&confirm=0'],
  ['POST', '/import/', `{"resource":"project","name":"imported ${n}","id_customer":"c"}\n`],
  ['POST', `/devices/${device}/streams/`, [{ data: { n } }, { data: {}, _t: 'sta' }]],
  ['POST', '/streams/', { device, data: { n: -n } }],
  ['DELETE', `/devices/${device}/streams/`, { at_to: 1 }],
  ['PUT', '/alarmrules/alarmrule@demo/', { conditions: [{ path: 'n', op: '>', value: n % 2 }] }],
  ['PATCH', '/alarms/?rule=alarmrule@demo&confirm=0', { note: 'x' }],
  ['PATCH', `/devices/${device}/state/`, { interval: n }],
  ['PATCH', `/devices/${device}/state/reported/`, { interval: n }],
  ['POST', `/devices/${device}/commands/`, { name: 'restart', expires_in: 1 }],
  ['POST', '/devices/commands/?type=crane&confirm=1', { name: 'restart', expires_in: 1 }],
  ['POST', `/devices/${device}/deviceconfigs/`, { name: 'boot.cfg', version: `${n}`, file: 'eA==' }],
  ['PUT', `/devices/${device}/deviceconfigs/boot.cfg/desired/`, { version: '0' }],
  ['POST', '/apikeys/', { username: `user-${n}`, scope: 'read' }],
  ['PUT', '/filters/filter@demo/', { description: `${n}` }],
  ['PUT', '/webhooks/webhook@demo/', { description: `${n}` }],
  ['POST', '/webhooks/webhook@demo/test/'],
  ['POST', `/mqttdevices/${device}/topics/`, { name: `topic ${n}` }],
];

beforeAll(async () => {
  const { operations, stop } = await startTestService();
  await stop();
  allCalls = operations.map(({ method, path, body }) => [
    method.toUpperCase(),
    path.replaceAll(/\{\w*id_developer\}/g, 'gone@demo').replaceAll(/\{\w+\}/g, 'x'),
    body && {},
  ]);
  reads = operations
    .filter(({ method, path }) => method === 'get' && !/^\/(?:types|sensors|time_zones|locales)\//.test(path))
    .map(({ path }) => ['GET', path.replaceAll(/\{(\w+)\}/g, (_, name) => objects[name] ?? 'x') + queryOf(path)]);
  sandbox = await openSandbox();
  receiver = await startReceiver();
  mongod = await sandbox.mongod();
  mqtt_port = await findFreePort();
  const FILESTORE_LOCAL_ROOT = join(sandbox.folder, 'storage');
  await mkdir(join(FILESTORE_LOCAL_ROOT, 'demo'), { recursive: true });
  const settings = { SECRET_KEY: 'only for this test', WEBHOOK_ALLOW_NETS: '127.0.0.0/8', FILESTORE_LOCAL_ROOT };
  service = await sandbox.service(
    { ...settings, MONGODB_URI: mongod.uri, MQTT_PORT: `${mqtt_port}`, LOG_LEVEL: 'fatal' },
    { ready: false },
  );
});
afterAll(async () => {
  await feed?.close();
  clients?.close();
  await receiver?.close();
  await sandbox.close();
});

const unavailable = {
  'application/json': '{"code":5031,"message":"BD error","details":{}}',
  'application/xml':
    '<?xml version="1.0" encoding="UTF-8"?><response><code>5031</code><message>BD error</message><details/></response>',
};

/** Asserts that all calls with a key that is not cached, sent concurrently, are answered with 5031 in time. */
async function expectUnavailable(): Promise<void> {
  const formats = Object.entries(unavailable);
  const responses = allCalls.flatMap(([method, path, body]) =>
    formats.map(async ([Accept, text]) => {
      const reply = await service.send(method, path, body, { Accept, 'service.apikey': 'another' });
      const label = `${method} ${path} ${Accept}`;
      expect([label, reply.status, reply.text]).toEqual([label, 503, text]);
      expect([label, reply.took_ms < max_answer_ms]).toEqual([label, true]);
    }),
  );
  expect(responses.length).toBeGreaterThan(allCalls.length);
  await Promise.all(responses);
}

async function expectAlive(): Promise<void> {
  const [alive, ready] = await Promise.all([service.send('GET', '/healthz'), service.send('GET', '/readyz')]);
  expect([alive.status, alive.body, ready.status]).toEqual([200, { status: 'ok' }, 503]);
  expect(alive.took_ms).toBeLessThan(max_answer_ms);
  expect(ready.took_ms).toBeLessThan(max_answer_ms);
}

function queryOf(path: string): string {
  if (path === '/devices/series/') return '?fields=n&filter=filter@demo';
  if (path.endsWith('/series/')) return '?fields=n';
  if (path === '/devices/') return '?latest.n_from=-1000&status=ok&alarm=open&format=ndjson&fields=name,latest,alarms';
  if (path === '/devices/deviceconfigs/counts/') return '?name=boot.cfg';
  if (path.endsWith('/counts/'))
    return path === '/devices/counts/' ? '?by=status' : path === '/alarms/counts/' ? '?by=severity' : '?by=owner';
  if (path.startsWith('/external/')) return '?op=all';
  return '';
}

/** Outcome of each request, and the longest time that one took. */
interface Outcomes {
  byCall: Record<string, string>;
  took_ms: number;
}

/** Sends a request as a client does: again while the service is busy. @returns what came of it */
async function attempt([method, path, body]: Call, outcomes: Outcomes): Promise<string> {
  if (path.endsWith('/live/')) return openFeed(path);
  const send = () => service.send(method, encodeURI(path), body);
  const { status, text, took_ms } = await waitFor(send, (reply) => !reply.text.includes('"code":5033'));
  outcomes.took_ms = Math.max(outcomes.took_ms, took_ms);
  if (text.includes('"code":5031')) return 'unavailable';
  // other numbers of matches than confirmed, and a receiver that is as busy as this process, are answers too
  const isAnswer = /"code":4005|the receiver did not answer in time/.test(text);
  return [200, 201, 404].includes(status) || isAnswer ? 'done' : `${status} ${text}`;
}

/** Requests a feed until its first heartbeat: it would not end. */
async function openFeed(path: string): Promise<string> {
  const opened = await follow(service.url + path, { 'service.apikey': service.key });
  if (opened.status !== 200) await opened.ended;
  await opened.close();
  return opened.status === 200 ? 'done' : 'unavailable';
}

/** Does work of every kind once. @param at_once all at the same time by default */
async function work(at_once = 1000, outcomes: Outcomes = { byCall: {}, took_ms: 0 }): Promise<Outcomes> {
  const n = ++rounds;
  const login = clients.refusal(device, { clientId: `login ${n}` });
  await runInParallel([...reads, ...createWrites(n)], at_once, async (call) => {
    // what was being sent breaks off
    const outcome = await attempt(call, outcomes).catch((error: Error) => `broken off: ${error.message}`);
    outcomes.byCall[`${call[0]} ${call[1]}`] = outcome;
  });
  outcomes.byCall.CONNECT = (await login) === 0 ? 'done' : 'unavailable';
  return outcomes;
}

/** Asserts that what came of each request matches a pattern. */
function expectOutcomes({ byCall }: Outcomes, pattern: RegExp): void {
  const others = Object.entries(byCall).filter(([, outcome]) => !pattern.test(outcome));
  expect(others.map((other) => other.join(': ')).join('; ')).toBe('');
}

/** Waits until all works at once: a busy machine may not have answered one of so many requests in time. */
const expectWorking = () =>
  waitFor(
    () => work(max_at_once),
    ({ byCall }) => Object.values(byCall).every((outcome) => outcome === 'done'),
  );

/** Payloads that were acknowledged at QoS 1 or 2, and all that were published at QoS 2. */
const acknowledged: string[] = [];

/** Publishes at each QoS to every kind of topic. Resolves when all is acknowledged, be it after a reconnect. */
function publishAll(label: string): Promise<unknown> {
  return Promise.all(
    ([0, 1, 2] as const).map(async (qos) => {
      const tag = `${label} ${qos}`;
      await Promise.all([
        publisher.publish(`${device}/streams`, { data: { tag } }, { qos }),
        publisher.publish(`${device}/status`, { data: { tag } }, { qos, retain: true }),
        publisher.publish(`${device}/state/reported`, { interval: rounds }, { qos }),
        publisher.publish(`seen/${qos}`, tag, { qos, retain: true }),
      ]);
      if (qos > 0) acknowledged.push(tag);
    }),
  );
}

const shows = async (path: string, text: string) => (await service.send('GET', encodeURI(path))).text.includes(text);

/** Asserts that nothing acknowledged is lost, and that nothing at QoS 2 came twice. */
async function expectNothingLost(): Promise<void> {
  for (const _t of ['str', 'sta']) {
    const { body } = await service.send('GET', `/devices/${device}/streams/?_t=${_t}&max=1000`);
    const stored: string[] = body.result.flatMap(({ data: { tag } }: { data: { tag?: string } }) => tag ?? []);
    expect(stored).toEqual(expect.arrayContaining(acknowledged));
    const twice = stored.filter((tag, index) => tag.endsWith('2') && stored.indexOf(tag) !== index);
    expect([_t, twice]).toEqual([_t, []]);
  }
  const texts = () => lasting.messages.map(({ text }) => text);
  const findMissing = () => acknowledged.filter((tag) => !texts().includes(tag));
  await waitFor(findMissing, (missing) => missing.length === 0);
  expect(texts().filter((tag) => tag.endsWith('2') && texts().indexOf(tag) !== texts().lastIndexOf(tag))).toEqual([]);
}

/** Waits until the work in the background has caught up with what was acknowledged. @param n the last round of work */
async function expectCaughtUp(n: number): Promise<void> {
  const [created, spare] = [`new ${n}@demo`, `spare ${n}@demo`];
  const gone = { topic: 'seen/will', payload: Buffer.from(`gone ${n}`), qos: 1, retain: true } as const;
  const leaving = await clients.connect(device, { clientId: `leaving ${n}`, will: gone });
  leaving.client.stream.destroy();
  await waitUntil(() => lasting.messages.some(({ text }) => text === `gone ${n}`));
  const streams = [
    { device, data: { n: 100 + n } },
    { device: spare, data: {} },
  ];
  await waitUntil(async () => (await service.send('POST', '/streams/', streams)).status === 200);
  await waitUntil(() => shows(`/devices/?alarm=open&latest.n=${100 + n}&fields=id_developer`, device));
  await waitUntil(() => shows(`/events/?type=device.status_changed&id_developer=${spare}`, spare));
  for (const status of ['queued', 'sent'])
    await waitUntil(async () => !(await shows(`/devices/${device}/commands/?status=${status}`, '"restart"')));
  const hasCreated = ({ id_developer }: { id_developer: string }) => id_developer === created;
  await waitUntil(() => receiver.events().some(hasCreated));
  await waitUntil(() => feed.messages.some(({ data }) => hasCreated(data)));
}

it('says what a standalone server lacks', async () => {
  const { path, version } = await findMongod({ env: process.env, print: () => undefined });
  const mongod = await MongoMemoryServer.create({
    binary: { systemBinary: path, version },
    instance: { storageEngine: 'wiredTiger', launchTimeout: 60_000 },
  });
  try {
    const BOOTSTRAP_API_KEY = 'key-of-this-test';
    const settings = { MONGODB_URI: mongod.getUri('test'), SECRET_KEY: 'only for this test', BOOTSTRAP_API_KEY };
    const service = await sandbox.service(settings, { ready: false });
    await waitUntil(() => /standalone server; start mongod with --replSet/.test(service.err()));
    const { status, body } = await service.send('GET', '/projects/');
    expect([status, body.code]).toEqual([503, 5031]);
  } finally {
    await mongod.stop();
  }
});

it('listens without a database and reports that it is not ready', async () => {
  await expectAlive();
  await expectUnavailable();
  const keyless = await sendRequest('GET', `${service.url}/projects/`);
  expect([keyless.status, keyless.body.code]).toEqual([401, 4011]);
});

it('becomes ready when the database appears', async () => {
  await mongod.start();
  await service.ready();
  expect(service.key).toMatch(/^[\w-]{43}$/);
  for (const [method, path, body] of createObjects()) {
    const { status, text } = await service.send(method, path, body);
    expect([path, Math.floor(status / 100), text]).toEqual([path, 2, text]);
  }
  clients = createClients(`mqtt://127.0.0.1:${mqtt_port}`);
  const stays = { clean: false, reconnectPeriod: 100, reconnectOnConnackError: true };
  lasting = await clients.connect(device, { ...stays, clientId: 'lasting' });
  await lasting.subscribe(['seen/#', `${device}/commands`, `${device}/state/desired`], 2);
  publisher = await clients.connect(device, { ...stays, clientId: 'publisher' });
  feed = await follow(`${service.url}/events/live/`, { 'service.apikey': service.key });
  await expectWorking();
});

it.each(['SIGSTOP', 'SIGKILL', 'SIGSTOP'] as const)(
  'answers in time after %s during work of every kind, and recovers',
  async (signal) => {
    const will = { topic: 'seen/will', payload: Buffer.from('gone'), qos: 1, retain: true } as const;
    const leaving = await clients.connect(device, { clientId: `leaving ${rounds}`, will });
    const outcomes: Outcomes = { byCall: {}, took_ms: 0 };
    const [interrupted, published] = [work(1000, outcomes), publishAll(`${rounds} before`)];
    await waitUntil(() => Object.keys(outcomes.byCall).length > 0);
    await mongod.kill(signal);
    leaving.client.stream.destroy();
    const publishedMeanwhile = publishAll(`${rounds} meanwhile`);
    expectOutcomes(await interrupted, /^(?:done|unavailable|broken off)/);
    await Promise.all([expectUnavailable(), expectAlive()]);
    const failed = await work();
    // the key is cached for a while
    delete failed.byCall['GET /self/'];
    expectOutcomes(failed, /^unavailable$/);
    expect(failed.took_ms).toBeLessThan(max_answer_ms);

    if (signal === 'SIGSTOP') await mongod.kill('SIGCONT');
    else await mongod.start();
    const back_at = performance.now();
    await service.ready();
    expect(performance.now() - back_at).toBeLessThan(max_recovery_ms);
    await Promise.all([published, publishedMeanwhile]);
    await expectWorking();
    await expectCaughtUp(rounds);
    await expectNothingLost();
  },
);

it('has survived all of this in one process', async () => {
  expect(service.err()).toBe('');
  service.kill('SIGTERM');
  expect(await service.ended).toBe(0);
});
