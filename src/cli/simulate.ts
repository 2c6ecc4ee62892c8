import { createHmac, randomUUID } from 'node:crypto';
import { realpathSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { Command, InvalidArgumentError, Option } from 'commander';
import { connectAsync, type MqttClient } from 'mqtt';

export interface Simulation {
  /** The service's {base_url}. */
  url: string;
  /** An API key of scope `write` or `admin`. */
  key: string;
  /** Where the broker listens, such as `mqtt://127.0.0.1:1883`. */
  mqtt: string;
  devices: number;
  /** Streams per second of the whole fleet. */
  rate: number;
  /** The part of the streams that goes over HTTP, 0 to 1; with 1 no broker is needed. */
  http_share: number;
  /** How long streams are sent; until `signal` where undefined. */
  seconds: number | undefined;
  /** Ends the run early. */
  signal: AbortSignal;
  /** A line that stays. */
  say: (line: string) => void;
  /** How things stand, every second. */
  progress: (line: string) => void;
}

/** What was sent and what became of it. */
export interface Totals {
  sent: number;
  acknowledged: number;
  failed: number;
  /** Acknowledged, but not in the database at the end. */
  missing: number;
}

const statuses = ['ok', 'no_data', 'no_status', 'disconnected'] as const;
const parallel = 8;
const tick_ms = 20;
/** Of a device's streams every tenth tells its status. */
const status_every = 10;
const latencies_kept = 10_000;
/** How long streams under way are waited for at the end. */
const drain_ms = 10_000;

interface Device {
  id: string;
  /** From an earlier run. */
  known: boolean;
  client: MqttClient | undefined;
  walk: Walk;
  count: number;
  acknowledged: number[];
}

/**
 * Runs a fleet of devices of the group "Simulator", created where it is missing, and looks at the end for every stream
 * that was acknowledged. @throws Error whose message is one line: the service or the broker is unreachable, or refuses
 */
export async function simulate(simulation: Simulation): Promise<Totals> {
  const { rate, http_share, seconds = Number.POSITIVE_INFINITY, signal, say, progress } = simulation;
  const send = requests(simulation);
  const { id_group, found } = await layOut(send, simulation.devices, say);
  const devices = found.map(
    (one): Device => ({ ...one, client: undefined, walk: newWalk(), count: 0, acknowledged: [] }),
  );
  const run = randomUUID();
  // the service's clock, not ours, and whole seconds
  const begun_at = Math.floor(Date.parse((await send('GET', '/projects/?max=1')).date) / 1000) - 1;
  const totals: Totals = { sent: 0, acknowledged: 0, failed: 0, missing: 0 };
  const latencies: number[] = [];
  const under_way = new Set<Promise<void>>();
  let fleet = '';

  async function publish(device: Device, seq: number): Promise<void> {
    const kind = device.count++ % status_every === 0 ? 'sta' : 'str';
    const data = { run, seq, ...(kind === 'str' ? stepOf(device.walk) : { battery_v: round(device.walk.battery_v) }) };
    const over_http = device.client === undefined || Math.random() < http_share;
    const begun = performance.now();
    totals.sent++;
    try {
      if (over_http) await send('POST', `/devices/${encodeURIComponent(device.id)}/streams/`, { _t: kind, data });
      else await device.client?.publishAsync(topicOf(device.id, kind), JSON.stringify({ data }), { qos: 1 });
      totals.acknowledged++;
      device.acknowledged.push(seq);
      latencies[totals.acknowledged % latencies_kept] = performance.now() - begun;
    } catch {
      totals.failed++;
    }
  }

  const summary = () => {
    const [p50, p99] = percentiles(latencies);
    const { sent, acknowledged, failed } = totals;
    const counts = `sent ${sent}, acknowledged ${acknowledged}${failed > 0 ? `, failed ${failed}` : ''}`;
    return `${counts}, p50 ${p50} ms, p99 ${p99} ms${fleet}`;
  };
  let showing: NodeJS.Timeout | undefined;
  try {
    if (http_share < 1) await connectAll(devices, simulation, send);
    showing = setInterval(async () => {
      progress(summary());
      fleet = await statusesOf(send, id_group).catch(() => fleet);
    }, 1000);
    const begun = performance.now();
    for (let elapsed = 0; !signal.aborted && elapsed < seconds; elapsed = (performance.now() - begun) / 1000) {
      const due = Math.floor(elapsed * rate);
      while (totals.sent < due) {
        const device = devices[totals.sent % devices.length];
        if (device === undefined) break;
        const publishing: Promise<void> = publish(device, totals.sent).finally(() => under_way.delete(publishing));
        under_way.add(publishing);
      }
      await sleep(tick_ms);
    }
    await Promise.race([Promise.all(under_way), sleep(drain_ms, undefined, { ref: false })]);
  } finally {
    clearInterval(showing);
    for (const { client } of devices) client?.end(true);
  }
  fleet = await statusesOf(send, id_group);
  say(summary());
  await inParallel(devices, async (device) => {
    const missing = await missingOf(send, device, run, begun_at);
    totals.missing += missing;
  });
  const { acknowledged, missing } = totals;
  say(
    missing === 0
      ? `all ${acknowledged} acknowledged streams are in the database`
      : `${missing} of ${acknowledged} acknowledged streams are missing`,
  );
  return totals;
}

/** A sensor's day: values that wander about as real ones do. */
interface Walk {
  temperature_c: number;
  humidity_percent: number;
  battery_v: number;
}

function newWalk(): Walk {
  return { temperature_c: 10 + Math.random() * 15, humidity_percent: 40 + Math.random() * 40, battery_v: 4.1 };
}

/** Moves a walk on by one step. @returns what the device tells of it */
function stepOf(walk: Walk): object {
  const drift = (Math.random() - 0.5) * 0.4;
  walk.temperature_c = Math.min(45, Math.max(-25, walk.temperature_c + drift));
  // warmer air is drier
  walk.humidity_percent = Math.min(100, Math.max(5, walk.humidity_percent - 2 * drift + (Math.random() - 0.5)));
  walk.battery_v = walk.battery_v < 3.4 ? 4.1 : walk.battery_v - Math.random() * 0.0005;
  return { temperature_c: round(walk.temperature_c), humidity_percent: round(walk.humidity_percent) };
}

const round = (value: number) => Math.round(value * 100) / 100;

/** Identifiers in topics are percent-encoded as far as topics need it (contract 9). */
function topicOf(id: string, kind: 'str' | 'sta'): string {
  const encoded = id.replaceAll(/[%/+#]/g, (mark) => `%${mark.charCodeAt(0).toString(16).toUpperCase()}`);
  return `${encoded}/${kind === 'str' ? 'streams' : 'status'}`;
}

function percentiles(latencies: readonly number[]): [p50: string, p99: string] {
  const sorted = latencies.filter((one) => one !== undefined).toSorted((a, b) => a - b);
  const at = (share: number) => (sorted[Math.floor(sorted.length * share)] ?? 0).toFixed(1);
  return [at(0.5), at(0.99)];
}

interface Reply {
  code?: number;
  details?: Record<string, unknown>;
  total_documents?: number;
  // lists hold devices, streams and others
  result?: { id_developer?: string; name?: string; data?: { run?: string; seq?: number } }[];
  location: string;
  date: string;
}
type Send = (method: string, path: string, body?: object) => Promise<Reply>;

/** @returns a function that throws Error for every answer but 200, save 4003, which tells what is there already */
function requests({ url, key }: Simulation): Send {
  const base = url.replace(/\/+$/, '');
  const headers = { 'service.apikey': key, accept: 'application/json', 'content-type': 'application/json' };
  return async (method, path, body) => {
    const response = await fetch(base + path, {
      method,
      headers,
      signal: AbortSignal.timeout(drain_ms),
      ...(body !== undefined && { body: JSON.stringify(body) }),
    }).catch((error: unknown) => {
      throw new Error(`${base} is unreachable: ${reasonOf(error)}`);
    });
    const text = await response.text();
    const refused = new Error(`${method} ${path} is refused: ${response.status} ${text.slice(0, 200)}`);
    if (response.status !== 200 && response.status !== 400) throw refused;
    const { location = '', date = '' } = Object.fromEntries(response.headers);
    const reply: Reply = { ...(JSON.parse(text) as object), location, date };
    if (response.status === 400 && (reply.code !== 4003 || path.endsWith('/streams/'))) throw refused;
    return reply;
  };
}

/** fetch hides the reason in its cause. */
function reasonOf(error: unknown): string {
  const { cause = error } = error instanceof Error ? error : {};
  return cause instanceof Error ? cause.message || cause.name : String(cause);
}

async function inParallel<T>(items: Iterable<T>, work: (item: T) => Promise<void>): Promise<void> {
  const queue = (function* () {
    yield* items;
  })();
  await Promise.all(
    Array.from({ length: parallel }, async () => {
      for (const item of queue) await work(item);
    }),
  );
}

const name = 'Simulator';

/** Project, service, group and devices: what is there is used, what is missing is made. */
async function layOut(send: Send, count: number, say: Simulation['say']) {
  const ensure = async (plural: string, fields: object) => {
    const made = await send('POST', `/${plural}/`, { name, ...fields });
    if (made.code === 2001) return idOf(made);
    const found = await send('GET', `/${plural}/?name=${name}`);
    const id = found.result?.[0]?.id_developer;
    if (id === undefined) throw new Error(`cannot create ${plural} ${name}: ${JSON.stringify(made.details)}`);
    return id;
  };
  const id_project = await ensure('projects', { id_customer: 'simulator' });
  const id_service = await ensure('services', { id_project });
  const id_group = await ensure('groups', { id_service });
  const names = Array.from({ length: count }, (_, index) => `simulator-${String(index + 1).padStart(5, '0')}`);
  const ids = new Map<string, string>();
  for (let offset = 0; ; offset += 1000) {
    const { result = [] } = await send('GET', `/groups/${encodeURIComponent(id_group)}/devices/?offset=${offset}`);
    for (const device of result) if (device.name && device.id_developer) ids.set(device.name, device.id_developer);
    if (result.length < 1000) break;
  }
  const missing = names.filter((one) => !ids.has(one));
  await inParallel(missing, async (one) => {
    const fields = { type: 'simulator', sensor: 'air_temperature', frequency_stream: 1, frequency_status: 5 };
    const made = await send('POST', '/devices/', { name: one, id_group, ...fields });
    if (made.code !== 2001) throw new Error(`cannot create device ${one}: ${JSON.stringify(made.details)}`);
    ids.set(one, idOf(made));
  });
  say(`${count} devices in group ${id_group}, ${missing.length} of them new`);
  const made = new Set(missing);
  return { id_group, found: names.map((one) => ({ id: ids.get(one) ?? '', known: !made.has(one) })) };
}

function idOf({ location }: Reply): string {
  return decodeURIComponent(location.replace(/\/$/, '').replace(/.*\//, ''));
}

/** Connects every device, with credentials from an earlier run where they are still good. */
async function connectAll(devices: readonly Device[], simulation: Simulation, send: Send): Promise<void> {
  const { key, mqtt, say, signal } = simulation;
  const begun = performance.now();
  await inParallel(devices, async (device) => {
    if (signal.aborted) return;
    const { id } = device;
    // the same in every run with this key, and not to be guessed without it
    const password = createHmac('sha256', key).update(id).digest('base64url');
    const options = { username: id, password, clientId: id, protocolVersion: 4, reconnectPeriod: 1000 } as const;
    const connect = () => connectAsync(mqtt, options, false);
    const client = device.known ? await connect().catch(() => undefined) : undefined;
    if (client === undefined) await giveCredentials(send, id, { username: id, password });
    device.client =
      client ??
      (await connect().catch((error: unknown) => {
        throw new Error(`${mqtt} does not let ${id} in: ${reasonOf(error)}`);
      }));
    // it connects again by itself, and sends again what was not acknowledged
    device.client.on('error', () => undefined);
  });
  say(`${devices.length} devices connected in ${((performance.now() - begun) / 1000).toFixed(1)} s`);
}

async function giveCredentials(send: Send, id: string, login: object): Promise<void> {
  const path = `/mqttdevices/${encodeURIComponent(id)}/credentials/`;
  let given = await send('POST', path, login);
  if (given.code === 4003) given = await send('PUT', path, login).catch(() => given);
  if (given.code === 4003) throw new Error(`${id} gets no credentials: ${JSON.stringify(given.details)}`);
}

async function statusesOf(send: Send, id_group: string): Promise<string> {
  const counts = await Promise.all(
    statuses.map(async (status) => {
      const path = `/devices/?status=${status}&max=1&id_group=${encodeURIComponent(id_group)}`;
      return `${(await send('GET', path)).total_documents} ${status}`;
    }),
  );
  return `; ${counts.join(', ')}`;
}

/** How many acknowledged streams of a device are not listed. */
async function missingOf(send: Send, { id, acknowledged }: Device, run: string, begun_at: number): Promise<number> {
  const left = new Set(acknowledged);
  for (let offset = 0; left.size > 0; offset += 1000) {
    const query = `created_at_from=${begun_at}&offset=${offset}`;
    const { result = [] } = await send('GET', `/devices/${encodeURIComponent(id)}/streams/?${query}`);
    for (const { data } of result) if (data?.run === run && data.seq !== undefined) left.delete(data.seq);
    if (result.length < 1000) break;
  }
  return left.size;
}

function numberFrom(min: number, max: number, whole: boolean) {
  return (text: string) => {
    const value = /^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN;
    if (value >= min && value <= max && (!whole || Number.isInteger(value))) return value;
    throw new InvalidArgumentError(`must be ${whole ? 'a whole number' : 'a number'} from ${min} to ${max}.`);
  };
}

async function main(): Promise<void> {
  const program = new Command('simulate')
    .description('Runs a fleet of devices over MQTT and HTTP, and looks for every stream that was acknowledged.')
    .option('--url <url>', 'base URL of the service', 'http://127.0.0.1:3000')
    .option('--mqtt <url>', 'address of the broker', 'mqtt://127.0.0.1:1883')
    .addOption(new Option('--key <key>', 'API key of scope write or admin').env('SERVICE_APIKEY'))
    .option('--devices <n>', 'how many devices', numberFrom(1, 99_999, true), 200)
    .option('--rate <n>', 'streams per second, all devices together', numberFrom(0.1, 100_000, false), 50)
    .option('--seconds <n>', 'ends by itself after so long; else Ctrl-C', numberFrom(1, 1e9, false))
    .option('--http-share <part>', 'the part that is sent over HTTP, 0 to 1', numberFrom(0, 1, false), 0.2)
    .parse();
  const { key, httpShare, seconds, ...options } = program.opts<{
    url: string;
    mqtt: string;
    key?: string;
    devices: number;
    rate: number;
    seconds?: number;
    httpShare: number;
  }>();
  if (!key) program.error('no API key: give --key or set SERVICE_APIKEY');
  const stopping = new AbortController();
  process.once('SIGINT', () => stopping.abort());
  const { stdout } = process;
  let lines = 0;
  try {
    const { missing } = await simulate({
      ...options,
      key: key ?? '',
      http_share: httpShare,
      seconds,
      signal: stopping.signal,
      say: (line) => stdout.write(`${stdout.isTTY ? '\r\x1b[K' : ''}${line}\n`),
      progress(line) {
        if (stdout.isTTY) stdout.write(`\r\x1b[K${line.slice(0, stdout.columns - 1)}`);
        else if (++lines % 5 === 0) stdout.write(`${line}\n`);
      },
    });
    process.exitCode = missing === 0 ? 0 : 1;
  } catch (error) {
    program.error(`simulate: ${error instanceof Error ? error.message : String(error)}`);
  }
}

const [, entry = ''] = process.argv;
if (entry !== '' && import.meta.url === pathToFileURL(realpathSync(entry)).href) await main();
