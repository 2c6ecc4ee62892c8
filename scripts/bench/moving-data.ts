import { Command } from 'commander';
import mongoose, { type mongo } from 'mongoose';
import { startProcess } from '../support/service-process.js';
import { account, deviceId } from './data.js';
import { type Environment, parseCount, withEnvironment } from './environment.js';
import { startFleet } from './loaded-fleet.js';
import { median } from './measure.js';
import { readCpuSeconds, readPeakMib, resetPeakMemory } from './process.js';
import { printProgress, startProgressBar } from './progress.js';
import { formatTable } from './report.js';
import type { Server } from './server.js';

interface Options {
  streams: number;
  devices: number;
  rounds: number;
}

const options = new Command('bench:data')
  .description('Measures series and exports of the streams of one device, and pages of all devices by `after`.')
  .option('--streams <n>', 'streams of one device', parseCount, 1_000_000)
  .option('--devices <n>', 'devices in all', parseCount, 1_000_000)
  .option('--rounds <n>', 'measurements of each', parseCount, 3)
  .parse()
  .opts<Options>();

const { Double, Long } = mongoose.mongo;

const batch_size = 5000;
const page_size = 1000;
const pages_per_round = 10;
/** Time between two streams. */
const period_s = 10;
const first_at = 1_700_000_000;
const device = deviceId(0, 0);

/** Inserts streams of one device as the ingest stores them. */
async function loadStreams(db: mongo.Db): Promise<void> {
  const streams = db.collection<mongo.Document>('streams');
  const parent = (await db.collection('devices').findOne({ account, id_developer: device }))?._id;
  const bar = startProgressBar('streams', options.streams);
  let at = first_at;
  const round = (value: number) => Math.round(value * 100) / 100;
  for (let done = 0; done < options.streams; done += batch_size) {
    const batch = Array.from({ length: Math.min(batch_size, options.streams - done) }, (_, index) => {
      at = first_at + (done + index) * period_s;
      const data = {
        temperature_c: round(12 + 6 * Math.sin((at / 86_400) * 2 * Math.PI) + Math.random()),
        wind_m_s: round(4 + 3 * Math.random()),
        state: 'ok',
      };
      const _id = { account, device, at: new Double(at), n: Long.fromNumber(at * 1000).shiftLeft(20) };
      return { _id: _id as never, parent, _t: 'str', protocol: 'mqtt', data, owner: 'admin' };
    });
    await streams.insertMany(batch, { ordered: false, forceServerObjectId: true });
    bar.update(done + batch.length);
  }
  bar.stop();
}

/** Time, bytes, and what an answer cost the service. */
interface Cost {
  ms: number;
  bytes: number;
  cpu_ms: number;
  /** Peak of the resident memory above that before. */
  memory_mib: number;
}

async function measure({ url, pid }: Server, path: string, headers: Record<string, string>): Promise<Cost> {
  await resetPeakMemory(pid);
  const [memory_before, cpu_before] = await Promise.all([readPeakMib(pid), readCpuSeconds(pid)]);
  const { PATH, HOME } = process.env;
  const args = ['dist/scripts/bench/byte-counter.js', url + path, JSON.stringify(headers)];
  const counter = startProcess(process.execPath, args, { env: { PATH, HOME } });
  await counter.ended;
  const { status, bytes, ms } = JSON.parse(counter.out() || '{}');
  if (status !== 200) throw new Error(`${path}: ${status ?? 'no answer'}`);
  const cpu_ms = ((await readCpuSeconds(pid)) - cpu_before) * 1000;
  return { ms, bytes, cpu_ms, memory_mib: (await readPeakMib(pid)) - memory_before };
}

const medianCost = (costs: readonly Cost[]): Cost => {
  const of = (key: keyof Cost) => median(costs.map((cost) => cost[key]));
  return {
    ms: of('ms'),
    bytes: of('bytes'),
    cpu_ms: of('cpu_ms'),
    memory_mib: Math.max(...costs.map((c) => c.memory_mib)),
  };
};

async function repeat(work: () => Promise<Cost>): Promise<Cost> {
  await work();
  const costs: Cost[] = [];
  for (let round = 0; round < options.rounds; round++) costs.push(await work());
  return medianCost(costs);
}

async function measureStreams(service: Server, headers: Record<string, string>): Promise<void> {
  const streams = `/devices/${encodeURIComponent(device)}`;
  const span = `at_from=${first_at}&at_to=${first_at + options.streams * period_s}`;
  const series = await repeat(() =>
    measure(service, `${streams}/series/?fields=temperature_c&points=500&${span}`, headers),
  );
  console.log(
    `series of ${options.streams} streams with 500 points: ${formatCost(series).slice(0, 2).join(', ')} MiB more`,
  );
  const table = [['export of streams', 'time', 'memory (MiB)', 'rows/s', 'CPU per row', 'bytes per row']];
  for (const format of ['csv', 'ndjson'])
    for (const encoding of [undefined, 'gzip']) {
      const accepted = { ...headers, ...(encoding && { 'accept-encoding': encoding }) };
      const cost = await repeat(() => measure(service, `${streams}/streams/?format=${format}`, accepted));
      const row = [`${format}${encoding === undefined ? '' : ` with ${encoding}`}`, ...formatCost(cost)];
      printProgress(row.join('  '));
      table.push(row);
    }
  console.log(formatTable(table));
}

function formatCost({ ms, bytes, cpu_ms, memory_mib }: Cost): string[] {
  const rows = options.streams;
  return [
    `${(ms / 1000).toFixed(2)} s`,
    memory_mib.toFixed(0),
    Math.round((rows / ms) * 1000).toString(),
    `${((cpu_ms / rows) * 1000).toFixed(1)} µs`,
    (bytes / rows).toFixed(0),
  ];
}

async function measurePages({ url }: Server, headers: Record<string, string>): Promise<void> {
  const fetchPage = async (after: string) => {
    const startedAt = performance.now();
    const response = await fetch(`${url}/devices/?max=${page_size}&after=${encodeURIComponent(after)}`, { headers });
    const { next = '0', result } = (await response.json()) as { next?: string; result: unknown[] };
    if (result.length !== page_size) throw new Error(`a page after ${after} has ${result.length} devices`);
    return { next, ms: performance.now() - startedAt };
  };
  const positions = {
    start: '0',
    middle: deviceId(0, Math.floor(options.devices / 2)),
    end: deviceId(0, options.devices - (pages_per_round + 1) * page_size),
  };
  const samples = new Map<string, number[]>(Object.keys(positions).map((name) => [name, []]));
  for (let round = -1; round < options.rounds; round++)
    for (const [name, position] of Object.entries(positions)) {
      let after = position;
      for (let page = 0; page < pages_per_round; page++) {
        const { next, ms } = await fetchPage(after);
        after = next;
        if (round >= 0) samples.get(name)?.push(ms);
      }
    }
  const start_ms = median(samples.get('start') ?? []);
  const table = [[`page of ${page_size} of ${options.devices} devices`, 'time', 'ratio']];
  for (const [name, times] of samples)
    table.push([name, `${median(times).toFixed(1)} ms`, (median(times) / start_ms).toFixed(2)]);
  console.log(formatTable(table));
}

async function main(environment: Environment): Promise<void> {
  const { service, db, key } = await startFleet(environment, 'data', [{ number: 0, devices: options.devices }]);
  await loadStreams(db);
  const headers = { 'service.apikey': key };
  await measureStreams(service, headers);
  await measurePages(service, headers);
}

await withEnvironment(main);
