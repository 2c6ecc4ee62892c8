import { setTimeout as sleep } from 'node:timers/promises';
import type { mongo } from 'mongoose';
import { createIdGenerator } from '../../src/db/ids.js';
import { copyStream } from '../support/stream-copies.js';
import { printProgress, startProgressBar } from './progress.js';

/** A document of any collection. */
export interface StoredObject {
  _id: mongo.UUID;
  [path: string]: unknown;
}

/** Sends the requests that prepare a benchmark. */
export interface Client {
  /** @returns the body @throws Error unless the status is 2xx */
  send(method: string, path: string, body?: object): Promise<{ [field: string]: unknown }>;
}

/** A group of the test fleet. */
export interface Group {
  number: number;
  /** The number of its devices. */
  devices: number;
}

export interface LoadOptions {
  client: Client;
  db: mongo.Db;
  groups: readonly Group[];
  /** Returns stored fields of a device by its number, in addition to those of `createDeviceBody`. */
  fieldsOf?(position: number): object;
}

const batch_size = 5000;
const newId = createIdGenerator(() => performance.timeOrigin + performance.now());

/** The account of BOOTSTRAP_API_KEY. */
export const account = 'demo';

const loaded_streams = 20_000;
const first_stream_at = 1_700_000_000;

/** Bounds of the streams of `loadStreams`, one a second, in epoch seconds. */
export const streamSpan = { from: first_stream_at, to: first_stream_at + loaded_streams - 1 } as const;

/** Length of the buckets of a series of these streams. */
export const series_every_s = 60;

/** The number of the group for devices that are created during a run. */
export const spareGroup = 9999;

/** Creates a client that authenticates with `key`. */
export function createClient(url: string, key: string): Client {
  return {
    async send(method, path, body) {
      const response = await fetch(url + path, {
        method,
        headers: { 'service.apikey': key },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      const text = await response.text();
      if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
      return JSON.parse(text);
    },
  };
}

/** Returns the identifier of a group. */
export function groupId(group: number): string {
  return `${groupName(group)}@${account}`;
}

function groupName(group: number): string {
  return `hall-${group}`;
}

/** Returns the identifier of a device by its position in the group. */
export function deviceId(group: number, index: number): string {
  return `${deviceName(group, index)}@${account}`;
}

function deviceName(group: number, index: number): string {
  return `thermometer-${group}-${String(index).padStart(6, '0')}`;
}

/**
 * Creates the body that creates a device, about 620 bytes in a response.
 * @param position number of the device in a grid with rows of 500 and a distance of a tenth of a degree
 */
export function createDeviceBody(name: string, id_group: string, position: number) {
  return {
    type: 'thermometer',
    name,
    id_group,
    description: 'Température de la halle, mesurée toutes les dix minutes',
    properties: {
      floor: position % 7,
      room: `3.${position % 40}`,
      calibrated: true,
      offset: 0.25,
      tags: ['roof', 'north'],
    },
    sensor: 'temperature',
    firmware: '2.3.0',
    time_zone: 'Europe/Madrid',
    frequency_status: 1440,
    frequency_stream: 10,
    lon: ((position % 500) - 250) / 10,
    lat: ((Math.floor(position / 500) % 800) - 100) / 10,
    enabled: true,
    networking: { type: 'wifi', conn_address: `10.0.${(position >> 8) & 255}.${position & 255}` },
  };
}

/** Creates a project and a service with the groups and the spare group. */
export async function createGroups(client: Client, groups: readonly Group[]): Promise<void> {
  await client.send('POST', '/projects/', { name: 'plant', id_customer: 'works' });
  await client.send('POST', '/services/', { name: 'cooling', id_project: `plant@${account}` });
  for (const number of [...groups.map((group) => group.number), spareGroup]) {
    await client.send('POST', '/groups/', { name: groupName(number), id_service: `cooling@${account}` });
  }
}

/**
 * Inserts the devices of the groups into the database, as copies of a device that the service has stored. Drops the indexes
 * first and builds them again at the end, which is faster; nothing else may use the collection at the same time.
 * @throws Error if the interface does not show such a device like one that it has created
 */
export async function loadDevices({ client, db, groups, fieldsOf }: LoadOptions): Promise<void> {
  const devices = db.collection<StoredObject>('devices');
  const sample = await createDevice(client, db, 'sample');
  const total = groups.reduce((sum, group) => sum + group.devices, 0);
  const indexes = (await devices.indexes()).filter(({ name }) => name !== '_id_');
  await devices.dropIndexes();
  const bar = startProgressBar('devices', total);
  let position = 0;
  for (const group of groups) {
    const parent = await db
      .collection<StoredObject>('groups')
      .findOne({ account, id_developer: groupId(group.number) });
    if (parent === null) throw new Error(`there is no group ${groupId(group.number)}`);
    for (let index = 0; index < group.devices; index += batch_size) {
      const count = Math.min(batch_size, group.devices - index);
      const documents = Array.from({ length: count }, (_, offset) => ({
        ...copyDevice(sample, parent, group.number, index + offset, position + offset),
        ...fieldsOf?.(position + offset),
      }));
      await devices.insertMany(documents, { ordered: false });
      position += count;
      bar.update(position);
    }
  }
  bar.stop();
  printProgress(`building ${indexes.length} indexes`);
  await devices.createIndexes(indexes);
  await createDevice(client, db, 'control');
  await assertShownAlike(client, deviceId(groups[0]?.number ?? spareGroup, 0), `control@${account}`);
  for (const name of ['sample', 'control']) await client.send('DELETE', `/devices/${name}@${account}/`);
}

/** Waits until no more events are written: until then the log takes a part of the machine. */
export async function waitUntilLogged(db: mongo.Db): Promise<void> {
  const events = db.collection('events');
  for (let last = -1, count = 0; count !== last; ) {
    last = count;
    await sleep(3000);
    count = await events.estimatedDocumentCount();
  }
}

/** Inserts the streams of `streamSpan` as copies of a stream that the service has stored for `device`. */
export async function loadStreams(client: Client, db: mongo.Db, device: string): Promise<void> {
  await client.send('POST', `/devices/${device}/streams/`, { data: {} });
  const streams = db.collection('streams');
  // of version 0.2.0 with the account beside its id
  const sample = await streams.findOne({
    $or: [
      { account, device },
      { '_id.account': account, '_id.device': device },
    ],
  });
  if (sample === null) throw new Error(`the stream of ${device} is not in the database`);
  const { from, to } = streamSpan;
  const copies = Array.from({ length: to - from + 1 }, (_, index) => ({
    ...('account' in sample
      ? { ...sample, _id: newId() as never, at: from + index }
      : copyStream(sample, { at: from + index })),
    data: { temperature: (index % 400) / 10, humidity: index % 100, battery_mv: 3312 },
  }));
  await streams.insertMany(copies, { ordered: false });
}

function copyDevice(
  sample: StoredObject,
  parent: StoredObject,
  group: number,
  index: number,
  position: number,
): StoredObject {
  const { lon, lat, ...fields } = createDeviceBody(deviceName(group, index), groupId(group), position);
  return {
    ...sample,
    ...fields,
    _id: newId(),
    id_developer: deviceId(group, index),
    location: { type: 'Point', coordinates: [lon, lat] },
    parent: parent._id,
    ...(Array.isArray(parent.ancestors) && { ancestors: [...parent.ancestors, parent._id] }),
  };
}

async function createDevice(client: Client, db: mongo.Db, name: string): Promise<StoredObject> {
  await client.send('POST', '/devices/', createDeviceBody(name, groupId(spareGroup), 0));
  const stored = await db.collection<StoredObject>('devices').findOne({ account, id_developer: `${name}@${account}` });
  if (stored === null) throw new Error(`${name} is not in the database`);
  return stored;
}

async function assertShownAlike(client: Client, ...ids: readonly string[]): Promise<void> {
  const [inserted, created] = await Promise.all(
    ids.map(async (id) => {
      const device = await client.send('GET', `/devices/${id}/`);
      return JSON.stringify({ ...device, id_developer: '', name: '', id_group: '', created_at: 0, updated_at: 0 });
    }),
  );
  if (inserted !== created) throw new Error(`inserted and created devices differ:\n${inserted}\n${created}`);
}
