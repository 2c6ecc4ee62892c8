import { randomInt } from 'node:crypto';
import type { mongo } from 'mongoose';
import {
  account,
  createDeviceBody,
  deviceId,
  type Group,
  groupId,
  type StoredObject,
  series_every_s,
  spareGroup,
  streamSpan,
} from './data.js';
import type { Requests } from './load.js';

/** The names of all scenarios in the order in which they are measured: those that write come last. */
export const scenarioNames = [
  'get',
  'list-json',
  'list-xml',
  'list-4',
  'page',
  'geo',
  'series',
  'export',
  'post',
  'put',
  'stream',
  'stream-256',
  'stream-fleet',
] as const;
export type ScenarioName = (typeof scenarioNames)[number];

/** A kind of request that is measured. */
export interface Scenario {
  description: string;
  /** The minimum throughput relative to the baseline, if there is one. */
  goal?: number;
  connections: number;
  /** Creates the requests to the service; `runId` is unique among all measurements. */
  createRequests(runId: string): Promise<Requests>;
  /** Creates the requests to the baseline, if they differ. */
  createBaselineRequests?(): Promise<Requests>;
}

interface Options {
  db: mongo.Db;
  key: string;
  groups: readonly Group[];
}

const radius_m = 63_000;
/** Groups of 1,000 devices that send in turn. */
const fleet_groups = 50;

/** Creates the scenarios for a database with the devices of `groups`. */
export function createScenarios({ db, key, groups }: Options): Record<ScenarioName, Scenario> {
  const headers = { 'service.apikey': key };
  const json = { ...headers, Accept: 'application/json' };
  const xml = { ...headers, Accept: 'application/xml' };
  const total = groups.reduce((sum, { devices }) => sum + devices, 0);
  const selectedGroups = groups.slice(0, 4);
  const listIds = ({ number, devices }: Group) =>
    Array.from({ length: devices }, (_, index) => deviceId(number, index));
  const selectedDevices = selectedGroups.flatMap(listIds);
  const fleet = groups.slice(0, fleet_groups).flatMap(listIds);
  const read = (paths: readonly string[], accept = json) => {
    return async (): Promise<Requests> => ({ method: 'GET', headers: accept, paths });
  };
  const lists = groups.map(({ number }) => `/groups/${groupId(number)}/devices/`);
  const pages = lists.map((path) => `${path}?max=20`);
  const circles = groups.map((_, index) => `/devices/?${createCircle(index, total)}`);

  /** Resets all versions to 0, because the number of updates of an earlier measurement is not known. */
  const update = async (runId: string): Promise<Requests> => {
    const id_group = { $in: selectedGroups.map(({ number }) => groupId(number)) };
    await db
      .collection<StoredObject>('devices')
      .updateMany({ account, id_group, version: { $ne: 0 } }, { $set: { version: 0 } });
    const body = `{"version":<round>,"firmware":"${runId}.<n>"}`;
    return { method: 'PUT', headers: json, paths: selectedDevices.map((id) => `/devices/${id}/`), body };
  };
  const create = async (runId: string): Promise<Requests> => {
    const body = JSON.stringify(createDeviceBody(`new-${runId}-<n>`, groupId(spareGroup), 300_000));
    return { method: 'POST', headers: json, paths: ['/devices/'], body };
  };
  const send = async (devices: readonly string[]): Promise<Requests> => {
    const body = '{"data":{"temperature":21.5,"humidity":48,"battery_mv":3312,"sequence":<n>,"flags":["ok"]}}';
    return { method: 'POST', headers: json, paths: devices.map((id) => `/devices/${id}/streams/`), body };
  };
  /** Begins anywhere: a measurement is too short for all devices. */
  const sendOfFleet = () => {
    const begin = randomInt(fleet.length);
    return send([...fleet.slice(begin), ...fleet.slice(0, begin)]);
  };

  const readStreams = (kind: string, query: string, to: number) =>
    read([`/devices/${selectedDevices[0]}/${kind}/?${query}&at_from=${streamSpan.from}&at_to=${to}`]);

  return {
    get: {
      description: 'one device',
      goal: 0.7,
      connections: 32,
      createRequests: read(selectedDevices.map((id) => `/devices/${id}/`)),
    },
    'list-json': { description: 'list of 1,000 devices', goal: 2, connections: 8, createRequests: read(lists) },
    'list-xml': {
      description: 'the same list as XML; JSON from the baseline',
      goal: 1.5,
      connections: 8,
      createRequests: read(lists, xml),
      createBaselineRequests: read(lists),
    },
    'list-4': {
      description: 'the list as JSON over 4 connections',
      goal: 2.5,
      connections: 4,
      createRequests: read(lists),
    },
    page: {
      description: 'page of 20 devices and exact total',
      goal: 1.3,
      connections: 16,
      createRequests: read(pages),
    },
    geo: { description: '100 devices in a circle', goal: 1.3, connections: 16, createRequests: read(circles) },
    series: {
      description: 'a field of 20,000 streams by minutes',
      connections: 4,
      createRequests: readStreams('series', `fields=temperature&every=${series_every_s}`, streamSpan.to),
    },
    export: {
      description: '4,000 streams as NDJSON',
      connections: 4,
      createRequests: readStreams('streams', 'format=ndjson', streamSpan.from + 3999),
    },
    post: { description: 'create a device', goal: 0.8, connections: 32, createRequests: create },
    put: { description: 'update a device by version', goal: 0.95, connections: 32, createRequests: update },
    stream: { description: 'store a stream', goal: 3, connections: 64, createRequests: () => send(selectedDevices) },
    'stream-256': {
      description: 'store a stream, over 256 connections',
      goal: 3,
      connections: 256,
      createRequests: () => send(selectedDevices),
    },
    'stream-fleet': {
      description: 'the same from 50,000 devices in turn',
      connections: 256,
      createRequests: sendOfFleet,
    },
  };
}

/** Creates the query for a circle around a device that is far enough from the edge of the fleet to contain 100 devices. */
function createCircle(index: number, devices: number): string {
  const rows = Math.floor(devices / 500);
  const column = 20 + ((index * 37) % 460);
  const row = rows > 20 ? 10 + ((index * 13) % (rows - 20)) : rows >> 1;
  const { lon, lat } = createDeviceBody('', '', row * 500 + column);
  return `geo_lon=${lon}&geo_lat=${lat}&geo_distance=${radius_m}`;
}
