import type { mongo } from 'mongoose';
import { account, deviceBody, deviceId, type Group, groupId, type Stored, spareGroup } from './data.js';
import type { Requests } from './load.js';

/** A comparison of service and floor. */
export interface Row {
  name: string;
  about: string;
  /** The least throughput, relative to the floor. */
  goal: number;
  connections: number;
  /** What is sent to the service in a measurement; `turn` is a word that no other measurement has. */
  service(turn: string): Promise<Requests>;
  floor(turn: string): Promise<Requests>;
}

interface Options {
  db: mongo.Db;
  key: string;
  groups: readonly Group[];
}

const circle_m = 63_000;

/** The rows by name, in the order in which they are measured: those that write come last. */
export function rowsOf({ db, key, groups }: Options): Row[] {
  const headers = { 'service.apikey': key };
  const json = { ...headers, Accept: 'application/json' };
  const xml = { ...headers, Accept: 'application/xml' };
  const total = groups.reduce((sum, { devices }) => sum + devices, 0);
  const busy = groups.slice(0, 4);
  const some = busy.flatMap(({ number, devices }) =>
    Array.from({ length: devices }, (_, index) => deviceId(number, index)),
  );
  const reading = (paths: readonly string[], accept = json) => {
    return async (): Promise<Requests> => ({ method: 'GET', headers: accept, paths });
  };
  const pathsOf = groups.map(({ number }) => `/groups/${groupId(number)}/devices/`);
  const pages = pathsOf.map((path) => `${path}?max=20`);
  const circles = groups.map((_, nth) => `/devices/?${circleIn(nth, total)}`);

  /** Versions count from 0 again: how far an earlier measurement came is not known. */
  const updating = async (turn: string): Promise<Requests> => {
    const id_group = { $in: busy.map(({ number }) => groupId(number)) };
    await db
      .collection<Stored>('devices')
      .updateMany({ account, id_group, version: { $ne: 0 } }, { $set: { version: 0 } });
    const body = `{"version":<round>,"firmware":"${turn}.<n>"}`;
    return { method: 'PUT', headers: json, paths: some.map((id) => `/devices/${id}/`), body };
  };
  const creating = async (turn: string): Promise<Requests> => {
    const body = JSON.stringify(deviceBody(`new-${turn}-<n>`, groupId(spareGroup), 300_000));
    return { method: 'POST', headers: json, paths: ['/devices/'], body };
  };
  const sending = async (): Promise<Requests> => {
    const body = '{"data":{"temperature":21.5,"humidity":48,"battery_mv":3312,"sequence":<n>,"flags":["ok"]}}';
    return { method: 'POST', headers: json, paths: some.map((id) => `/devices/${id}/streams/`), body };
  };
  const same = (requests: Row['service']) => ({ service: requests, floor: requests });

  return [
    {
      name: 'get',
      about: 'one device',
      goal: 0.7,
      connections: 32,
      ...same(reading(some.map((id) => `/devices/${id}/`))),
    },
    { name: 'list-json', about: 'list of 1,000 devices', goal: 2, connections: 8, ...same(reading(pathsOf)) },
    {
      name: 'list-xml',
      about: 'the same as XML, against JSON',
      goal: 1.5,
      connections: 8,
      service: reading(pathsOf, xml),
      floor: reading(pathsOf),
    },
    { name: 'page', about: 'page of 20 of a group and exact total', goal: 1, connections: 16, ...same(reading(pages)) },
    { name: 'geo', about: 'circle with 100 devices', goal: 1.3, connections: 16, ...same(reading(circles)) },
    { name: 'post', about: 'create a device', goal: 0.8, connections: 32, ...same(creating) },
    { name: 'put', about: 'update a device by version', goal: 0.95, connections: 32, ...same(updating) },
    { name: 'stream', about: 'store a stream', goal: 3, connections: 64, ...same(sending) },
  ];
}

/** A circle around a device, far enough from the rim of the fleet to hold as many as any other. */
function circleIn(nth: number, devices: number): string {
  const rows = Math.floor(devices / 500);
  const column = 20 + ((nth * 37) % 460);
  const row = rows > 20 ? 10 + ((nth * 13) % (rows - 20)) : rows >> 1;
  const { lon, lat } = deviceBody('', '', row * 500 + column);
  return `geo_lon=${lon}&geo_lat=${lat}&geo_distance=${circle_m}`;
}
