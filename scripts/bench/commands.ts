import { Command } from 'commander';
import mqtt, { type MqttClient } from 'mqtt';
import { formatDeviceTopic } from '../../src/mqtt/protocol/topics.js';
import { devicestate } from '../../src/resources/device-state.js';
import { findFreePort } from '../support/service-process.js';
import { deviceId, groupId } from './data.js';
import { type Environment, parseCount, withEnvironment } from './environment.js';
import { type Fleet, readCpu, startFleet } from './loaded-fleet.js';
import { median } from './measure.js';
import { printProgress } from './progress.js';

const options = new Command('bench:commands')
  .description('Sends commands to devices, one and many, and lets devices report their state.')
  .option('--devices <n>', 'devices that a command to many matches', parseCount, 10_000)
  .option('--connected <n>', 'of these, devices that are connected over MQTT', parseCount, 1000)
  .option('--reporters <n>', 'connected devices that report at the same time', parseCount, 256)
  .option('--single <n>', 'commands to one connected device', parseCount, 200)
  .option('--seconds <n>', 'length of the reports', parseCount, 15)
  .parse()
  .opts<{ devices: number; connected: number; reporters: number; single: number; seconds: number }>();

const group = 0;
const delivery_limit_ms = 60_000;

/** A device with a connection. */
interface ConnectedDevice {
  /** As in paths. */
  path: string;
  id: string;
  client: MqttClient;
}

/** Counts the commands that connected devices receive. */
class Receipts {
  #count = 0;
  #awaited = Number.POSITIVE_INFINITY;
  #reach: () => void = () => undefined;

  add(): void {
    if (++this.#count >= this.#awaited) this.#reach();
  }

  /** Resolves after `count` more receipts. @throws Error after a minute */
  waitFor(count: number): Promise<void> {
    this.#awaited = this.#count + count;
    return new Promise((resolve, reject) => {
      const giveUp = () => reject(new Error(`${this.#awaited - this.#count} of ${count} commands did not arrive.`));
      const timer = setTimeout(giveUp, delivery_limit_ms);
      this.#reach = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

async function main(environment: Environment): Promise<void> {
  const mqtt_port = await findFreePort();
  const groups = [{ number: group, devices: options.devices }];
  const fleet = await startFleet(environment, 'commands', groups, { mqtt_port });
  const receipts = new Receipts();
  const devices: ConnectedDevice[] = [];
  environment.closers.push(async () => {
    for (const { client } of devices) client.end(true);
  });
  for (let index = 0; index < options.connected; index++) {
    devices.push(await connect(fleet, mqtt_port, index, receipts));
  }
  printProgress(`${devices.length} devices are connected`);
  await measureSingle(fleet, devices, receipts);
  await measureMany(fleet, devices, receipts);
  await measureReports(fleet, devices.slice(0, options.reporters));
  await measureBytes(fleet);
}

async function connect({ client: http }: Fleet, port: number, index: number, receipts: Receipts) {
  const path = deviceId(group, index);
  const id = decodeURIComponent(path);
  const created = await http.send('POST', '/apikeys/', { username: `device-${index}`, scope: 'device', id_device: id });
  const { key } = created.details as { key: string };
  const login = { username: key, password: '', clientId: `device-${index}`, reconnectPeriod: 0, keepalive: 300 };
  const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${port}`, login);
  client.on('message', () => receipts.add());
  await client.subscribeAsync(formatDeviceTopic(id, 'commands'), { qos: 1 });
  return { path, id, client };
}

/** Prints how long a command takes from the request to its receipt, one after the other. */
async function measureSingle(
  { client }: Fleet,
  devices: readonly ConnectedDevice[],
  receipts: Receipts,
): Promise<void> {
  const took_ms: number[] = [];
  for (let number = 0; number < options.single; number++) {
    const path = devices[number % devices.length]?.path;
    const begun = performance.now();
    const received = receipts.waitFor(1).then(() => performance.now() - begun);
    await client.send('POST', `/devices/${path}/commands/`, { name: 'blink', data: { number } });
    took_ms.push(await received);
  }
  const max_ms = Math.max(...took_ms);
  console.log(
    `one command, from request to receipt: median ${median(took_ms).toFixed(1)} ms, longest ${max_ms.toFixed(1)}`,
  );
}

/** Prints how long a command to all devices takes until it is queued, and until all that are connected have it. */
async function measureMany(fleet: Fleet, devices: readonly ConnectedDevice[], receipts: Receipts): Promise<void> {
  const received = receipts.waitFor(devices.length);
  const cpuBefore = await readCpuSum(fleet);
  const begun = performance.now();
  const seconds = () => ((performance.now() - begun) / 1000).toFixed(2);
  const path = `/devices/commands/?id_group=${encodeURIComponent(groupId(group))}&confirm=${options.devices}`;
  await fleet.client.send('POST', path, { name: 'restart' });
  const queued_s = seconds();
  const cpu_s = (await readCpuSum(fleet)) - cpuBefore;
  await received;
  console.log(
    `a command to ${options.devices}: queued after ${queued_s} s (CPU ${cpu_s.toFixed(1)} s), at ${devices.length} after ${seconds()} s`,
  );
}

/** @returns CPU time of service and database together so far, in seconds */
async function readCpuSum(fleet: Fleet): Promise<number> {
  const [service_s, mongod_s] = await readCpu(fleet);
  return service_s + mongod_s;
}

/** Prints reports a second, each device with one in flight, and the CPU time of service and database for one. */
async function measureReports(fleet: Fleet, devices: readonly ConnectedDevice[]): Promise<void> {
  let reports = 0;
  const report = async ({ client, id }: ConnectedDevice, until: number) => {
    const topic = formatDeviceTopic(id, 'state/reported');
    for (let number = 0; performance.now() < until; number++) {
      const patch = { firmware: '2.4.1', interval_s: 60, uptime: number, relay: { open: number % 2 === 0 } };
      await client.publishAsync(topic, JSON.stringify(patch), { qos: 1 });
      reports++;
    }
  };
  const before = await readCpuSum(fleet);
  const begun = performance.now();
  await Promise.all(devices.map((device) => report(device, begun + options.seconds * 1000)));
  const seconds = (performance.now() - begun) / 1000;
  const cpu_us = (((await readCpuSum(fleet)) - before) / reports) * 1e6;
  console.log(
    `${devices.length} devices: ${(reports / seconds).toFixed(0)} reports/s, ${cpu_us.toFixed(0)} µs of CPU for one`,
  );
}

/** Prints what a state takes on disk, with its indexes, after each device got a desired state. */
async function measureBytes({ client, db }: Fleet): Promise<void> {
  const desired = { interval_s: 60 };
  const waiting = Array.from({ length: options.devices }, (_, index) => index);
  const sender = async () => {
    for (let index = waiting.shift(); index !== undefined; index = waiting.shift()) {
      await client.send('PATCH', `/devices/${deviceId(group, index)}/state/`, desired);
    }
  };
  await Promise.all(Array.from({ length: 16 }, sender));
  await db.admin().command({ fsync: 1 });
  const sizes = await db.command({ collStats: devicestate.plural });
  const bytes = (key: string) => (Number(sizes[key]) / Number(sizes.count)).toFixed(0);
  console.log(`a state: ${bytes('size')} bytes, ${bytes('storageSize')} on disk, indexes ${bytes('totalIndexSize')}`);
}

await withEnvironment(main);
