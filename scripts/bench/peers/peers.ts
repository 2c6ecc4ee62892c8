import { execFileSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import { createRandom } from '../../../tests/support/random.js';
import { type Environment, parseCount, withEnvironment } from '../environment.js';
import { median } from '../measure.js';
import { printProgress } from '../progress.js';
import { formatTable } from '../report.js';
import { startInfluxdb } from './influxdb.js';
import { type Peer, queryNames, type Subject } from './peer.js';
import { startPostgresql } from './postgresql.js';
import { startPlatform } from './service.js';
import {
  begin_at,
  createBatches,
  createTrucks,
  fleets,
  rows_per_entry,
  type Truck,
  values_per_entry,
} from './trucks.js';

interface Options {
  trucks: number;
  minutes: number;
  rounds: number;
  only: string[];
}

const seed = 1;
const settle_ms = 5000;
const peerNames = ['http', 'mqtt', 'influxdb', 'postgresql'];

const options = new Command('bench:peers')
  .description(
    'Loads the messages of trucks into this service, InfluxDB 1.6 and PostgreSQL 15, and asks each the same.',
  )
  .option('--trucks <n>', 'trucks, each with a message every 10 s', parseCount, 4000)
  .option('--minutes <n>', 'length of what they send', parseCount, 60)
  .option('--rounds <n>', 'measurements of each query', parseCount, 11)
  .option('--only <peers>', peerNames.join(), (text) => text.split(','), peerNames)
  .parse()
  .opts<Options>();

const programs: Readonly<Record<string, string>> = {
  influxdb: 'influxd',
  postgresql: '/usr/lib/postgresql/15/bin/postgres',
};

function isInstalled(program: string | undefined): boolean {
  if (program === undefined) return true;
  try {
    execFileSync('which', [program], { stdio: 'ignore' });
    return true;
  } catch {
    printProgress(`skipped: ${program} is not installed`);
    return false;
  }
}

async function main(environment: Environment): Promise<void> {
  const trucks = createTrucks(options.trucks);
  const [truck] = trucks;
  if (truck === undefined) throw new Error('there are no trucks');
  const subject = { fleet: fleets[0], truck, from: begin_at, to: begin_at + options.minutes * 60 - 1 };
  const table = [
    ['', 'rows/s', 'CPU, µs per row', 'bytes per value', ...queryNames.map((name) => `${name}, ms (rows)`)],
  ];
  for (const name of options.only.filter((candidate) => isInstalled(programs[candidate])))
    table.push(await measure(await start(name, environment, trucks, subject), trucks));
  console.log(formatTable(table));
}

function start(name: string, environment: Environment, trucks: readonly Truck[], subject: Subject): Promise<Peer> {
  if (name === 'influxdb') return startInfluxdb(environment.folder, subject);
  if (name === 'postgresql') return startPostgresql(environment.folder, trucks, subject);
  return startPlatform(environment, trucks, subject, name === 'http' ? 'HTTP' : 'MQTT');
}

async function measure(peer: Peer, trucks: readonly Truck[]): Promise<string[]> {
  try {
    let entries = 0;
    const batches = function* () {
      for (const batch of createBatches(trucks, options.minutes * 60, createRandom(seed))) {
        entries += batch.length;
        yield batch;
      }
    };
    const cpuBefore = await peer.readCpu();
    const begun_at = performance.now();
    await peer.load(batches());
    const seconds = (performance.now() - begun_at) / 1000;
    await sleep(settle_ms);
    const cpu_s = (await peer.readCpu()) - cpuBefore;
    const rows = entries * rows_per_entry;
    printProgress(`${peer.name}: ${rows} rows in ${seconds.toFixed(1)} s`);
    const answers: string[] = [];
    for (const query of queryNames) {
      await peer.ask(query);
      const samples = [];
      for (let round = 0; round < options.rounds; round++) samples.push(await peer.ask(query));
      const took_ms = median(samples.map((sample) => sample.took_ms));
      answers.push(`${took_ms.toFixed(1)} (${samples[0]?.rows})`);
    }
    const bytes = await peer.measureSize();
    return [
      peer.name,
      String(Math.round(rows / seconds)),
      ((cpu_s * 1e6) / rows).toFixed(1),
      (bytes / (entries * values_per_entry)).toFixed(1),
      ...answers,
    ];
  } finally {
    await peer.stop();
  }
}

await withEnvironment(main);
