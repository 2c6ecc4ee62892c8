import { setTimeout as sleep } from 'node:timers/promises';
import { Command, Option } from 'commander';
import { deviceId, groupId } from './data.js';
import { type Environment, parseCount, withEnvironment } from './environment.js';
import type { Throughput } from './load.js';
import { type Fleet, readCpu, startFleet } from './loaded-fleet.js';
import { median } from './measure.js';
import { printProgress } from './progress.js';
import { formatTable } from './report.js';
import { postStreams } from './stream-load.js';

interface Options {
  only?: 'rules' | 'storm';
  devices: number;
  rate: number;
  seconds: number;
  rounds: number;
}

const options = new Command('bench:alarms')
  .description('Measures streams with rules that cover each device, and devices that all cross a threshold together.')
  .addOption(new Option('--only <part>', 'default: both').choices(['rules', 'storm']))
  .option('--devices <n>', 'devices that cross together', parseCount, 100_000)
  .option('--rate <n>', 'streams a second of other devices meanwhile', parseCount, 100)
  .option('--seconds <n>', 'length of one measurement', parseCount, 10)
  .option('--rounds <n>', 'measurements of each set of rules, in turns', parseCount, 5)
  .parse()
  .opts<Options>();

const [calm_group, storm_group] = [0, 1];
const calm_devices = 1000;
const connections = 32;
const max_rules = 200;
const storm_limit_s = 180;
/** Concurrent requests of the storm, 100 devices in each. */
const senders = 4;

const bodyOf = (temperature: number) =>
  `{"data":{"temperature":${temperature},"humidity":48,"battery_mv":3312,"flags":["ok"]}}`;
const calm = [bodyOf(21.5)];
/** Each device crosses the threshold with each stream. */
const flapping = [bodyOf(81), bodyOf(75)];

/** Rules that are enabled, by name, and what all devices send. */
interface Case {
  name: string;
  rules: readonly string[];
  bodies: readonly string[];
}

const numbered = (count: number) => Array.from({ length: count }, (_, index) => `rule ${index}`);
const other_rules = ['clear', 'for', 'plain'];
const cases: readonly Case[] = [
  { name: 'no rule', rules: [], bodies: calm },
  { name: '20 rules', rules: numbered(20), bodies: calm },
  { name: '200 rules', rules: [...numbered(max_rules - other_rules.length), ...other_rules], bodies: calm },
  { name: 'flapping, `clear`', rules: ['clear'], bodies: flapping },
  { name: 'flapping, `for`', rules: ['for'], bodies: flapping },
  { name: 'flapping, neither', rules: ['plain'], bodies: flapping },
];

/** One measurement: streams a second, and CPU time of service and database for one stream. */
interface Sample {
  per_second: number;
  service_us: number;
  mongod_us: number;
  /** Streams a second by those of the first case in the same round. */
  ratio: number;
}

async function main(environment: Environment): Promise<void> {
  const groups = [
    { number: calm_group, devices: calm_devices },
    ...(options.only === 'rules' ? [] : [{ number: storm_group, devices: options.devices }]),
  ];
  const fleet = await startFleet(environment, 'alarms', groups);
  if (options.only !== 'storm') await measureRules(fleet);
  if (options.only !== 'rules') await measureStorm(fleet);
}

/** Measures the cases in turns, so that what else the machine does meets all of them. */
async function measureRules(fleet: Fleet): Promise<void> {
  await createRules(fleet);
  const samples = new Map<Case, Sample[]>(cases.map((each) => [each, []]));
  for (let round = 0; round <= options.rounds; round++) {
    let reference = 0;
    for (const each of cases) {
      await enableRules(fleet, each.rules);
      const sample = await measureStreams(fleet, each.bodies);
      if (each.rules.length === 0) reference = sample.per_second;
      // the first round warms up
      if (round > 0) samples.get(each)?.push({ ...sample, ratio: sample.per_second / reference });
      printProgress(`${each.name}: ${sample.per_second.toFixed(0)}/s`);
    }
  }
  await enableRules(fleet, []);
  const table = [['rules', 'streams/s', 'ratio', 'CPU of the service, µs a stream', 'CPU of mongod, µs a stream']];
  for (const [{ name }, measured] of samples) {
    const middle = (key: keyof Sample, digits = 0) => median(measured.map((sample) => sample[key])).toFixed(digits);
    table.push([name, middle('per_second'), middle('ratio', 2), middle('service_us'), middle('mongod_us')]);
  }
  console.log(formatTable(table));
}

async function createRules({ client }: Fleet): Promise<void> {
  const hot = { path: 'temperature', op: '>', value: 80 };
  const rules = [
    ...numbered(max_rules - other_rules.length).map((name, index) => ({
      name,
      conditions: [
        { ...hot, value: 80 + index, clear: 70 },
        { path: 'humidity', op: '<', value: 5 },
      ],
      match: 'any',
    })),
    { name: 'clear', conditions: [{ ...hot, clear: 70 }] },
    { name: 'for', conditions: [hot], for: 60 },
    { name: 'plain', conditions: [hot] },
  ];
  for (const rule of rules)
    await client.send('POST', '/alarmrules/', {
      ...rule,
      severity: 'info',
      id_group: groupId(calm_group),
      enabled: false,
    });
}

/**
 * Enables rules in the database, so that they do not look at what is stored, and waits until the service knows it. Removes
 * what was left of others, whose records and marks would cost each stream a look-up.
 */
async function enableRules({ db }: Fleet, names: readonly string[]): Promise<void> {
  const rules = db.collection('alarmrules');
  await rules.updateMany({ name: { $in: [...names] } }, { $set: { enabled: true }, $inc: { version: 1 } });
  await rules.updateMany({ name: { $nin: [...names] } }, { $set: { enabled: false }, $inc: { version: 1 } });
  await sleep(2000);
  await db.collection('alarms').deleteMany({});
  await db.collection('devices').updateMany({ condition_met_at: { $gt: 0 } }, { $unset: { condition_met_at: 1 } });
}

async function measureStreams(fleet: Fleet, bodies: readonly string[]): Promise<Omit<Sample, 'ratio'>> {
  const before = await readCpu(fleet);
  const { per_second } = await send(fleet, bodies, { signal: AbortSignal.timeout(options.seconds * 1000) });
  const after = await readCpu(fleet);
  const streams = per_second * options.seconds;
  const cpuOf = (index: number) => (((after[index] ?? 0) - (before[index] ?? 0)) / streams) * 1e6;
  return { per_second, service_us: cpuOf(0), mongod_us: cpuOf(1) };
}

/** Sends streams of the devices outside the storm. @throws Error for an answer other than 200 */
function send(
  { key, service: { url } }: Fleet,
  bodies: readonly string[],
  limits: { signal: AbortSignal; per_second?: number },
): Promise<Throughput> {
  const headers = { 'service.apikey': key, 'content-type': 'application/json' };
  const paths = Array.from({ length: calm_devices }, (_, index) => `/devices/${deviceId(calm_group, index)}/streams/`);
  return postStreams({ url, headers, paths, bodies, connections, ...limits });
}

/** Lets all devices send without a rule, then with one whose threshold all of them cross. */
async function measureStorm(fleet: Fleet): Promise<void> {
  const head = ['streams', 'answered', 'all events listed', 'streams of others', 'p50 / p99, ms'];
  const table = [[...head, 'CPU of the service, s', 'CPU of mongod, s']];
  table.push(['without a rule', ...(await storm(fleet, 20, 0))]);
  const rule = { name: 'storm', severity: 'critical', conditions: [{ path: 'temperature', op: '>', value: 80 }] };
  const begun = performance.now();
  await fleet.client.send('POST', '/alarmrules/', { ...rule, id_group: groupId(storm_group) });
  await sleep(3000);
  while ((await fleet.db.collection('alarm_scans').estimatedDocumentCount()) > 0) await sleep(200);
  printProgress(`the rule has looked at all devices after ${((performance.now() - begun) / 1000).toFixed(1)} s`);
  table.push(['all raise an alarm', ...(await storm(fleet, 90, 1))]);
  table.push(['all close it', ...(await storm(fleet, 20, 2))]);
  console.log(formatTable(table));
  const { total_documents } = await fleet.client.send('GET', '/alarms/?state=closed&max=1');
  if (total_documents !== options.devices) throw new Error(`${total_documents} alarms are closed`);
}

/** Sends streams of all devices, 100 in a request, until they are answered and all events are in the log. */
async function storm(fleet: Fleet, temperature: number, eventsOfDevice: number): Promise<string[]> {
  const { client, db } = fleet;
  const done = new AbortController();
  const others = send(fleet, calm, { signal: done.signal, per_second: options.rate });
  // a failure ends the wait for the storm
  others.catch(() => done.abort());
  const before = await readCpu(fleet);
  const events = db.collection('events');
  const logged_before = await events.estimatedDocumentCount();
  const begun = performance.now();
  const seconds = () => (performance.now() - begun) / 1000;
  const waiting = Array.from({ length: Math.ceil(options.devices / 100) }, (_, index) => index * 100);
  const sender = async () => {
    for (let from = waiting.shift(); from !== undefined && !done.signal.aborted; from = waiting.shift()) {
      const first = from;
      const streams = Array.from({ length: Math.min(100, options.devices - from) }, (_, index) => ({
        device: decodeURIComponent(deviceId(storm_group, first + index)),
        data: { temperature },
      }));
      await client.send('POST', '/streams/', streams);
    }
  };
  await Promise.all(Array.from({ length: senders }, sender));
  const answered = `${seconds().toFixed(1)} s`;
  const wanted = eventsOfDevice * options.devices;
  const countAlarmEvents = () => events.countDocuments({ resource: 'alarm' });
  // most of the time without reading the log
  const areListed = async () =>
    eventsOfDevice === 0 ||
    ((await events.estimatedDocumentCount()) >= logged_before + options.devices &&
      (await countAlarmEvents()) >= wanted);
  while (!done.signal.aborted && !(await areListed())) {
    if (seconds() > storm_limit_s) throw new Error('the events are not in the log');
    await sleep(200);
  }
  const listed = `${seconds().toFixed(1)} s`;
  done.abort();
  const { per_second, p50_ms, p99_ms } = await others;
  const logged = await countAlarmEvents();
  if (logged !== wanted) throw new Error(`${logged} events instead of ${wanted} are in the log`);
  const cpu = (await readCpu(fleet)).map((after, index) => (after - (before[index] ?? 0)).toFixed(1));
  return [answered, listed, `${per_second.toFixed(0)}/s`, `${p50_ms.toFixed(1)} / ${p99_ms.toFixed(1)}`, ...cpu];
}

await withEnvironment(main);
