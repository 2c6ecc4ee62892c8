import { randomBytes } from 'node:crypto';
import type { mongo } from 'mongoose';
import { findFreePort, waitUntil } from '../support/service-process.js';
import { obey, operate, type Traffic, type TrafficDevice } from './command-traffic.js';
import { findCommandFaults, type LoggedState, type StoredStatus } from './commands-model.js';
import { createGroup, sendOk } from './instance.js';
import { type RaceOptions, withRaces } from './races.js';

/** Counts of commands. */
export interface Outcome {
  commands: number;
  receipts: number;
  kills: number;
  /** Differences between commands, acknowledged requests, deliveries and events. */
  faults: readonly string[];
}

const devices_per_operator = 2;
const settle_limit_ms = 120_000;

/**
 * Sends commands to devices through two instances while devices reconnect and answer, kills instances and database at random
 * moments, and compares the commands with the answers, the deliveries and the events.
 */
export async function runCommandRaces({
  devices: deviceCount,
  print,
  ...setup
}: RaceOptions & { devices: number }): Promise<Outcome> {
  const ports = [await findFreePort(), await findFreePort()] as const;
  const env = [{ MQTT_PORT: String(ports[0]) }, { MQTT_PORT: String(ports[1]) }] as const;
  return withRaces({ ...setup, env }, async ({ instances, key, random, db, kill, recover }) => {
    const devices = await createDevices(instances[0]?.url ?? '', key, deviceCount);
    const addresses = ports.map((mqttPort, slot) => ({
      mqttPort,
      get url() {
        return instances[slot]?.url ?? '';
      },
    }));
    const load = new AbortController();
    const devicesEnd = new AbortController();
    try {
      const shared = { addresses, key, random, requests: [], receipts: [] };
      const traffic: Traffic = { ...shared, signal: load.signal };
      const operating = Array.from({ length: deviceCount / devices_per_operator }, () => operate(traffic, devices));
      const obeying = devices.map((device) => obey({ ...shared, signal: devicesEnd.signal }, device));
      const kills = await kill();
      load.abort();
      await Promise.all(operating);
      await recover();
      const undelivered = await waitForDeliveries(db);
      devicesEnd.abort();
      await Promise.all(obeying);
      const { stored, events } = await readCommands(db);
      const faults = [...undelivered, ...findCommandFaults(shared.requests, shared.receipts, stored, events)];
      const counts = `${stored.length} commands, ${shared.receipts.length} deliveries, ${kills} kills`;
      print(`seed ${setup.seed}: ${counts}, ${faults.length} faults`);
      return { commands: stored.length, receipts: shared.receipts.length, kills, faults };
    } finally {
      load.abort();
      devicesEnd.abort();
    }
  });
}

async function createDevices(url: string, key: string, count: number): Promise<TrafficDevice[]> {
  const id_group = await createGroup(url, key);
  const devices: TrafficDevice[] = [];
  for (let number = 0; number < count; number++) {
    const id = `d${number}@demo`;
    const login = { username: `d${number}`, password: randomBytes(8).toString('hex') };
    await sendOk(url, key, 'POST', '/devices/', { name: `d${number}`, type: 't', id_group });
    await sendOk(url, key, 'POST', `/mqttdevices/${encodeURIComponent(id)}/credentials/`, login);
    devices.push({ id, ...login });
  }
  return devices;
}

/** Waits until every command is delivered or over. @returns a line if some never are */
async function waitForDeliveries(db: mongo.Db): Promise<string[]> {
  const countQueued = () => db.collection('commands').countDocuments({ status: 'queued' });
  await waitUntil(async () => (await countQueued()) === 0, settle_limit_ms).catch(() => undefined);
  const queued = await countQueued();
  return queued === 0 ? [] : [`${queued} commands are not delivered`];
}

/** Reads all commands, and their events once the log has the last ones. */
async function readCommands(db: mongo.Db): Promise<{ stored: StoredStatus[]; events: LoggedState[] }> {
  const readStored = () =>
    db
      .collection<StoredStatus>('commands')
      .find({}, { sort: { _id: 1 } })
      .toArray();
  const readEvents = () =>
    db
      .collection<LoggedState>('events')
      .find({ type: /^command\./ }, { sort: { _id: 1 } })
      .toArray();
  const keyOf = ({ id, status }: StoredStatus) => `command.${status === 'queued' ? 'created' : status} ${id}`;
  // some expire during this
  for (let stored = await readStored(); ; ) {
    const isLogged = async () => {
      const logged = new Set((await readEvents()).map(({ type, data }) => `${type} ${data?.id}`));
      return stored.every((command) => logged.has(keyOf(command)));
    };
    await waitUntil(isLogged, settle_limit_ms).catch(() => undefined);
    const events = await readEvents();
    const now = await readStored();
    if (now.map(keyOf).join() === stored.map(keyOf).join()) return { stored, events };
    stored = now;
  }
}
