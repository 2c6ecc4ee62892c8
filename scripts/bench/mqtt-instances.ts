import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command } from 'commander';
import mqtt, { type MqttClient } from 'mqtt';
import { findFreePort, type ServiceProcess, startServiceProcess } from '../support/service-process.js';
import { parseCount } from './environment.js';
import { type Mongod, startMongod } from './mongod.js';
import { formatTable } from './report.js';

/** An arrangement of instances, of which the first one receives all publishes. */
interface Variant {
  name: string;
  entry: string;
  instances: number;
  /** A client of the second instance subscribes to everything. */
  hasSubscriber: boolean;
}

interface Target {
  variant: Variant;
  clients: readonly MqttClient[];
  device: string;
  stop(): Promise<void>;
  /** Messages that the subscriber has received. */
  received(): number;
}

const options = new Command('mqtt-instances')
  .description('Publishes at QoS 1 per second on one instance, with and without others, in turns.')
  .option('--clients <n>', 'clients, each with one publish in flight', parseCount, 64)
  .option('--rounds <n>', 'measurements of each row', parseCount, 3)
  .option('--seconds <n>', 'length of a measurement', parseCount, 4)
  .option('--before <file>', 'dist/src/main.js of another version to compare with')
  .parse()
  .opts<{ clients: number; rounds: number; seconds: number; before?: string }>();

const entry = 'dist/src/main.js';
const variants: readonly Variant[] = [
  ...(options.before === undefined
    ? []
    : [{ name: 'other version, alone', entry: options.before, instances: 1, hasSubscriber: false }]),
  { name: 'alone', entry, instances: 1, hasSubscriber: false },
  { name: 'second instance idle', entry, instances: 2, hasSubscriber: false },
  { name: 'subscriber on the second', entry, instances: 2, hasSubscriber: true },
];
const password = 'open sesame';

function connect(port: number, username: string, clientId: string): Promise<MqttClient> {
  return mqtt.connectAsync(`mqtt://127.0.0.1:${port}`, { username, password, clientId, reconnectPeriod: 0 });
}

async function createDevice(url: string, key: string): Promise<string> {
  const post = async (path: string, body: object) => {
    const headers = { 'service.apikey': key, 'Content-Type': 'application/json' };
    const reply = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) });
    if (!reply.ok) throw new Error(`${path}: ${await reply.text()}`);
  };
  await post('/projects/', { name: 'p', id_customer: 'c' });
  await post('/services/', { name: 's', id_project: 'p@demo' });
  await post('/groups/', { name: 'g', id_service: 's@demo' });
  await post('/devices/', { name: 'd', type: 't', id_group: 'g@demo' });
  await post('/mqttdevices/d%40demo/credentials/', { username: 'd', password });
  await post('/mqttdevices/d%40demo/topics/', { name: '#' });
  return 'd@demo';
}

async function open(variant: Variant, mongod: Mongod): Promise<Target> {
  const key = randomUUID() + randomUUID();
  const services: ServiceProcess[] = [];
  const ports: number[] = [];
  for (let index = 0; index < variant.instances; index++) {
    const port = await findFreePort();
    const settings = { HOST: '127.0.0.1', PORT: '0', MQTT_PORT: String(port), LOG_FORMAT: 'off', WORKERS: '1' };
    const uri = mongod.uri(`mqtt-${variants.indexOf(variant)}`);
    const secrets = { MONGODB_URI: uri, SECRET_KEY: key, BOOTSTRAP_API_KEY: key };
    services.push(
      await startServiceProcess({ entry: variant.entry, env: { ...process.env, ...settings, ...secrets } }),
    );
    ports.push(port);
  }
  const [service] = services;
  const [port = 0, secondPort = 0] = ports;
  const device = await createDevice(service?.url ?? '', key);
  const clients: MqttClient[] = [];
  for (let n = 0; n < options.clients; n++) clients.push(await connect(port, 'd', `publisher-${n}`));
  let received = 0;
  const others: MqttClient[] = [];
  if (variant.hasSubscriber) {
    const subscriber = await connect(secondPort, 'd', 'subscriber');
    subscriber.on('message', () => {
      received++;
    });
    await subscriber.subscribeAsync('#', { qos: 0 });
    others.push(subscriber);
  }
  return {
    variant,
    clients,
    device,
    received: () => received,
    async stop() {
      for (const client of [...clients, ...others]) client.end(true);
      for (const started of services) await started.stop();
    },
  };
}

/** @returns acknowledged publishes a second */
async function measure({ clients }: Target, topic: string): Promise<number> {
  const begun = performance.now();
  const until = begun + options.seconds * 1000;
  let count = 0;
  await Promise.all(
    clients.map(async (client) => {
      while (performance.now() < until) {
        await client.publishAsync(topic, '{"data":{"temperature":21.5,"humidity":48}}', { qos: 1 });
        count++;
      }
    }),
  );
  return (count * 1000) / (performance.now() - begun);
}

const folder = await mkdtemp(join(tmpdir(), 'bench-mqtt-'));
const mongod = await startMongod(folder, (line) => process.stderr.write(`${line}\n`));
const targets: Target[] = [];
try {
  for (const variant of variants) targets.push(await open(variant, mongod));
  const topics = ['streams', 'others'] as const;
  const results = new Map<string, number[]>();
  for (let round = 0; round <= options.rounds; round++)
    for (const kind of topics)
      for (const target of targets) {
        const rate = await measure(target, kind === 'streams' ? `${target.device}/streams` : 'plant/set');
        // the first round warms up
        const row = `${kind}, ${target.variant.name}`;
        if (round > 0) results.set(row, [...(results.get(row) ?? []), rate]);
      }
  const rows = [...results].map(([row, rates]) => {
    const sorted = rates.toSorted((one, other) => one - other);
    return [
      row,
      ...[sorted.at(0), sorted[Math.floor(sorted.length / 2)], sorted.at(-1)].map((rate) =>
        String(Math.round(rate ?? 0)),
      ),
    ];
  });
  process.stdout.write(`${formatTable([['QoS 1 publishes/s', 'lowest', 'median', 'highest'], ...rows])}\n`);
  for (const target of targets)
    if (target.variant.hasSubscriber) process.stdout.write(`received by the subscriber: ${target.received()}\n`);
} finally {
  for (const target of targets) await target.stop();
  await mongod.stop();
  await rm(folder, { recursive: true, force: true });
}
