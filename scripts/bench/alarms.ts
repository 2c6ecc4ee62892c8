import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import { deviceId, groupId } from './data.js';
import { type Environment, parseCount, withEnvironment } from './environment.js';
import { type Fleet, startFleet } from './loaded-fleet.js';
import { readCpuSeconds } from './process.js';
import { printProgress } from './progress.js';
import { formatTable } from './report.js';
import { postStreams } from './stream-load.js';

interface Options {
  devices: number;
  seconds: number;
  rounds: number;
}

const options = new Command('bench:alarms')
  .description('Measures streams with 0, 20 and 200 rules that cover each device, and devices that all cross together.')
  .option('--devices <n>', 'devices that cross together', parseCount, 100_000)
  .option('--seconds <n>', 'length of one measurement', parseCount, 10)
  .option('--rounds <n>', 'measurements of each number of rules, in turns', parseCount, 5)
  .parse()
  .opts<Options>();

const [calm_group, storm_group] = [0, 1];
const calm_devices = 1000;
const connections = 32;
const ruleCounts = [0, 20, 200] as const;
const calm = '{"data":{"temperature":21.5,"humidity":48,"battery_mv":3312,"flags":["ok"]}}';
const storm_limit_s = 180;
/** Concurrent requests of the storm, 100 devices in each. */
const senders = 4;

/** One measurement: streams a second, and CPU time of service and database for one stream. */
interface Sample {
  per_second: number;
  service_us: number;
  mongod_us: number;
}

const median = (values: readonly number[]) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;

async function main(environment: Environment): Promise<void> {
  const groups = [
    { number: calm_group, devices: calm_devices },
    { number: storm_group, devices: options.devices },
  ];
  const fleet = await startFleet(environment, 'alarms', groups);
  await measureRules(fleet);
  await measureStorm(fleet);
}

/** Measures the numbers of rules in turns, so that what else the machine does meets all of them. */
async function measureRules(fleet: Fleet): Promise<void> {
  const { client } = fleet;
  for (let index = 0; index < Math.max(...ruleCounts); index++)
    await client.send('POST', '/alarmrules/', {
      name: `rule ${index}`,
      severity: 'info',
      conditions: [
        { path: 'temperature', op: '>', value: 80 + index, clear: 70 },
        { path: 'humidity', op: '<', value: 5 },
      ],
      match: 'any',
      id_group: groupId(calm_group),
      enabled: false,
    });
  const samples = new Map<number, Sample[]>(ruleCounts.map((count) => [count, []]));
  for (let round = 0; round <= options.rounds; round++)
    for (const count of ruleCounts) {
      await enableRules(fleet, count);
      const sample = await measureStreams(fleet);
      // the first round warms up
      if (round > 0) samples.get(count)?.push(sample);
    }
  await fleet.db.collection('alarmrules').deleteMany({});
  const table = [['rules', 'streams/s', 'CPU of the service, µs a stream', 'CPU of mongod, µs a stream']];
  for (const [count, measured] of samples) {
    const middle = (key: keyof Sample) => median(measured.map((sample) => sample[key]));
    table.push([
      `${count}`,
      ...(['per_second', 'service_us', 'mongod_us'] as const).map((key) => middle(key).toFixed(0)),
    ]);
  }
  console.log(formatTable(table));
}

/** Enables the first rules in the database, so that they do not look at what is stored, and waits until the service knows it. */
async function enableRules({ db }: Fleet, count: number): Promise<void> {
  const rules = db.collection('alarmrules');
  const names = Array.from({ length: count }, (_, index) => `rule ${index}`);
  await rules.updateMany({ name: { $in: names } }, { $set: { enabled: true } });
  await rules.updateMany({ name: { $nin: names } }, { $set: { enabled: false } });
  await sleep(3000);
}

async function measureStreams(fleet: Fleet): Promise<Sample> {
  const { service, mongod_pid } = fleet;
  const readCpu = () => Promise.all([service.pid, mongod_pid].map(readCpuSeconds));
  const before = await readCpu();
  const { per_second } = await send(fleet, calm_group, calm_devices, calm, AbortSignal.timeout(options.seconds * 1000));
  const after = await readCpu();
  const streams = per_second * options.seconds;
  const cpuOf = (index: number) => (((after[index] ?? 0) - (before[index] ?? 0)) / streams) * 1e6;
  return { per_second, service_us: cpuOf(0), mongod_us: cpuOf(1) };
}

function send(fleet: Fleet, group: number, devices: number, body: string, signal: AbortSignal) {
  const headers = { 'service.apikey': fleet.key, 'content-type': 'application/json' };
  const paths = Array.from({ length: devices }, (_, index) => `/devices/${deviceId(group, index)}/streams/`);
  return postStreams({ url: fleet.service.url, headers, paths, body, connections, signal });
}

/** Lets all devices cross a threshold, 100 in a request, until all alarms are raised and in the log. */
async function measureStorm({ client, db, service }: Fleet): Promise<void> {
  const rule = { name: 'storm', severity: 'critical', conditions: [{ path: 'temperature', op: '>', value: 80 }] };
  await client.send('POST', '/alarmrules/', { ...rule, id_group: groupId(storm_group) });
  await sleep(3000);
  while ((await db.collection('alarm_scans').estimatedDocumentCount()) > 0) await sleep(200);
  const begun = performance.now();
  const waiting = Array.from({ length: Math.ceil(options.devices / 100) }, (_, index) => index * 100);
  const sender = async () => {
    for (let from = waiting.shift(); from !== undefined; from = waiting.shift()) {
      const first = from;
      const length = Math.min(100, options.devices - from);
      const streams = Array.from({ length }, (_, index) => ({
        device: decodeURIComponent(deviceId(storm_group, first + index)),
        data: { temperature: 90 },
      }));
      await client.send('POST', '/streams/', streams);
    }
  };
  await Promise.all(Array.from({ length: senders }, sender));
  const sent_s = (performance.now() - begun) / 1000;
  const events = db.collection('events');
  for (;;) {
    const raised = await events.countDocuments({ type: 'alarm.raised' });
    const seconds = (performance.now() - begun) / 1000;
    if (raised >= options.devices || seconds > storm_limit_s) {
      const open = (await client.send('GET', '/alarms/?state=active&max=1')).total_documents;
      printProgress(`${service.url}: ${String(open)} alarms are open`);
      console.log(
        `${options.devices} devices crossed: raised ${sent_s.toFixed(1)} s, in the log ${seconds.toFixed(1)} s`,
      );
      return;
    }
    await sleep(200);
  }
}

await withEnvironment(main);
