import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import mqtt, { type MqttClient } from 'mqtt';
import { openBareBroker } from '../../../scripts/support/bare-broker.js';
import { findProgram } from '../../../scripts/support/service-process.js';
import type { Database } from '../../../src/db/database.js';
import type { LeasedJob } from '../../../src/db/leased-job.js';
import { releaseLease, takeLease } from '../../../src/db/leases.js';
import { AppError } from '../../../src/errors.js';
import { startBridge } from '../../../src/mqtt/external/bridge.js';
import { issueKey, openKeyring } from '../../../src/objects/api-keys.js';
import { createEnabledCache } from '../../../src/objects/tree/ancestors.js';
import { createIngest, type Ingest as RecordStreams } from '../../../src/streams/ingest.js';
import { findFreePort, waitUntil } from '../../support/process.js';
import { createFixtures, pathOf, startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let closers: (() => unknown)[];
let drops: string[];
let logged: string[];

beforeEach(async () => {
  service = await startTestService();
  closers = [];
  drops = [];
  logged = [];
});

afterEach(async () => {
  for (const close of closers.toReversed()) await close();
  await service.stop();
});

/** Starts an external broker that accepts every login. @returns its port */
async function external(): Promise<number> {
  const broker = openBareBroker();
  const server = createServer(broker.handle);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  closers.push(() => {
    broker.close();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

interface Setting {
  rabbitmq?: boolean;
  username?: string;
  record?: (real: RecordStreams) => RecordStreams;
  db?: Database;
}

function bridgeTo(
  port: number,
  { rabbitmq = false, username = 'bridge', record, db = service.db }: Setting = {},
): LeasedJob {
  const clock = () => service.now() * 1000;
  const real = createIngest({
    db: service.db,
    areAncestorsEnabled: createEnabledCache(service.store, clock),
    metrics: { stored() {}, batch() {}, ingested() {} },
    clock,
  });
  const line = (fields: object, message: string) => logged.push(JSON.stringify([fields, message]));
  const bridge = startBridge({
    bridges: [{ url: `mqtt://127.0.0.1:${port}`, username, password: 'of the bridge' }],
    rabbitmq,
    db,
    ingest: record?.(real) ?? real,
    keyring: openKeyring(service.db),
    // debug: a message that is repeated within a minute
    log: { debug: line, info: line, warn: line, error: line },
    metrics: { published() {}, dropped: (reason) => drops.push(reason) },
    clock,
  });
  closers.push(() => bridge.stop());
  return bridge;
}

const connected = (count = 1) =>
  waitUntil(() => logged.filter((line) => line.includes('MQTT bridge connected')).length >= count);

async function publisher(port: number): Promise<MqttClient> {
  const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${port}`, { reconnectPeriod: 0 });
  closers.push(() => client.end(true));
  return client;
}

/** Publishes until the bridge has subscribed: a broker queues nothing before the first subscription. */
async function subscribed(port: number, device: string, topic = device): Promise<MqttClient> {
  await connected();
  const client = await publisher(port);
  await waitUntil(async () => {
    await client.publishAsync(`${topic}/status`, '{"up":true}', { qos: 1 });
    return (await stored(device, 'sta')).length > 0;
  });
  return client;
}

async function stored(device: string, _t = 'str'): Promise<unknown[]> {
  const found = await service.db
    .collection('streams')
    .find({ '_id.device': device, _t }, { sort: { '_id.n': 1 } })
    .toArray();
  return found.map(({ data }) => data);
}

async function device(account = 'acme', fields: Record<string, unknown> = {}): Promise<string> {
  return createFixtures(await service.client({ account })).device(fields);
}

const send = (client: MqttClient, topic: string, payload: unknown) =>
  client.publishAsync(topic, typeof payload === 'string' ? payload : JSON.stringify(payload), { qos: 1 });

it('stores streams and status of an external broker as their devices sent them', async () => {
  const port = await external();
  const id = await device('acme', { name: 'a/b+c' });
  const topic = 'a%2Fb%2Bc@acme';
  bridgeTo(port);
  const sender = await subscribed(port, id, topic);
  await send(sender, `${topic}/streams`, { data: { t: 21 }, at: 1000, protocol: 'p' });
  await send(sender, `${topic}/streams`, { t: 22 });
  await waitUntil(async () => (await stored(id)).length === 2);
  const found = await service.db
    .collection('streams')
    .find({ '_id.device': id, _t: 'str' }, { sort: { '_id.n': 1 } })
    .toArray();
  expect(found).toMatchObject([
    { _id: { at: 1000 }, protocol: 'p', data: { t: 21 }, owner: 'alice' },
    { _id: { at: service.now() }, protocol: 'mqtt', data: { t: 22 } },
  ]);
  expect((await stored(id, 'sta')).length).toBeGreaterThan(0);
});

it('stores each message once although several instances run, also while one hands over to another', async () => {
  const port = await external();
  const id = await device();
  const bridges = [bridgeTo(port), bridgeTo(port)];
  const client = await subscribed(port, id);
  for (let n = 0; n < 100; n++) await send(client, `${id}/streams`, { n });
  await waitUntil(async () => (await stored(id)).length >= 100);
  const stopping = bridges.map((bridge, index) => (index === 0 ? bridge.stop() : undefined));
  for (let n = 100; n < 300; n++) await send(client, `${id}/streams`, { n });
  await Promise.all(stopping);
  await waitUntil(async () => (await stored(id)).length >= 300);
  const numbers = (await stored(id)).map((data) => (data as { n: number }).n);
  expect(numbers.sort((a, b) => a - b)).toEqual(Array.from({ length: 300 }, (_, n) => n));
});

it('acknowledges nothing before it is stored, and goes on with others meanwhile', async () => {
  const port = await external();
  const id = await device();
  let open = () => {};
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  let begun = 0;
  bridgeTo(port, {
    record: (real) => async (job) => {
      if (job.entries[0]?._t === 'str') {
        begun++;
        await gate;
      }
      await real(job);
    },
  });
  const client = await subscribed(port, id);
  for (let n = 0; n < 5; n++) await send(client, `${id}/streams`, { n });
  await waitUntil(() => begun === 5);
  expect(await stored(id)).toEqual([]);
  open();
  await waitUntil(async () => (await stored(id)).length === 5);
});

it('tries again while the database fails, and stores what says its own time once', async () => {
  const port = await external();
  const id = await device();
  let failures = 0;
  bridgeTo(port, {
    record: (real) => async (job) => {
      // stored, but the answer was lost
      await real(job);
      if (job.entries[0]?._t === 'str' && failures++ < 1) throw new AppError('database');
    },
  });
  const client = await subscribed(port, id);
  await send(client, `${id}/streams`, [
    { at: 5, data: { t: 1, 'a.b': { $x: [1.5, 'é', null] } } },
    { at: 6, data: {} },
  ]);
  await waitUntil(() => failures > 0);
  await send(client, `${id}/streams`, { at: 7, data: { last: true } });
  await waitUntil(async () => (await stored(id)).length >= 3);
  await new Promise((resolve) => setTimeout(resolve, 1500));
  expect(await stored(id)).toEqual([{ t: 1, 'a.b': { $x: [1.5, 'é', null] } }, {}, { last: true }]);
  expect(drops).toEqual([]);
});

it('drops what is not valid or not allowed, and what was retained, and goes on', async () => {
  const port = await external();
  const id = await device();
  await device('acme', { name: 'dotted.name' });
  const early = await publisher(port);
  await early.publishAsync(`${id}/streams`, '{"old":true}', { qos: 1, retain: true });
  bridgeTo(port);
  const client = await subscribed(port, id);
  await send(client, `${id}/streams`, 'no JSON');
  await send(client, `${id}/streams`, '{"data": 1}');
  await send(client, 'nobody@acme/streams', { t: 1 });
  await send(client, `${id.replace('@acme', '@other')}/streams`, { t: 1 });
  await send(client, 'nokey/streams', { device: id, data: {} });
  await send(client, 'x%zz@acme/streams', { t: 1 });
  await send(client, `${id}/streams`, JSON.stringify({ t: 'x'.repeat(530_000) }));
  await send(client, 'dotted/name@acme/streams', { t: 1 });
  await send(client, `${id}/streams`, { good: true });
  await waitUntil(async () => (await stored(id)).length >= 1);
  await waitUntil(() => drops.length >= 7);
  expect(drops.sort()).toEqual(
    ['invalid', 'invalid', 'invalid', 'invalid', 'not_allowed', 'not_allowed', 'too_large'].sort(),
  );
  expect(await stored(id)).toEqual([{ good: true }]);
  expect(await stored('dotted.name@acme')).toEqual([]);
});

it('takes streams under a key that may send them', async () => {
  const port = await external();
  const id = await device();
  const other = await device('other');
  const sending = await issueKey(service.db, { account: 'acme', username: 'alice', scope: 'stream' }, 0);
  const reading = await issueKey(service.db, { account: 'acme', username: 'alice', scope: 'read' }, 0);
  const api = await service.client();
  const { id_group } = (await api.get(pathOf('devices', id))).body;
  const limited = { account: 'acme', username: 'alice', scope: 'stream' as const };
  const ofGroup = await issueKey(service.db, { ...limited, id_group }, 0);
  const ofDevice = await issueKey(service.db, { ...limited, id_device: id }, 0);
  const outside = await createFixtures(api).device({ id_group: await createFixtures(api).group() });
  bridgeTo(port);
  const client = await subscribed(port, id);
  await send(client, `${reading.key}/streams`, { device: id, data: { t: 1 } });
  await send(client, `${ofDevice.key}/streams`, { device: id, data: { t: 1 } });
  await send(client, `${ofGroup.key}/streams`, { device: outside, data: { t: 1 } });
  await send(client, `${sending.key}/streams`, { device: other, data: { t: 2 } });
  await send(client, `${sending.key}/streams`, { device: id, data: { t: 3 } });
  await send(client, `${ofGroup.key}/streams`, { device: id, data: { t: 4 } });
  await waitUntil(async () => (await stored(id)).length > 1);
  const [streams, ...others] = await Promise.all([id, other, outside].map((sender) => stored(sender)));
  expect([new Set(streams), others]).toEqual([new Set([{ t: 3 }, { t: 4 }]), [[], []]]);
  const secrets = [sending, reading, ofGroup, ofDevice].map(({ key }) => key).join('|');
  for (const line of logged) expect(line).not.toMatch(new RegExp(`${secrets}|of the bridge`));
});

it('puts together what RabbitMQ has made levels of, of the account of the virtual host only', async () => {
  const port = await external();
  const id = await device('acme', { name: 'v1.2 .x' });
  const other = await device('other');
  bridgeTo(port, { rabbitmq: true, username: 'acme:bridge' });
  const client = await subscribed(port, await device());
  await send(client, `${other}/streams`, { t: 1 });
  await send(client, `${id.replaceAll('.', '/')}/streams`, { t: 2 });
  await waitUntil(async () => (await stored(id)).length === 1 && drops.length > 0);
  expect(await stored(other)).toEqual([]);
  expect(drops).toEqual(['not_allowed']);
});

it('takes streams of an account with a dot in its name from its own virtual host of RabbitMQ only', async () => {
  const id = await device('Acme.Acme', { name: 'v1.2' });
  expect(id).toBe('v1.2@Acme.Acme');
  const shared = await external();
  bridgeTo(shared, { rabbitmq: true });
  const plain = await device('Acme');
  // to RabbitMQ a topic of the account Acme, granted as `v1.2@Acme/#`
  await send(await subscribed(shared, plain), 'v1/2@Acme/Acme/streams', { forged: true });
  await waitUntil(() => drops.length === 1);
  expect([drops, await stored(id)]).toEqual([['not_allowed'], []]);
});

it('takes streams of an account with a dot in its name from its own virtual host', async () => {
  const id = await device('Acme.Acme', { name: 'v1.2' });
  const port = await external();
  bridgeTo(port, { rabbitmq: true, username: 'Acme.Acme:bridge' });
  const client = await subscribed(port, id, id.replaceAll('.', '/'));
  await send(client, `${id.replaceAll('.', '/')}/streams`, { t: 1 });
  await waitUntil(async () => (await stored(id)).length === 1);
  expect(drops).toEqual([]);
});

it('gives way to another instance when it cannot renew, and nothing is lost in between', async () => {
  const port = await external();
  const id = await device();
  let cutOff = false;
  const lame: Database = {
    ...service.db,
    takeLease: (request) => takeLease(lame, request),
    collection(plural) {
      if (cutOff && plural === 'leases') throw new AppError('database');
      return service.db.collection(plural);
    },
  };
  bridgeTo(port, { db: lame });
  const client = await subscribed(port, id);
  bridgeTo(port);
  await send(client, `${id}/streams`, { n: 0 });
  cutOff = true;
  const lost = waitUntil(() => logged.some((line) => line.includes('has lost the lease')));
  let n = 1;
  // with `at` the service recognises what the broker sends again
  const sending = setInterval(() => {
    void send(client, `${id}/streams`, { at: n, data: { n } });
    n++;
  }, 50);
  try {
    await lost;
    await connected(2);
  } finally {
    clearInterval(sending);
  }
  await waitUntil(async () => (await stored(id)).length >= n);
  const numbers = (await stored(id)).map((data) => (data as { n: number }).n);
  expect(numbers.sort((a, b) => a - b)).toEqual(Array.from({ length: n }, (_, index) => index));
});

it('lets exactly one holder have a lease, until it has run out or is given back', async () => {
  const { db } = service;
  const take = (holder: string, lasts_ms = 60_000) =>
    takeLease(db, { name: 'l', holder, lasts_ms, tag: `by ${holder}` });
  const tags = await Promise.all(['a', 'b', 'c', 'd', 'e'].map((holder) => take(holder)));
  const [tag, ...more] = tags.filter((given) => given !== undefined);
  expect(more).toEqual([]);
  const holder = tag?.slice(3) ?? '';
  expect(await take('z')).toBeUndefined();
  expect(await take(holder)).toBe(tag);
  await releaseLease(db, 'l', 'z');
  expect(await take('z')).toBeUndefined();
  await releaseLease(db, 'l', holder);
  expect(await take('z')).toBe(tag);
  expect(await take('y')).toBeUndefined();
  expect(await take('z', 100)).toBe(tag);
  await waitUntil(async () => (await take('y')) === tag);
});

const mosquitto = findProgram('mosquitto');

(mosquitto === undefined ? it.skip : it)('misses nothing while the real mosquitto is restarted', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'mosquitto-'));
  const port = await findFreePort();
  await writeFile(
    join(folder, 'conf'),
    `listener ${port} 127.0.0.1\nallow_anonymous true\npersistence true\npersistence_location ${folder}/\nuser root\n`,
  );
  let running: ChildProcess | undefined;
  const start = async () => {
    running = spawn(mosquitto ?? '', ['-c', join(folder, 'conf')], { stdio: 'ignore' });
    await waitUntil(async () => {
      const probe = await mqtt.connectAsync(`mqtt://127.0.0.1:${port}`, { reconnectPeriod: 0 }).catch(() => undefined);
      await probe?.endAsync();
      return probe !== undefined;
    });
  };
  const stop = async () => {
    if (running === undefined || running.exitCode !== null) return;
    const ended = once(running, 'exit');
    running.kill('SIGTERM');
    await ended;
  };
  closers.push(async () => {
    await stop();
    await rm(folder, { recursive: true });
  });
  await start();
  const id = await device();
  bridgeTo(port);
  const client = await subscribed(port, id);
  for (let n = 0; n < 50; n++) await send(client, `${id}/streams`, { at: n, data: { n } });
  await stop();
  await start();
  const again = await publisher(port);
  for (let n = 50; n < 100; n++) await send(again, `${id}/streams`, { at: n, data: { n } });
  await waitUntil(async () => (await stored(id)).length >= 100);
  const numbers = (await stored(id)).map((data) => (data as { n: number }).n);
  expect(numbers.sort((a, b) => a - b)).toEqual(Array.from({ length: 100 }, (_, n) => n));
});
