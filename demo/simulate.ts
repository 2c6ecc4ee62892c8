import { randomUUID } from 'node:crypto';
import { realpathSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { Command, InvalidArgumentError } from 'commander';
import {
  createMqttOption,
  describeFailure,
  resolveBroker,
  resolveService,
  type ServiceOptions,
  withServiceOptions,
} from '../src/cli/service-options.js';
import { runInParallel } from '../src/lib/parallel.js';
import { createApiClient, type Send, sendOrThrow } from './api-client.js';
import {
  concurrency,
  createTopic,
  ensureDevices,
  openConnections,
  reportStatus,
  type SimulatedDevice,
  takeMeasurement,
} from './simulated-devices.js';

export interface SimulationOptions {
  /** The service's {base_url}. */
  url: string;
  /** An API key of scope `write` or `admin`. */
  key: string;
  /** URL of the broker, such as `mqtt://127.0.0.1:1883`. */
  mqtt: string;
  devices: number;
  /** Streams per second of all devices together. */
  rate: number;
  /** Share of the streams sent over HTTP, 0 to 1; with 1 no broker is needed. */
  http_share: number;
  /** Duration; undefined: until `signal`. */
  seconds: number | undefined;
  /** Ends the simulation early. */
  signal: AbortSignal;
  /** Prints a line. */
  print: (line: string) => void;
  /** Replaces the progress line, every second. */
  showProgress: (line: string) => void;
}

/** Counts of streams. */
export interface Totals {
  sent: number;
  acknowledged: number;
  failed: number;
  /** Acknowledged, but not listed at the end. */
  missing: number;
}

interface Publisher {
  totals: Totals;
  /** Sends the next stream of a device. */
  publish(device: SimulatedDevice): void;
  /** Waits for the streams in flight, up to 10 s. */
  drain(): Promise<void>;
  /** Formats counts and latencies. */
  summarize(): string;
}

const statuses = ['ok', 'no_data', 'no_status', 'disconnected'] as const;
const send_interval_ms = 20;
/** One of so many streams of a device is a status stream. */
const status_interval = 10;
const max_latencies = 10_000;
const drain_timeout_ms = 10_000;

/**
 * Simulates devices of the group "Simulator", which are created if necessary, and looks at the end for every acknowledged
 * stream. @throws Error with a message of one line: service or broker is unreachable, or rejects a request
 */
export async function simulate(options: SimulationOptions): Promise<Totals> {
  const { rate, seconds = Number.POSITIVE_INFINITY, signal, print, showProgress } = options;
  const send = createApiClient(options.url, options.key);
  // of the service's clock, which may differ from the local one; Date has whole seconds
  const started_at = Math.floor(Date.parse((await send('GET', '/projects/?max=1')).date) / 1000) - 1;
  const { id_group, devices } = await ensureDevices(send, options.devices);
  print(`${devices.length} devices in group ${id_group}, ${devices.filter(({ isNew }) => isNew).length} of them new`);
  const run = randomUUID();
  const { totals, publish, drain, summarize } = createPublisher(send, run, options.http_share);
  let statusCounts = '';
  let progressTimer: NodeJS.Timeout | undefined;
  try {
    const connectingSince = performance.now();
    if (options.http_share < 1) {
      await openConnections(devices, options, send);
      print(`${devices.length} devices connected in ${((performance.now() - connectingSince) / 1000).toFixed(1)} s`);
    }
    progressTimer = setInterval(async () => {
      showProgress(`${summarize()}${statusCounts}`);
      statusCounts = await countStatuses(send, id_group).catch(() => statusCounts);
    }, 1000);
    const startedAt = performance.now();
    for (
      let elapsed_s = 0;
      !signal.aborted && elapsed_s < seconds;
      elapsed_s = (performance.now() - startedAt) / 1000
    ) {
      const due = Math.floor(elapsed_s * rate);
      while (totals.sent < due) {
        const device = devices[totals.sent % devices.length];
        if (device !== undefined) publish(device);
      }
      await sleep(send_interval_ms);
    }
    await drain();
  } finally {
    clearInterval(progressTimer);
    for (const { client } of devices) client?.end(true);
  }
  print(`${summarize()}${await countStatuses(send, id_group)}`);
  await runInParallel(devices, concurrency, async (device) => {
    const missing = await countMissing(send, device, run, started_at);
    totals.missing += missing;
  });
  const { acknowledged, missing } = totals;
  print(
    missing === 0
      ? `all ${acknowledged} acknowledged streams are in the database`
      : `${missing} of ${acknowledged} acknowledged streams are missing`,
  );
  return totals;
}

function createPublisher(send: Send, run: string, http_share: number): Publisher {
  const totals: Totals = { sent: 0, acknowledged: 0, failed: 0, missing: 0 };
  const latencies_ms: number[] = [];
  const inFlight = new Set<Promise<void>>();

  async function sendStream(device: SimulatedDevice, seq: number): Promise<void> {
    const type = device.streamCount++ % status_interval === 0 ? 'sta' : 'str';
    const data = { run, seq, ...(type === 'str' ? takeMeasurement(device) : reportStatus(device)) };
    const startedAt = performance.now();
    try {
      if (device.client === undefined || Math.random() < http_share)
        await sendOrThrow(send, 'POST', streamsPath(device), { _t: type, data });
      else
        await device.client.publishAsync(
          createTopic(device.id, type === 'str' ? 'streams' : 'status'),
          JSON.stringify({ data }),
          { qos: 1 },
        );
      totals.acknowledged++;
      device.acknowledged.push(seq);
      latencies_ms[totals.acknowledged % max_latencies] = performance.now() - startedAt;
    } catch {
      totals.failed++;
    }
  }

  return {
    totals,
    publish(device) {
      const sending: Promise<void> = sendStream(device, totals.sent++).finally(() => inFlight.delete(sending));
      inFlight.add(sending);
    },
    async drain() {
      await Promise.race([Promise.all(inFlight), sleep(drain_timeout_ms, undefined, { ref: false })]);
    },
    summarize() {
      const [p50, p99] = computePercentiles(latencies_ms);
      const { sent, acknowledged, failed } = totals;
      const counts = `sent ${sent}, acknowledged ${acknowledged}${failed > 0 ? `, failed ${failed}` : ''}`;
      return `${counts}, p50 ${p50} ms, p99 ${p99} ms`;
    },
  };
}

function computePercentiles(latencies_ms: readonly number[]): [p50: string, p99: string] {
  const sorted = latencies_ms.filter((latency) => latency !== undefined).toSorted((a, b) => a - b);
  const percentile = (share: number) => (sorted[Math.floor(sorted.length * share)] ?? 0).toFixed(1);
  return [percentile(0.5), percentile(0.99)];
}

async function countStatuses(send: Send, id_group: string): Promise<string> {
  const counts = await Promise.all(
    statuses.map(async (status) => {
      const path = `/devices/?status=${status}&max=1&id_group=${encodeURIComponent(id_group)}`;
      return `${(await sendOrThrow(send, 'GET', path)).total_documents} ${status}`;
    }),
  );
  return `; ${counts.join(', ')}`;
}

function streamsPath({ id }: SimulatedDevice): string {
  return `/devices/${encodeURIComponent(id)}/streams/`;
}

/** Counts the acknowledged streams of a device that are not listed. */
async function countMissing(send: Send, device: SimulatedDevice, run: string, started_at: number): Promise<number> {
  const missing = new Set<unknown>(device.acknowledged);
  for (let offset = 0; missing.size > 0; offset += 1000) {
    const path = `${streamsPath(device)}?created_at_from=${started_at}&offset=${offset}`;
    const { result = [] } = await sendOrThrow(send, 'GET', path);
    for (const { data } of result as { data?: { run?: string; seq?: number } }[])
      if (data?.run === run) missing.delete(data.seq);
    if (result.length < 1000) break;
  }
  return missing.size;
}

/** Creates a parser of numbers within limits. */
function numberBetween(min: number, max: number, isWhole: boolean) {
  return (text: string) => {
    const value = /^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN;
    if (value >= min && value <= max && (!isWhole || Number.isInteger(value))) return value;
    throw new InvalidArgumentError(`must be ${isWhole ? 'a whole number' : 'a number'} from ${min} to ${max}.`);
  };
}

async function main(): Promise<void> {
  const program = withServiceOptions(new Command('simulate'), 'write or admin')
    .description('Simulates devices over MQTT and HTTP, and looks for every acknowledged stream at the end.')
    .addOption(createMqttOption())
    .option('--devices <n>', 'number of devices', numberBetween(1, 99_999, true), 200)
    .option('--rate <n>', 'streams per second of all devices together', numberBetween(0.1, 100_000, false), 50)
    .option('--seconds <n>', 'duration (default: until Ctrl-C)', numberBetween(1, 1e9, false))
    .option('--http-share <share>', 'share of the streams sent over HTTP, 0 to 1', numberBetween(0, 1, false), 0.2)
    .parse();
  const { mqtt, httpShare, seconds, devices, rate } = program.opts<
    ServiceOptions & { mqtt?: string; devices: number; rate: number; seconds?: number; httpShare: number }
  >();
  const interrupt = new AbortController();
  process.once('SIGINT', () => interrupt.abort());
  const { stdout } = process;
  let progressCount = 0;
  try {
    const { missing } = await simulate({
      ...resolveService(program.opts(), process.env),
      mqtt: httpShare < 1 ? resolveBroker(mqtt, process.env) : '',
      devices,
      rate,
      http_share: httpShare,
      seconds,
      signal: interrupt.signal,
      print: (line) => stdout.write(`${stdout.isTTY ? '\r\x1b[K' : ''}${line}\n`),
      showProgress(line) {
        if (stdout.isTTY) stdout.write(`\r\x1b[K${line.slice(0, stdout.columns - 1)}`);
        else if (++progressCount % 5 === 0) stdout.write(`${line}\n`);
      },
    });
    process.exitCode = missing === 0 ? 0 : 1;
  } catch (error) {
    program.error(`simulate: ${describeFailure(error)}`);
  }
}

const [, entry = ''] = process.argv;
if (entry !== '' && import.meta.url === pathToFileURL(realpathSync(entry)).href) await main();
