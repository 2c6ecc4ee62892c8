import type { AddressInfo } from 'node:net';
import { afterAll, expect, it } from '@jest/globals';
import { readConfig } from '../../../src/config.js';
import type { Database } from '../../../src/db/database.js';
import { openDatabase } from '../../../src/db/open-database.js';
import { openServer } from '../../../src/http/server.js';
import { openVault } from '../../../src/lib/vault.js';
import { createMetrics } from '../../../src/metrics/metrics.js';
import { bindClient } from '../../../src/mqtt/external/client-bindings.js';
import { issueKey } from '../../../src/objects/api-keys.js';
import { createStore } from '../../../src/objects/context.js';
import { createApp } from '../../../src/service/app.js';
import { waitUntil } from '../../support/process.js';
import { createFixtures, pathOf, startTestService } from '../../support/service.js';

const secret = 'a secret of the broker';
const password = 'correct horse';

interface Asked {
  [parameter: string]: string;
}

const lines: string[] = [];
const logged: string[] = [];
const closers: (() => Promise<unknown>)[] = [];

/** The HTTP side alone, as the service wires it. */
async function serve(db: Database, mqtt_auth_secret: string | undefined): Promise<string> {
  const line = (fields: object, message: string) => logged.push(JSON.stringify([fields, message]));
  const { server, express } = openServer();
  createApp({
    server,
    express,
    config: {
      ...readConfig({ BASE_PATH: '/api' }),
      mqtt_auth_secret,
      mqtt_bridge_url: [{ url: 'mqtt://127.0.0.1:1', username: 'acme:bridge', password: 'of the bridge' }],
    },
    vault: openVault('a key that only tests have'),
    store: createStore(db),
    log: { info: line, warn: line, error: line },
    metrics: createMetrics({ version: '', readState: () => service.db.readState() }),
    clock: () => service.now() * 1000,
    writeLine: (text) => lines.push(text),
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closers.push(() => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function ask(question: string, given: Asked, options: { url?: string; secret?: string } = {}): Promise<string> {
  const address = `${options.url ?? url}/mqtt-auth/${question}?secret=${encodeURIComponent(options.secret ?? secret)}`;
  const reply = await fetch(address, { method: 'POST', body: new URLSearchParams(given) });
  return reply.status === 200 ? await reply.text() : String(reply.status);
}

let names = 0;

/** A device with credentials, of which `client` has logged in with RabbitMQ. */
async function device(account = 'acme', fields: object = {}, topics: string[] = [], loginVhost = '/') {
  const api = await service.client({ account });
  const id = await createFixtures(api).device(fields as Record<string, unknown>);
  const username = `user ${++names}`;
  const client_id = `client ${names}`;
  expect((await api.post(pathOf('mqttdevices', id, 'credentials'), { username, password })).body.code).toBe(2001);
  for (const name of topics)
    expect((await api.post(pathOf('mqttdevices', id, 'topics'), { name })).body.code).toBe(2001);
  expect(await ask('user', { username, password, vhost: loginVhost, client_id })).toBe('allow');
  const topic = (permission: string, routing_key: string, vhost = '/') =>
    ask('topic', {
      username,
      vhost,
      resource: 'topic',
      name: 'amq.topic',
      permission,
      routing_key,
      'variable_map.client_id': client_id,
    });
  return { api, id, username, client_id, topic };
}

const service = await startTestService();
const url = await serve(service.db, secret);

afterAll(async () => {
  for (const close of closers) await close();
  await service.stop();
});

it('answers 404 where no secret is set, and 401 to another one', async () => {
  const closed = await serve(service.db, undefined);
  const { username } = await device();
  expect(await ask('user', { username, password }, { url: closed })).toBe('404');
  expect(await ask('user', { username, password }, { secret: '' })).toBe('401');
  expect(await ask('user', { username, password }, { secret: `${secret}!` })).toBe('401');
  expect(await ask('users', { username, password })).toBe('404');
  expect((await fetch(`${url}/mqtt-auth/user`)).status).toBe(401);
  expect((await fetch(`${url}/mqtt-auth`)).status).toBe(404);
  const put = await fetch(`${url}/mqtt-auth/user`, { method: 'PUT' });
  expect([put.status, put.headers.get('allow')]).toEqual([405, 'GET, POST']);
});

it('answers in plain text, to GET as RabbitMQ sends it too', async () => {
  const { username } = await device();
  const query = new URLSearchParams({ username, password });
  const reply = await fetch(`${url}/mqtt-auth/user?secret=${encodeURIComponent(secret)}?${query}`);
  expect([reply.status, reply.headers.get('content-type'), await reply.text()]).toEqual([
    200,
    'text/plain; charset=utf-8',
    'allow',
  ]);
});

it('names whom it denies what, and shows no key', async () => {
  const { username } = await device();
  const { id: key_id, key } = await issueKey(service.db, { account: 'acme', username: 'alice', scope: 'stream' }, 0);
  logged.length = 0;
  await ask('user', { username, password: 'of another', client_id: 'c-1' });
  await ask('topic', { username: key, name: 'amq.topic', permission: 'read', routing_key: `${key}.streams` });
  const denied = (reason: string) => `MQTT authorization denied: ${reason}`;
  expect(logged.map((line) => JSON.parse(line))).toEqual([
    [
      expect.objectContaining({ question: 'user', reason: 'password', client_id: 'c-1', username, account: 'acme' }),
      denied('password'),
    ],
    [
      { question: 'topic', reason: 'not allowed', account: 'acme', key_id, topic: '***/streams', count: 1 },
      denied('not allowed'),
    ],
  ]);
});

it('shows neither secret nor passwords in a log', async () => {
  const { username } = await device();
  const query = new URLSearchParams({ username, password });
  await fetch(`${url}/mqtt-auth/user?secret=${encodeURIComponent(secret)}&${query}`);
  await ask('user', { username, password }, { secret: 'wrong but near' });
  await fetch(`${url}/api/projects/`);
  await waitUntil(() => lines.some((line) => line.includes('/api/projects/')));
  for (const line of [...lines, ...logged]) expect(line).not.toMatch(/secret|correct|wrong/);
});

it('refuses bodies over 16 KiB', async () => {
  expect(await ask('user', { username: 'x'.repeat(17_000), password })).toBe('413');
});

it('lets a device in with its credentials while it and everything above is enabled', async () => {
  const { api, id, username, client_id } = await device();
  const login = (given: Asked) => ask('user', { username, password, vhost: '/', client_id, ...given });
  expect(await login({})).toBe('allow');
  expect(await login({ vhost: 'acme' })).toBe('allow');
  expect(await login({ vhost: 'other' })).toBe('deny');
  expect(await login({ password: 'incorrect horse' })).toBe('deny');
  expect(await login({ password: '' })).toBe('deny');
  expect(await login({ username: '' })).toBe('deny');
  expect(await login({ username: 'nobody' })).toBe('deny');
  const { id_group } = (await api.get(pathOf('devices', id))).body;
  for (const [path, enabled, answer] of [
    [pathOf('devices', id), false, 'deny'],
    [pathOf('devices', id), true, 'allow'],
    [pathOf('groups', id_group), false, 'deny'],
  ] as const) {
    expect((await api.put(path, { enabled })).body.code).toBe(2005);
    service.advance(3);
    expect(await login({})).toBe(answer);
    expect(await ask('vhost', { username, vhost: '/', client_id })).toBe(answer);
  }
});

it('lets keys in that may send streams, to publish under the key and nothing else', async () => {
  const { key } = await issueKey(service.db, { account: 'acme', username: 'alice', scope: 'stream' }, 0);
  const reading = await issueKey(service.db, { account: 'acme', username: 'alice', scope: 'read' }, 0);
  const vhost = '/';
  expect(await ask('user', { username: key, password: '', vhost, client_id: 'k' })).toBe('allow');
  expect(await ask('user', { username: reading.key, password: '', vhost, client_id: 'k2' })).toBe('deny');
  expect(await ask('user', { username: key, password: 'x', vhost, client_id: 'k' })).toBe('deny');
  const topic = (permission: string, routing_key: string) =>
    ask('topic', { username: key, vhost, resource: 'topic', name: 'amq.topic', permission, routing_key });
  expect(await topic('write', `${key}.streams`)).toBe('allow');
  expect(await topic('write', `${key}.status`)).toBe('allow');
  expect(await topic('read', `${key}.streams`)).toBe('deny');
  expect(await topic('write', `${key}.commands`)).toBe('deny');
  expect(await topic('write', 'x@acme.streams')).toBe('deny');
  expect(await topic('write', `${reading.key}.streams`)).toBe('deny');
});

it('lets a key of a device do what the device may', async () => {
  const { api, id } = await device();
  const [routed, vhost] = [`${id}.streams`, '/'];
  const issue = async (scope: string) =>
    (await api.post('/apikeys/', { username: 'bob', scope, id_device: id })).body.details.key;
  const key = await issue('device');
  expect(await ask('user', { username: key, password: '', vhost, client_id: 'own' })).toBe('allow');
  expect(await ask('user', { username: await issue('read'), password: '', vhost, client_id: 'own 2' })).toBe('deny');
  const topic = (permission: string, routing_key: string) =>
    ask('topic', { username: key, vhost, resource: 'topic', name: 'amq.topic', permission, routing_key });
  for (const permission of ['read', 'write']) expect(await topic(permission, routed)).toBe('allow');
  expect(await topic('write', `${key}.streams`)).toBe('deny');
  expect(await topic('write', 'x@acme.streams')).toBe('deny');
  await api.delete(pathOf('devices', id));
  service.advance(5);
  expect(await topic('write', routed)).toBe('deny');
});

it('binds a client id to the device that uses it first', async () => {
  const { username, client_id } = await device();
  const other = await device();
  const stranger = await device('other');
  for (const [thief, vhost] of [
    [other, '/'],
    [stranger, '/'],
    [stranger, 'other'],
  ] as const) {
    expect(await ask('user', { username: thief.username, password, vhost, client_id })).toBe('deny');
    expect(await ask('vhost', { username: thief.username, vhost, client_id })).toBe('deny');
    const queue = { resource: 'queue', name: `mqtt-subscription-${client_id}qos1`, permission: 'read' };
    expect(await ask('resource', { username: thief.username, vhost, ...queue })).toBe('deny');
  }
  expect(await ask('user', { username, password, vhost: 'acme', client_id })).toBe('allow');
  service.advance(29 * 86_400);
  expect(await ask('vhost', { username, vhost: '/', client_id })).toBe('allow');
  service.advance(29 * 86_400);
  expect(await ask('user', { username: other.username, password, vhost: '/', client_id })).toBe('deny');
  service.advance(2 * 86_400);
  expect(await ask('user', { username: other.username, password, vhost: '/', client_id })).toBe('allow');
  expect(await ask('user', { username, password, vhost: '/', client_id })).toBe('deny');
});

it('gives a client id to exactly one of two devices that come at once', async () => {
  const [one, two] = [await device(), await device('other')];
  for (let round = 0; round < 10; round++) {
    const client_id = `wanted ${round}`;
    const answers = await Promise.all(
      [one, two].map(({ username }) => ask('user', { username, password, vhost: '/', client_id })),
    );
    expect(answers.sort()).toEqual(['allow', 'deny']);
  }
});

it('keeps a client id with a device that gets other credentials', async () => {
  const { api, id, client_id } = await device();
  await api.delete(pathOf('mqttdevices', id));
  await api.post(pathOf('mqttdevices', id, 'credentials'), { username: 'other credentials', password });
  expect(await ask('user', { username: 'other credentials', password, vhost: '/', client_id })).toBe('allow');
});

it('remembers the last 100 client ids of an owner', async () => {
  const now = service.now() * 1000;
  for (let count = 0; count < 103; count++)
    await bindClient(service.db, `made up ${count}`, 'device many@acme', new Date(now + count));
  const left = await service.db.collection('mqttclients').find({ owner: 'device many@acme' }).toArray();
  expect(left.length).toBe(100);
  expect(left.map(({ _id }) => String(_id))).not.toContain('made up 2');
  expect(left.map(({ _id }) => String(_id))).toContain('made up 3');
});

it('allows the virtual host that all share and the own one, to who has logged in with MQTT', async () => {
  const { username, client_id } = await device();
  const vhost = (name: string, more: Asked = { client_id }) =>
    ask('vhost', { username, vhost: name, ip: '::1', ...more });
  expect(await vhost('/')).toBe('allow');
  expect(await vhost('acme')).toBe('allow');
  expect(await vhost('other')).toBe('deny');
  expect(await vhost('/', {})).toBe('deny');
  expect(await vhost('/', { client_id: 'somebody else' })).toBe('deny');
});

it('allows the topic exchange and the queues of the own client ids, nothing else', async () => {
  const { username, client_id } = await device();
  const mine = `mqtt-subscription-${client_id}qos`;
  const table: [resource: string, name: string, permission: string, answer: string][] = [
    ['exchange', 'amq.topic', 'read', 'allow'],
    ['exchange', 'amq.topic', 'write', 'allow'],
    ['exchange', 'amq.topic', 'configure', 'deny'],
    ['exchange', 'amq.default', 'write', 'deny'],
    ['exchange', '', 'write', 'deny'],
    ['queue', `${mine}0`, 'configure', 'allow'],
    ['queue', `${mine}1`, 'read', 'allow'],
    ['queue', `${mine}1`, 'write', 'allow'],
    ['queue', `${mine}1`, 'delete', 'deny'],
    ['queue', `${mine}2`, 'read', 'deny'],
    ['queue', 'mqtt-subscription-qos1', 'read', 'deny'],
    ['queue', 'orders', 'read', 'deny'],
    ['topic', 'amq.topic', 'write', 'deny'],
  ];
  for (const [resource, name, permission, answer] of table)
    expect([name, await ask('resource', { username, vhost: '/', resource, name, permission })]).toEqual([name, answer]);
});

it('allows a device its streams and status, and what is covered by its topics', async () => {
  const name = `v1.2 *${++names}`;
  const { id, topic } = await device('acme', { name }, ['plant/+/set', 'site/#', 'literal/*']);
  expect(id).toBe(`${name}@acme`);
  const table: [permission: string, key: string, inOwn: string, inShared: string][] = [
    ['write', `${id}.streams`, 'allow', 'allow'],
    ['read', `${id}.status`, 'allow', 'allow'],
    ['write', `${id}.commands`, 'deny', 'deny'],
    ['write', `${id}.state.desired`, 'deny', 'deny'],
    ['write', `${id}.other`, 'deny', 'deny'],
    ['write', 'x@acme.streams', 'deny', 'deny'],
    ['write', 'x@other.streams', 'deny', 'deny'],
    ['read', '#', 'deny', 'deny'],
    ['read', '*.streams', 'deny', 'deny'],
    ['read', `*.${id}.streams`, 'deny', 'deny'],
    ['read', '*.*.streams', 'deny', 'deny'],
    ['write', 'plant.7.set', 'allow', 'deny'],
    ['read', 'plant.*.set', 'allow', 'deny'],
    ['read', 'plant.#', 'deny', 'deny'],
    ['write', 'plant.7.8.set', 'deny', 'deny'],
    ['read', 'site', 'allow', 'deny'],
    ['read', 'site.#', 'allow', 'deny'],
    ['read', 'site.a.*.b', 'allow', 'deny'],
    ['write', 'site.x@acme.streams', 'allow', 'allow'],
    ['read', 'site.*.x@acme.streams', 'allow', 'allow'],
    ['write', 'site.x@other.streams', 'allow', 'deny'],
    ['write', 'site.x@acme.y@other.streams', 'allow', 'deny'],
    ['read', 'site.x@acme.#', 'allow', 'deny'],
    ['read', 'site.x@acme.*', 'allow', 'deny'],
    ['write', 'site.#', 'deny', 'deny'],
    ['write', 'literal.*', 'allow', 'deny'],
    ['read', 'literal.*', 'deny', 'deny'],
    ['write', 'literal.x', 'deny', 'deny'],
    ['write', '$SYS.x', 'deny', 'deny'],
    ['write', '', 'deny', 'deny'],
    ['configure', `${id}.streams`, 'deny', 'deny'],
  ];
  for (const [permission, key, inOwn, inShared] of table) {
    expect([permission, key, await topic(permission, key, 'acme')]).toEqual([permission, key, inOwn]);
    expect([permission, key, await topic(permission, key, '/')]).toEqual([permission, key, inShared]);
  }
  expect(await topic('write', `${id}.streams`, 'other')).toBe('deny');
});

it('lets a topic of an account never reach what another account may name', async () => {
  const gateway = await device('acme', {}, ['gw@acme/#', '#']);
  const named = await device('other', { name: `gw@acme.x ${++names}` });
  expect(await named.topic('write', `${named.id}.streams`)).toBe('allow');
  for (const permission of ['read', 'write'])
    expect(await gateway.topic(permission, `${named.id}.streams`)).toBe('deny');
  for (const key of ['gw@acme.#', 'gw@acme.*', 'gw@acme.*.streams', '#', '*.streams', '*', '*.*.streams'])
    expect([key, await gateway.topic('read', key)]).toEqual([key, 'deny']);
});

it('lets an account with a dot in its name into its own virtual host only', async () => {
  const account = 'Acme.Acme';
  const { id, username, client_id, topic } = await device(account, {}, ['plant.x/+/set'], account);
  expect(id).toMatch(/@Acme\.Acme$/);
  for (const [vhost, expected] of [
    [account, 'allow'],
    ['/', 'deny'],
    ['Acme', 'deny'],
    ['acme.acme', 'deny'],
  ] as const) {
    expect([vhost, await ask('user', { username, password, vhost, client_id })]).toEqual([vhost, expected]);
    expect([vhost, await ask('vhost', { username, vhost, client_id })]).toEqual([vhost, expected]);
    expect([vhost, await topic('write', `${id}.streams`, vhost)]).toEqual([vhost, expected]);
    expect([vhost, await topic('read', 'plant.x.*.set', vhost)]).toEqual([vhost, expected]);
  }
  for (const key of [`${id}.Acme.streams`, `${id.slice(0, -5)}.streams`, '*.Acme.streams', 'plant.y.1.set'])
    expect([key, await topic('read', key, account)]).toEqual([key, 'deny']);
});

it('denies a topic to another client id than the own ones', async () => {
  const { id, username } = await device();
  const about = { resource: 'topic', name: 'amq.topic', permission: 'write', routing_key: `${id}.streams` };
  expect(await ask('topic', { username, vhost: '/', ...about })).toBe('allow');
  expect(await ask('topic', { username, vhost: '/', ...about, name: 'amq.direct' })).toBe('deny');
  expect(await ask('topic', { username, vhost: '/', ...about, 'variable_map.client_id': 'stolen' })).toBe('deny');
});

it('allows the bridge everything, with its own password only', async () => {
  const api = await service.client();
  const id = await createFixtures(api).device();
  await api.post(pathOf('mqttdevices', id, 'credentials'), { username: 'bridge', password });
  const login = (given: Asked) =>
    ask('user', { username: 'bridge', vhost: 'acme', client_id: 'platform-bridge-1', ...given });
  expect(await login({ password })).toBe('deny');
  expect(await login({ password: 'of the bridge' })).toBe('allow');
  const { username } = await device();
  expect(await login({ username, password })).toBe('deny');
  const queue = { resource: 'queue', name: 'mqtt-subscription-platform-bridge-1qos1', permission: 'configure' };
  expect(await ask('resource', { username: 'bridge', vhost: 'acme', ...queue })).toBe('allow');
  const topic = { resource: 'topic', name: 'amq.topic', permission: 'read', routing_key: '*.streams' };
  expect(await ask('topic', { username: 'bridge', vhost: 'acme', ...topic })).toBe('allow');
});

it('denies while the database is away, and says so in the log', async () => {
  const log = { info() {}, warn() {}, error() {} };
  const away = openDatabase({ uri: 'mongodb://127.0.0.1:1/none', log, maintenance: async () => undefined });
  closers.push(() => away.close());
  const broken = await serve(away, secret);
  logged.length = 0;
  for (const question of ['user', 'vhost', 'resource', 'topic'])
    expect(await ask(question, { username: 'someone', password, vhost: '/', client_id: 'c' }, { url: broken })).toBe(
      'deny',
    );
  // at most one line a second
  expect(logged.length).toBeGreaterThan(0);
});
