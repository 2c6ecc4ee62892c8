import type { mongo } from 'mongoose';
import { createIdGenerator } from '../../src/db/ids.js';
import { progressBar, say } from './progress.js';

/** A stored object, as far as it matters here. */
export interface Stored {
  _id: mongo.UUID;
  [path: string]: unknown;
}

/** The service as the bench's own requests see it. */
export interface Client {
  /** @returns the body @throws Error unless the answer is 2xx */
  send(method: string, path: string, body?: object): Promise<{ [field: string]: unknown }>;
}

/** A group by its number, and how many devices it has. */
export interface Group {
  number: number;
  devices: number;
}

interface Loading {
  client: Client;
  db: mongo.Db;
  groups: readonly Group[];
}

const batch = 5000;
const newId = createIdGenerator(() => performance.timeOrigin + performance.now());

/** The account of the service's first key. */
export const account = 'demo';

/** A group for what is created on the way. */
export const spareGroup = 9999;

/** Requests with a key. */
export function clientOf(url: string, key: string): Client {
  return {
    async send(method, path, body) {
      const reply = await fetch(url + path, {
        method,
        headers: { 'service.apikey': key },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      const text = await reply.text();
      if (!reply.ok) throw new Error(`${method} ${path}: ${reply.status} ${text}`);
      return JSON.parse(text);
    },
  };
}

/** The identifier of a group. */
export function groupId(group: number): string {
  return `${groupName(group)}@${account}`;
}

function groupName(group: number): string {
  return `hall-${group}`;
}

/** The identifiers of devices, by their places in the group. */
export function deviceId(group: number, index: number): string {
  return `${deviceName(group, index)}@${account}`;
}

function deviceName(group: number, index: number): string {
  return `thermometer-${group}-${String(index).padStart(6, '0')}`;
}

/**
 * A device as clients send it, about 620 bytes as it is shown.
 * @param place devices lie in rows of 500, a tenth of a degree apart
 */
export function deviceBody(name: string, id_group: string, place: number) {
  return {
    type: 'thermometer',
    name,
    id_group,
    description: 'Température de la halle, mesurée toutes les dix minutes',
    properties: { floor: place % 7, room: `3.${place % 40}`, calibrated: true, offset: 0.25, tags: ['roof', 'north'] },
    sensor: 'temperature',
    firmware: '2.3.0',
    time_zone: 'Europe/Madrid',
    frequency_status: 1440,
    frequency_stream: 10,
    lon: ((place % 500) - 250) / 10,
    lat: ((Math.floor(place / 500) % 800) - 100) / 10,
    enabled: true,
    networking: { type: 'wifi', conn_address: `10.0.${(place >> 8) & 255}.${place & 255}` },
  };
}

/** A project and a service with the groups, and the spare one. */
export async function createGroups(client: Client, groups: readonly Group[]): Promise<void> {
  await client.send('POST', '/projects/', { name: 'plant', id_customer: 'works' });
  await client.send('POST', '/services/', { name: 'cooling', id_project: `plant@${account}` });
  for (const number of [...groups.map((group) => group.number), spareGroup]) {
    await client.send('POST', '/groups/', { name: groupName(number), id_service: `cooling@${account}` });
  }
}

/**
 * Writes the groups' devices past the service, in the form in which it has stored one. Their indexes are taken away
 * meanwhile, as building them at once is faster. Nobody else may use the devices.
 * @throws Error if they do not read alike through the interface
 */
export async function loadDevices({ client, db, groups }: Loading): Promise<void> {
  const devices = db.collection<Stored>('devices');
  const sample = await createOne(client, db, 'sample');
  const total = groups.reduce((sum, group) => sum + group.devices, 0);
  const indexes = (await devices.indexes()).filter(({ name }) => name !== '_id_');
  await devices.dropIndexes();
  const bar = progressBar('devices', total);
  let place = 0;
  for (const group of groups) {
    const above = await db.collection<Stored>('groups').findOne({ account, id_developer: groupId(group.number) });
    if (above === null) throw new Error(`there is no group ${groupId(group.number)}`);
    for (let index = 0; index < group.devices; index += batch) {
      const count = Math.min(batch, group.devices - index);
      const documents = Array.from({ length: count }, (_, nth) =>
        storedAs(sample, above._id, group.number, index + nth, place + nth),
      );
      await devices.insertMany(documents, { ordered: false });
      place += count;
      bar.update(place);
    }
  }
  bar.stop();
  say(`building ${indexes.length} indexes`);
  await devices.createIndexes(indexes);
  await createOne(client, db, 'control');
  await compare(client, deviceId(groups[0]?.number ?? spareGroup, 0), `control@${account}`);
  for (const name of ['sample', 'control']) await client.send('DELETE', `/devices/${name}@${account}/`);
}

function storedAs(sample: Stored, parent: mongo.UUID, group: number, index: number, place: number): Stored {
  const { lon, lat, ...fields } = deviceBody(deviceName(group, index), groupId(group), place);
  return {
    ...sample,
    ...fields,
    _id: newId(),
    id_developer: deviceId(group, index),
    location: { type: 'Point', coordinates: [lon, lat] },
    parent,
  };
}

async function createOne(client: Client, db: mongo.Db, name: string): Promise<Stored> {
  await client.send('POST', '/devices/', deviceBody(name, groupId(spareGroup), 0));
  const stored = await db.collection<Stored>('devices').findOne({ account, id_developer: `${name}@${account}` });
  if (stored === null) throw new Error(`${name} is not in the database`);
  return stored;
}

async function compare(client: Client, ...ids: readonly string[]): Promise<void> {
  const [written, created] = await Promise.all(
    ids.map(async (id) => {
      const shown = await client.send('GET', `/devices/${id}/`);
      return JSON.stringify({ ...shown, id_developer: '', name: '', id_group: '', created_at: 0, updated_at: 0 });
    }),
  );
  if (written !== created) throw new Error(`written and created devices differ:\n${written}\n${created}`);
}
