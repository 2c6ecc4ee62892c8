// Records the database of an earlier version, with its answers, for tests/system/faults/upgrade.test.ts.
//
//   git worktree add ../earlier 9bcbca2 && (cd ../earlier && npm ci && npm run build)
//   MONGODB_URI=mongodb://… node scripts/checks/record-version.js ../earlier > tests/system/faults/fixtures/version-0.2.0.ejson
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import mongoose from 'mongoose';
import mqtt from 'mqtt';

const [, , checkout] = process.argv;
const { MONGODB_URI, PATH } = process.env;
const key = 'recorded-with-version-0.2.0';
const secret_key = 'only for this test, secret';
const password = 'correct horse';

const folder = mkdtempSync(join(tmpdir(), 'recorded-'));
mkdirSync(join(folder, 'demo'));
const probe = createServer().listen(0, '127.0.0.1');
await once(probe, 'listening');
const mqtt_port = probe.address().port;
await once(probe.close(), 'close');
const child = spawn(process.execPath, ['dist/src/main.js'], {
  cwd: checkout,
  env: {
    ...{ PATH, MONGODB_URI, SECRET_KEY: secret_key, BOOTSTRAP_API_KEY: key },
    ...{ HOST: '127.0.0.1', PORT: '0', MQTT_PORT: String(mqtt_port), FILESTORE_LOCAL_ROOT: folder },
  },
  stdio: ['ignore', 'pipe', 'inherit'],
});
let out = '';
child.stdout.on('data', (text) => {
  out += text;
});
while (!out.includes('listening on ')) await once(child.stdout, 'data');
const url = /listening on (\S+)/.exec(out)[1];

async function send(method, path, body) {
  const headers = { 'service.apikey': key, ...(body && { 'Content-Type': 'application/json' }) };
  const reply = await fetch(url + path, { method, headers, ...(body && { body: JSON.stringify(body) }) });
  const text = await reply.text();
  if (!reply.ok) throw new Error(`${method} ${path}: ${text}`);
  return JSON.parse(text);
}
async function connect(username, clientId) {
  const client = mqtt.connect(`mqtt://127.0.0.1:${mqtt_port}`, {
    ...{ username, password, clientId, clean: false, reconnectPeriod: 0 },
  });
  await once(client, 'connect');
  return client;
}

await send('POST', '/projects/', { name: 'north', id_customer: 'c-1', description: 'first' });
await send('POST', '/services/', { name: 'meters', id_project: 'north@demo' });
await send('POST', '/groups/', { name: 'hall', id_service: 'meters@demo' });
await send('POST', '/assets/', { name: 'wall', id_group: 'hall@demo', properties: { floor: 1 } });
await send('POST', '/models/', { name: 'M1', properties: { maker: 'x', own: 1 } });
for (const fields of [
  { id_group: 'hall@demo', id_model: 'M1@demo', properties: { own: 0 }, lon: 2, lat: 48 },
  { id_group: 'hall@demo', networking: { type: 'gprs', sim_card: '893407110012345678' } },
  { id_asset: 'wall@demo', enabled: false },
])
  await send('POST', '/devices/', { name: 'meter', type: 'sensor', ...fields });
await send('PATCH', '/devices/?type=sensor&confirm=3', { firmware: '1.0' });
await send('POST', '/devices/meter@demo/deviceconfigs/', { name: 'a', version: '1', file: 'eA==' });
for (const [n, device] of ['meter', 'meter', 'meter-2'].entries()) {
  const stream = { data: { n, deep: { a: [1] } }, at: 1_700_000_000 + n, protocol: 'p' };
  await send('POST', `/devices/${device}@demo/streams/`, stream);
}
await send('POST', '/status/', [{ device: 'meter@demo', data: { battery: 90 } }]);
await send('POST', '/apikeys/', { username: 'bob', scope: 'read', description: 'for reports' });
await send('POST', '/webhooks/', { name: 'hook', url: 'http://127.0.0.1:9/', types: ['device.deleted'] });
await send('PUT', '/external/local/user/alice/', { path: '.' });
await send('POST', '/mqttdevices/meter@demo/credentials/', { username: 'meter@demo', password });
await send('POST', '/mqttdevices/meter@demo/topics/', { name: 'site/#' });

const resting = await connect('meter@demo', 'resting');
await resting.subscribeAsync('site/+/alarm', { qos: 1 });
await resting.endAsync();
const running = await connect('meter@demo', 'running');
await running.subscribeAsync('site/one/#', { qos: 1 });
await running.publishAsync('site/two/alarm', 'while resting', { qos: 1 });
await running.publishAsync('site/two/state', 'retained', { qos: 1, retain: true });
await new Promise((resolve) => setTimeout(resolve, 5000));

const lists = ['projects', 'services', 'groups', 'assets', 'models', 'devices', 'streams', 'apikeys', 'webhooks'];
const paths = [
  ...lists.map((plural) => `/${plural}/`),
  '/devices/meter%40demo/deviceconfigs/',
  '/devices/meter%40demo/streams/',
  '/mqttdevices/meter%40demo/topics/',
  '/events/?order=1&max=100',
];
const answers = {};
for (const path of paths) answers[path] = await send('GET', path);
child.kill('SIGKILL');
await once(child, 'close');

const { MongoClient, BSON } = mongoose.mongo;
const client = new MongoClient(MONGODB_URI);
const collections = {};
const indexes = {};
for (const { name } of await client.db().listCollections().toArray()) {
  if (name.startsWith('system.')) continue;
  const collection = client.db().collection(name);
  collections[name] = await collection.find({}, { promoteValues: false }).toArray();
  indexes[name] = (await collection.indexes()).filter((index) => index.name !== '_id_');
}
await client.close();
console.log(BSON.EJSON.stringify({ key, secret_key, answers, collections, indexes }, undefined, 0, { relaxed: false }));
process.exit(0);
