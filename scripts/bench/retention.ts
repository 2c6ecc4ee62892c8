import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import { openDatabase } from '../../src/db/open-database.js';
import { removeOldStreams } from '../../src/streams/retention.js';
import { copyStream } from '../support/stream-copies.js';
import { account, deviceId } from './data.js';
import { type Environment, parseCount, withEnvironment } from './environment.js';
import type { Throughput } from './load.js';
import { type Fleet, startFleet } from './loaded-fleet.js';
import { median, pairRatios } from './measure.js';
import { printProgress, startProgressBar } from './progress.js';
import { formatTable } from './report.js';
import { postStreams } from './stream-load.js';

interface Options {
  devices: number;
  each: number;
  rate: number;
  rounds: number;
  seconds: number;
}

const [old_group, speaking_group] = [0, 1];
const speaking_devices = 1000;
const connections = 64;
const kept_days = 30;
const old_at = 1_700_000_000;
const batch_size = 5000;
const streamBody = '{"data":{"temperature":21.5,"humidity":48,"battery_mv":3312,"flags":["ok"]}}';

const options = new Command('bench:retention')
  .description('Measures streams that are sent while old ones of other devices are removed, and without, in turn.')
  .option('--devices <n>', 'devices with old streams', parseCount, 50_000)
  .option('--each <n>', 'old streams of each of them', parseCount, 40)
  .option('--rate <n>', 'streams a second of the moderate load', parseCount, 500)
  .option('--rounds <n>', 'measurements of each', parseCount, 5)
  .option('--seconds <n>', 'length of a measurement', parseCount, 6)
  .parse()
  .opts<Options>();

async function main(environment: Environment): Promise<void> {
  const groups = [
    { number: old_group, devices: options.devices },
    { number: speaking_group, devices: speaking_devices },
  ];
  const fleet = await startFleet(environment, 'retention', groups);
  await loadOldStreams(fleet);
  await load(fleet, { seconds: 3 });
  const removal = await startRemoval(environment.mongod.uri('retention'));
  const table = [['load', 'without', 'while removing', 'ratio', 'p50 / p99, ms: without', 'while', 'removed a second']];
  for (const mode of [{ name: 'full' }, { name: `${options.rate}/s`, per_second: options.rate }])
    table.push(await compare(fleet, removal, mode));
  await removal.end();
  console.log(formatTable(table));
}

/** Inserts streams of the past, as copies of one that the service has stored. */
async function loadOldStreams({ client, db }: Fleet): Promise<void> {
  const sender = deviceId(old_group, 0);
  await client.send('POST', `/devices/${sender}/streams/`, { data: { temperature: 21.5, humidity: 48 } });
  const streams = db.collection('streams');
  const sample = await streams.findOne({ '_id.account': account, '_id.device': sender });
  if (sample === null) throw new Error(`the stream of ${sender} is not in the database`);
  const devices = db.collection('devices').find({ account }, { projection: { id_developer: 1 }, sort: { _id: 1 } });
  const bar = startProgressBar('old streams', options.devices * options.each);
  let batch: object[] = [];
  let count = 0;
  const insert = async () => {
    if (batch.length > 0) await streams.insertMany(batch, { ordered: false });
    count += batch.length;
    batch = [];
    bar.update(count);
  };
  for await (const { _id: parent, id_developer: device } of devices) {
    if (count + batch.length >= options.devices * options.each) break;
    for (let index = 0; index < options.each; index++)
      batch.push(copyStream(sample, { device, parent, at: old_at + index }));
    if (batch.length >= batch_size) await insert();
  }
  await insert();
  bar.stop();
}

/** The removal as another instance carries it out, which can be held. */
interface Removal {
  setHeld(value: boolean): void;
  /** All old streams are removed. */
  hasEnded(): boolean;
  end(): Promise<void>;
}

async function startRemoval(uri: string): Promise<Removal> {
  const log = { info() {}, warn() {}, error() {} };
  const db = openDatabase({ uri, log, maintenance: async () => undefined });
  await db.attempted;
  let isHeld = true;
  let hasEnded = false;
  const pace = {
    isLeaseHeld: () => !hasEnded,
    async pause(milliseconds: number) {
      await sleep(milliseconds);
      while (isHeld && !hasEnded) await sleep(20);
    },
  };
  const work = pace
    .pause(0)
    .then(() => removeOldStreams(db, kept_days, Date.now() / 1000, pace))
    .finally(() => {
      hasEnded = true;
    });
  return {
    setHeld(value) {
      isHeld = value;
    },
    hasEnded: () => hasEnded,
    async end() {
      hasEnded = true;
      await work;
      await db.close();
    },
  };
}

async function compare(fleet: Fleet, removal: Removal, mode: { name: string; per_second?: number }): Promise<string[]> {
  const without: Throughput[] = [];
  const meanwhile: Throughput[] = [];
  const removed: number[] = [];
  for (let round = 1; round <= options.rounds; round++) {
    without.push(await load(fleet, mode));
    const before = await fleet.db.collection('streams').estimatedDocumentCount();
    removal.setHeld(false);
    const sample = await load(fleet, mode);
    removal.setHeld(true);
    meanwhile.push(sample);
    const after = await fleet.db.collection('streams').estimatedDocumentCount();
    if (removal.hasEnded()) throw new Error('there are too few old streams: --devices, --each');
    removed.push((before + sample.requests - after) / options.seconds);
    printProgress(`${mode.name} ${round}/${options.rounds}: ${format(without.at(-1))}, ${format(meanwhile.at(-1))}`);
  }
  const medianOf = (samples: readonly Throughput[], key: keyof Throughput) => median(samples.map((each) => each[key]));
  const rates = [without, meanwhile].map((samples) => medianOf(samples, 'per_second'));
  const latencies = [without, meanwhile].map((samples) =>
    [medianOf(samples, 'p50_ms'), medianOf(samples, 'p99_ms')].map((value) => value.toFixed(1)).join(' / '),
  );
  const ratios = pairRatios(meanwhile, without);
  const range = `${Math.min(...ratios).toFixed(2)} … ${Math.max(...ratios).toFixed(2)}`;
  return [
    mode.name,
    ...rates.map((rate) => `${Math.round(rate)}/s`),
    `${median(ratios).toFixed(2)} (${range})`,
    ...latencies,
    String(Math.round(median(removed))),
  ];
}

const format = (sample: Throughput | undefined) =>
  `${Math.round(sample?.per_second ?? 0)}/s, p50 ${sample?.p50_ms.toFixed(1)} ms, p99 ${sample?.p99_ms.toFixed(1)} ms`;

function load(
  { service, key }: Fleet,
  { per_second, seconds = options.seconds }: { per_second?: number; seconds?: number },
): Promise<Throughput> {
  const paths = Array.from(
    { length: speaking_devices },
    (_, index) => `/devices/${encodeURIComponent(deviceId(speaking_group, index))}/streams/`,
  );
  return postStreams({
    ...{ url: service.url, headers: { 'service.apikey': key }, paths, bodies: [streamBody], connections },
    ...(per_second !== undefined && { per_second }),
    signal: AbortSignal.timeout(seconds * 1000),
  });
}

await withEnvironment(main);
