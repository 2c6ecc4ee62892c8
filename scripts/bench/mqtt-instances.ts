import { randomUUID } from 'node:crypto';
import { Command } from 'commander';
import mqtt, { type MqttClient } from 'mqtt';
import { findFreePort } from '../support/service-process.js';
import { account, createClient, createDeviceBody, createGroups, groupId, spareGroup } from './data.js';
import { type Environment, parseCheckout, parseCount, withEnvironment } from './environment.js';
import { median } from './measure.js';
import { printProgress } from './progress.js';
import { formatTable } from './report.js';
import { startService } from './server.js';

/** An arrangement of instances, of which the first one receives all publishes. */
interface Variant {
  name: string;
  /** The built checkout to run. */
  checkout: string;
  instances: number;
  /** A client of the second instance subscribes to everything. */
  hasSubscriber: boolean;
}

interface Target {
  variant: Variant;
  clients: readonly MqttClient[];
  /** Messages that the subscriber has received. */
  received(): number;
}

const options = new Command('bench:mqtt')
  .description('Publishes at QoS 1 per second on one instance, with and without others, in turns.')
  .option('--clients <n>', 'clients, each with one publish in flight', parseCount, 64)
  .option('--rounds <n>', 'measurements of each row', parseCount, 3)
  .option('--seconds <n>', 'length of a measurement', parseCount, 4)
  .option('--before <dir>', 'built checkout of another version to compare with', parseCheckout)
  .parse()
  .opts<{ clients: number; rounds: number; seconds: number; before?: string }>();

const checkout = '.';
const variants: readonly Variant[] = [
  ...(options.before === undefined
    ? []
    : [{ name: 'other version, alone', checkout: options.before, instances: 1, hasSubscriber: false }]),
  { name: 'alone', checkout, instances: 1, hasSubscriber: false },
  { name: 'second instance idle', checkout, instances: 2, hasSubscriber: false },
  { name: 'subscriber on the second', checkout, instances: 2, hasSubscriber: true },
];
const username = `d@${account}`;
const password = 'open sesame';
/** Topics by what the service does with their messages. */
const topics = { streams: `${username}/streams`, others: 'plant/set' };

function connect(port: number, clientId: string): Promise<MqttClient> {
  return mqtt.connectAsync(`mqtt://127.0.0.1:${port}`, { username, password, clientId, reconnectPeriod: 0 });
}

/** Creates a device with credentials, whose user name is its identifier. */
async function createDevice(url: string, key: string): Promise<void> {
  const client = createClient(url, key);
  await createGroups(client, []);
  await client.send('POST', '/devices/', createDeviceBody('d', groupId(spareGroup), 0));
  await client.send('POST', `/mqttdevices/${username}/credentials/`, { username, password });
  await client.send('POST', `/mqttdevices/${username}/topics/`, { name: '#' });
}

async function open(variant: Variant, { folder, mongod, closers }: Environment): Promise<Target> {
  const key = randomUUID() + randomUUID();
  const uri = mongod.uri(`mqtt-${variants.indexOf(variant)}`);
  const ports: number[] = [];
  for (let index = 0; index < variant.instances; index++) {
    const mqtt_port = await findFreePort();
    const service = await startService({ folder, uri, key, checkout: variant.checkout, mqtt_port });
    closers.push(service.stop);
    if (index === 0) await createDevice(service.url, key);
    ports.push(mqtt_port);
  }
  const [port = 0, secondPort = 0] = ports;
  const clients: MqttClient[] = [];
  closers.push(async () => {
    for (const client of clients) client.end(true);
  });
  for (let n = 0; n < options.clients; n++) clients.push(await connect(port, `publisher-${n}`));
  let received = 0;
  if (variant.hasSubscriber) {
    const subscriber = await connect(secondPort, 'subscriber');
    closers.push(async () => void subscriber.end(true));
    subscriber.on('message', () => {
      received++;
    });
    await subscriber.subscribeAsync('#', { qos: 0 });
  }
  return { variant, clients, received: () => received };
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

async function main(environment: Environment): Promise<void> {
  const targets: Target[] = [];
  for (const variant of variants) targets.push(await open(variant, environment));
  const results = new Map<string, number[]>();
  for (let round = 0; round <= options.rounds; round++)
    for (const [kind, topic] of Object.entries(topics))
      for (const target of targets) {
        const rate = await measure(target, topic);
        const row = `${kind}, ${target.variant.name}`;
        printProgress(`${row} ${round}/${options.rounds}: ${Math.round(rate)}/s`);
        // the first round warms up
        if (round > 0) results.set(row, [...(results.get(row) ?? []), rate]);
      }
  const rows = [...results].map(([row, rates]) => {
    const figures = [Math.min(...rates), median(rates), Math.max(...rates)];
    return [row, ...figures.map((rate) => String(Math.round(rate)))];
  });
  console.log(formatTable([['QoS 1 publishes/s', 'lowest', 'median', 'highest'], ...rows]));
  for (const { variant, received } of targets)
    if (variant.hasSubscriber) console.log(`received by the subscriber: ${received()}`);
}

await withEnvironment(main);
