import { randomBytes } from 'node:crypto';
import type { mongo } from 'mongoose';
import { type Client, createClient, createGroups, type LoadOptions, loadDevices } from './data.js';
import type { Environment } from './environment.js';
import { readCpuSeconds } from './process.js';
import { type Server, startService } from './server.js';

/** A service with devices. */
export interface Fleet {
  db: mongo.Db;
  service: Server;
  client: Client;
  key: string;
  mongod_pid: number;
}

interface FleetOptions extends Pick<LoadOptions, 'fieldsOf'> {
  mqtt_port?: number;
  checkout?: string;
}

/**
 * Starts the service on a database of its own, and fills groups with devices.
 * @param name of the database
 */
export async function startFleet(
  { folder, mongod, closers }: Environment,
  name: string,
  groups: readonly { number: number; devices: number }[],
  { fieldsOf, ...options }: FleetOptions = {},
): Promise<Fleet> {
  const key = randomBytes(16).toString('hex');
  const service = await startService({ folder, uri: mongod.uri(name), key, ...options });
  closers.push(service.stop);
  const client = createClient(service.url, key);
  const db = mongod.db(name);
  await createGroups(client, groups);
  await loadDevices({ client, db, groups, ...(fieldsOf && { fieldsOf }) });
  return { db, service, client, key, mongod_pid: mongod.pid };
}

/** @returns CPU time of service and database since their starts, in seconds */
export function readCpu({ service, mongod_pid }: Fleet): Promise<[number, number]> {
  return Promise.all([readCpuSeconds(service.pid), readCpuSeconds(mongod_pid)]);
}
