import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import { account, deviceId, groupId, waitUntilLogged } from './data.js';
import { type Environment, parseCount, withEnvironment } from './environment.js';
import type { Throughput } from './load.js';
import { type Fleet, readCpu, startFleet } from './loaded-fleet.js';
import { printProgress } from './progress.js';
import { formatTable } from './report.js';
import { postStreams } from './stream-load.js';

interface Options {
  devices: number;
  rate: number;
  seconds: number;
  only: string[];
}

/** A kind of load that is measured before and during the silence. */
interface Mode {
  name: string;
  connections: number;
  per_second?: number;
}

/** One row of the table. */
interface Result {
  mode: Mode;
  /** From the deadline until all events are listed. */
  listed_s: number;
  before: Throughput;
  meanwhile: Throughput;
  /** CPU time until then, streams included. */
  service_cpu_s: number;
  mongod_cpu_s: number;
}

const [silent_group, speaking_group] = [0, 1];
const speaking_devices = 1000;
const period_min = 60;
const max_listed_s = 30;
const listing_timeout_s = 180;
const streamBody = '{"data":{"temperature":21.5,"humidity":48,"battery_mv":3312,"flags":["ok"]}}';

const options = new Command('bench:silence')
  .description(
    'Measures the events of devices that all fall silent at the same moment, and streams of others meanwhile.',
  )
  .option('--devices <n>', 'devices that fall silent', parseCount, 100_000)
  .option('--rate <n>', 'streams a second of the moderate load', parseCount, 200)
  .option('--seconds <n>', 'length of the measurement before', parseCount, 15)
  .option('--only <loads>', 'none, moderate, full', (text) => text.split(','), ['none', 'moderate', 'full'])
  .parse()
  .opts<Options>();

const allModes: Mode[] = [
  { name: 'none', connections: 0 },
  { name: 'moderate', connections: 32, per_second: options.rate },
  { name: 'full', connections: 32 },
];
const modes = allModes.filter(({ name }) => options.only.includes(name));

async function main(environment: Environment): Promise<void> {
  const groups = [
    { number: silent_group, devices: options.devices },
    { number: speaking_group, devices: speaking_devices },
  ];
  const fleet = await startFleet(environment, 'silence', groups);
  // first streams of devices are status changes too
  await load(fleet, { name: 'warm', connections: 32 }, AbortSignal.timeout(3000));
  const table = [
    [
      'streams meanwhile',
      'events listed after',
      'goal',
      'streams before',
      'meanwhile',
      'p50 / p99, ms: before',
      'meanwhile',
    ],
  ];
  for (const mode of modes) table.push(formatResult(await measure(fleet, mode)));
  console.log(formatTable(table));
}

/** Lets all silent devices pass their deadline at one moment, with a load before and after it. */
async function measure(fleet: Fleet, mode: Mode): Promise<Result> {
  const { db } = fleet;
  await setDeadline(fleet, Date.now() / 1000 + 3600);
  await waitUntilLogged(db);
  const before = await load(fleet, mode, AbortSignal.timeout(options.seconds * 1000));
  const listed = await countListed(fleet);
  const stored = await db.collection('events').estimatedDocumentCount();
  // the deadlines are written before they pass
  const deadline = Math.ceil(Date.now() / 1000) + 15;
  await setDeadline(fleet, deadline);
  if (Date.now() > deadline * 1000) throw new Error('the deadlines took too long to write');
  await sleep(deadline * 1000 - Date.now());
  const cpuAtDeadline = await readCpu(fleet);
  const { listed_s, meanwhile } = await measureSilence(fleet, mode, deadline, {
    stored: stored + options.devices,
    listed: listed + options.devices,
  });
  const cpuAtEnd = await readCpu(fleet);
  const cpuOf = (index: number) => (cpuAtEnd[index] ?? 0) - (cpuAtDeadline[index] ?? 0);
  const result = { mode, listed_s, before, meanwhile, service_cpu_s: cpuOf(0), mongod_cpu_s: cpuOf(1) };
  const cpu = `CPU of service ${result.service_cpu_s.toFixed(1)} s, of mongod ${result.mongod_cpu_s.toFixed(1)} s`;
  printProgress(`${mode.name}: ${listed_s.toFixed(1)} s, ${cpu}`);
  return result;
}

/** Loads the service until all events are listed. */
async function measureSilence(fleet: Fleet, mode: Mode, deadline: number, wanted: { stored: number; listed: number }) {
  const done = new AbortController();
  const listing = waitForEvents(fleet, wanted)
    .then(() => Date.now() / 1000 - deadline)
    .finally(() => done.abort());
  const [listed_s, meanwhile] = await Promise.all([listing, load(fleet, mode, done.signal)]);
  return { listed_s, meanwhile };
}

/** Lets all silent devices be in time until `deadline` (epoch seconds), as a stream an hour before would have. */
async function setDeadline({ db }: Fleet, deadline: number): Promise<void> {
  const set = {
    frequency_stream: period_min,
    last_stream_at: deadline - period_min * 60,
    stream_due_at: deadline,
    stream_safe_until: deadline,
    stream_late_from: deadline + period_min * 30,
    stream_late: false,
  };
  await db
    .collection('devices')
    .updateMany({ account, id_group: groupId(silent_group) }, { $set: set, $unset: { stream_missed_at: '' } });
}

const silenced = `/events/?type=device.status_changed&id_group=${encodeURIComponent(groupId(silent_group))}&max=1`;

async function countListed({ client }: Fleet): Promise<number> {
  return Number((await client.send('GET', silenced)).total_documents);
}

/** Waits until so many events are listed. Asks the service only when the database has as many. */
async function waitForEvents(fleet: Fleet, wanted: { stored: number; listed: number }): Promise<void> {
  const events = fleet.db.collection('events');
  for (const end = Date.now() + listing_timeout_s * 1000; Date.now() < end; await sleep(200)) {
    if ((await events.estimatedDocumentCount()) < wanted.stored) continue;
    const total = await countListed(fleet);
    if (total > wanted.listed) throw new Error(`${total} events instead of ${wanted.listed} are listed`);
    if (total === wanted.listed) return;
  }
  throw new Error(`${await countListed(fleet)} of ${wanted.listed} events are listed after ${listing_timeout_s} s`);
}

async function load({ service, key }: Fleet, mode: Mode, signal: AbortSignal): Promise<Throughput> {
  const paths = Array.from(
    { length: speaking_devices },
    (_, index) => `/devices/${deviceId(speaking_group, index)}/streams/`,
  );
  const headers = { 'service.apikey': key, 'content-type': 'application/json' };
  return postStreams({ ...mode, url: service.url, headers, paths, bodies: [streamBody], signal });
}

function formatResult({ mode, listed_s, before, meanwhile }: Result): string[] {
  const rate = ({ per_second }: Throughput) => (mode.connections > 0 ? `${per_second.toFixed(0)}/s` : '');
  const latency = ({ p50_ms, p99_ms }: Throughput) =>
    mode.connections > 0 ? `${p50_ms.toFixed(1)} / ${p99_ms.toFixed(1)}` : '';
  const goal = `≤ ${max_listed_s} s`;
  return [
    mode.name,
    `${listed_s.toFixed(1)} s`,
    goal,
    rate(before),
    rate(meanwhile),
    latency(before),
    latency(meanwhile),
  ];
}

await withEnvironment(main);
