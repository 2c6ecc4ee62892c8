import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import type { mongo } from 'mongoose';
import { generate } from 'mqtt-packet';
import { createIdGenerator } from '../../src/db/ids.js';
import { runInParallel } from '../../src/lib/parallel.js';
import { readResident_mib } from '../support/instance.js';
import { findFreePort } from '../support/service-process.js';
import { account, deviceId, type StoredObject } from './data.js';
import { type Environment, parseCheckout, parseCount, withEnvironment } from './environment.js';
import { summarizeLatencies, type Throughput } from './load.js';
import { type Fleet, readCpu, startFleet } from './loaded-fleet.js';
import { connectPublisher, type Publisher } from './mqtt-load.js';
import { readPeakMib, resetPeakMemory } from './process.js';
import { printProgress, startProgressBar } from './progress.js';

interface Options {
  checkout: string;
  idle: number;
  senders: number;
  rate: number;
  seconds: number;
}

const group = 0;
const logins_at_once = 64;
const settle_ms = 10_000;
const drain_limit_ms = 60_000;
const goals = { idle_mib: 300, return_s: 10, message_s: 0.13 };
const subscribers = 1000;
const fan_out_topic = 'plant/all';
const fan_out_messages = 200;

const options = new Command('bench:connections')
  .description(
    'Measures memory and logins of MQTT connections, devices that each publish once in a while, and a fan-out.',
  )
  .option('--checkout <dir>', 'built checkout to measure', parseCheckout, '.')
  .option('--idle <n>', 'connections that send nothing', parseCount, 10_000)
  .option('--senders <n>', 'connections that publish three values in a message', parseCount, 5000)
  .option('--rate <n>', 'messages a second of all senders', parseCount, 5000)
  .option('--seconds <n>', 'length of the load', parseCount, 30)
  .parse()
  .opts<Options>();

async function main(environment: Environment): Promise<void> {
  const port = await findFreePort();
  const count = Math.max(options.idle, options.senders, subscribers);
  const groups = [{ number: group, devices: count }];
  const fleet = await startFleet(environment, 'connections', groups, { mqtt_port: port, checkout: options.checkout });
  const password = randomBytes(16).toString('hex');
  await addCredentials(fleet, password);
  const { pid } = fleet.service;
  const url = `mqtt://127.0.0.1:${port}`;
  const before_mib = readResident_mib(pid);
  const connections = await connectAll(url, password, options.idle);
  await sleep(settle_ms);
  const idle_mib = readResident_mib(pid);
  console.log(
    `${options.idle} idle connections: ${idle_mib.toFixed(0)} MiB (goal: ${goals.idle_mib}), before ${before_mib.toFixed(0)}`,
  );
  for (const { socket } of connections.slice(options.senders)) socket.destroy();
  const senders = connections.slice(0, options.senders);
  await publishInTurn(senders, 5);
  await resetPeakMemory(pid);
  const cpuBefore = await readCpu(fleet);
  const { requests, per_second, p50_ms, p99_ms } = await publishInTurn(senders, options.seconds);
  const latency = `p50 ${p50_ms.toFixed(0)} ms, p99 ${p99_ms.toFixed(0)} ms`;
  console.log(`${senders.length} connections, ${options.rate} messages/s: ${Math.round(per_second)}/s, ${latency}`);
  const cpu = await describeCpu(fleet, cpuBefore, requests / 1000);
  const peak = `peak memory: ${(await readPeakMib(pid)).toFixed(0)} MiB`;
  console.log(`CPU time of 1,000 messages: ${cpu} (goal: ${goals.message_s}); ${peak}`);
  for (const { socket } of senders) socket.destroy();
  await measureReturn(fleet, url, password);
  await measureFanOut(fleet, url, password);
}

/** @returns the CPU time since `before` divided by `count`, in all and of the parts */
async function describeCpu(fleet: Fleet, before: readonly [number, number], count: number): Promise<string> {
  const after = await readCpu(fleet);
  const [service_s, mongod_s] = [(after[0] - before[0]) / count, (after[1] - before[1]) / count];
  const format = (seconds: number) => (seconds < 0.01 ? `${(seconds * 1e6).toFixed(1)} µs` : `${seconds.toFixed(3)} s`);
  return `${format(service_s + mongod_s)}, of mongod ${format(mongod_s)}`;
}

/** All clients come back at the same moment, with credentials that were verified before. */
async function measureReturn(fleet: Fleet, url: string, password: string): Promise<void> {
  await sleep(settle_ms);
  const cpuBefore = await readCpu(fleet);
  const begun_at = performance.now();
  const numbers = Array.from({ length: options.idle }, (_, number) => number);
  const logins = await Promise.allSettled(
    numbers.map((number) => connectPublisher(url, deviceId(group, number), password)),
  );
  const took_s = (performance.now() - begun_at) / 1000;
  const connected = logins.flatMap((login) => (login.status === 'fulfilled' ? [login.value] : []));
  console.log(
    `${options.idle} clients at once: ${connected.length} logged in after ${took_s.toFixed(1)} s (goal: ${goals.return_s})`,
  );
  console.log(`CPU time of a login verified before: ${await describeCpu(fleet, cpuBefore, options.idle)}`);
  for (const { socket } of connected) socket.destroy();
}

/** One client publishes to many at QoS 0, the next message once all have the one before. */
async function measureFanOut(fleet: Fleet, url: string, password: string): Promise<void> {
  const numbers = Array.from({ length: subscribers }, (_, number) => number);
  await runInParallel(numbers, logins_at_once, async (number) => {
    await fleet.client.send('POST', `/mqttdevices/${deviceId(group, number)}/topics/`, { name: fan_out_topic });
  });
  const clients = await connectAll(url, password, subscribers);
  await Promise.all(clients.map((client) => client.subscribe(fan_out_topic)));
  const [sender] = clients;
  const cpuBefore = await readCpu(fleet);
  for (let sent = 0; sent < fan_out_messages; sent++) {
    const received = clients.map((client) => new Promise<void>((resolve) => (client.onMessage = resolve)));
    sender?.socket.write(
      generate({ cmd: 'publish', qos: 0, dup: false, retain: false, topic: fan_out_topic, payload: `message ${sent}` }),
    );
    await Promise.all(received);
  }
  const cpu = await describeCpu(fleet, cpuBefore, fan_out_messages * subscribers);
  console.log(`CPU time of a delivery to one of ${subscribers} subscribers: ${cpu}`);
  for (const { socket } of clients) socket.destroy();
}

/** Gives all devices credentials, with their identifiers as user names: copies of those that the service has stored. */
async function addCredentials({ client, db }: Fleet, password: string): Promise<void> {
  const username = deviceId(group, 0);
  await client.send('POST', `/mqttdevices/${username}/credentials/`, { username, password });
  const stored = db.collection<StoredObject & { parent: mongo.UUID }>('mqtt_credentials');
  const sample = await stored.findOne({ username });
  if (sample === null) throw new Error('the credentials are not in the database');
  const newId = createIdGenerator(() => performance.timeOrigin + performance.now());
  const projection = { id_developer: 1 };
  const devices = await db.collection<StoredObject>('devices').find({ account }, { projection }).toArray();
  const others = devices.filter(({ id_developer }) => id_developer !== username);
  await stored.insertMany(
    others.map(({ _id: parent, id_developer }) => ({
      ...sample,
      ...{ _id: newId(), parent, device: id_developer, username: id_developer },
    })),
  );
}

async function connectAll(url: string, password: string, count: number): Promise<Publisher[]> {
  const bar = startProgressBar('connections', count);
  const connections: Publisher[] = [];
  const numbers = Array.from({ length: count }, (_, number) => number);
  await runInParallel(numbers, logins_at_once, async (number) => {
    connections.push(await connectPublisher(url, deviceId(group, number), password));
    bar.update(connections.length);
  });
  bar.stop();
  return connections;
}

/**
 * Publishes by one connection after the other at `rate`; one whose last message is not acknowledged waits for that.
 * @returns latencies from the moment at which a message was due
 */
async function publishInTurn(publishers: readonly Publisher[], seconds: number): Promise<Throughput> {
  const latencies_ms: number[] = [];
  const begun_at = performance.now();
  const total = options.rate * seconds;
  const senders = publishers.map((publisher) => createSender(publisher, (latency_ms) => latencies_ms.push(latency_ms)));
  for (let sent = 0; sent < total; ) {
    const now = performance.now();
    for (; sent < total; sent++) {
      const due_at = begun_at + (sent * 1000) / options.rate;
      if (due_at > now) break;
      senders[sent % senders.length]?.(due_at);
    }
    await sleep(5);
  }
  for (const end_at = performance.now() + drain_limit_ms; latencies_ms.length < total; await sleep(5)) {
    const lost = publishers.filter(({ socket }) => socket.destroyed).length;
    if (lost > 0 || performance.now() > end_at)
      throw new Error(`${total - latencies_ms.length} messages are not acknowledged, ${lost} connections are closed`);
  }
  printProgress(`${total} messages`);
  return summarizeLatencies(latencies_ms, (performance.now() - begun_at) / 1000);
}

/** @returns the function that publishes a message that was due at a time */
function createSender(publisher: Publisher, onAcknowledged: (latency_ms: number) => void): (due_at: number) => void {
  const waiting: number[] = [];
  let number = 0;
  const send = () => {
    const temperature = 20 + (number % 50) / 10;
    publisher.publish(
      `{"data":{"temperature":${temperature},"humidity":48,"battery_mv":3312}}`,
      (number++ % 65_535) + 1,
    );
  };
  publisher.onPuback = () => {
    onAcknowledged(performance.now() - (waiting.shift() ?? 0));
    if (waiting.length > 0) send();
  };
  return (due_at) => {
    waiting.push(due_at);
    if (waiting.length === 1) send();
  };
}

await withEnvironment(main);
