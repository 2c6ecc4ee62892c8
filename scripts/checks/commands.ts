import { randomBytes } from 'node:crypto';
import { realpathSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { Command } from 'commander';
import mongoose, { type mongo } from 'mongoose';
import { startEmbedded } from '../../src/mongod/embedded.js';
import { createRandom } from '../../tests/support/random.js';
import { findFreePort, type ServiceProcess, waitUntil } from '../support/service-process.js';
import { obey, operate, type Traffic, type TrafficDevice } from './command-traffic.js';
import { findCommandFaults, type LoggedState, type StoredStatus } from './commands-model.js';
import { killDatabase, parseCount, sendOk, startInstance, waitUntilReady } from './instance.js';

interface Options {
  /** Length of the load. */
  seconds: number;
  seed: number;
  /** Between two kills, at random up to twice as long. */
  kill_period_ms: number;
  print: (line: string) => void;
}

/** Counts of commands. */
export interface Outcome {
  commands: number;
  receipts: number;
  kills: number;
  /** Differences between commands, acknowledged requests, deliveries and events. */
  faults: readonly string[];
}

const device_count = 8;
const operators = 4;
const settle_limit_ms = 30_000;

/**
 * Sends commands to devices through two instances while devices reconnect and answer, kills instances and database with
 * SIGKILL at random moments, and compares the commands with the answers, the deliveries and the events.
 */
export async function runCommandRaces({ seconds, seed, kill_period_ms, print }: Options): Promise<Outcome> {
  const folder = await mkdtemp(join(tmpdir(), 'commands-'));
  const random = createRandom(seed);
  const log = { info() {}, warn() {}, error() {} };
  const embedded = await startEmbedded({ dataDir: folder, env: process.env, log, print: () => undefined });
  const key = randomBytes(16).toString('hex');
  const client = new mongoose.mongo.MongoClient(embedded.uri);
  const ports = [await findFreePort(), await findFreePort()];
  const start = (slot: number) => startInstance(embedded.uri, key, { MQTT_PORT: String(ports[slot]) });
  const instances: ServiceProcess[] = [];
  const load = new AbortController();
  const devicesEnd = new AbortController();
  try {
    instances.push(await start(0), await start(1));
    const devices = await createDevices(instances[0]?.url ?? '', key);
    const addresses = ports.map((mqttPort, slot) => ({
      mqttPort,
      get url() {
        return instances[slot]?.url ?? '';
      },
    }));
    const shared = { addresses, key, random, requests: [], receipts: [] };
    const traffic: Traffic = { ...shared, signal: load.signal };
    const operating = Array.from({ length: operators }, () => operate(traffic, devices));
    const obeying = devices.map((device) => obey({ ...shared, signal: devicesEnd.signal }, device));
    let kills = 0;
    for (const end = Date.now() + seconds * 1000; Date.now() < end; kills++) {
      await sleep(Math.min(random() * 2 * kill_period_ms, Math.max(0, end - Date.now())));
      if (Date.now() >= end) break;
      const victim = Math.floor(random() * 3);
      await (victim === 2 ? killDatabase(folder) : instances[victim]?.stop('SIGKILL'));
      if (victim < 2) instances[victim] = await start(victim);
    }
    load.abort();
    await Promise.all(operating);
    await Promise.all(instances.map(waitUntilReady));
    const db = client.db();
    const undelivered = await waitForDeliveries(db);
    devicesEnd.abort();
    await Promise.all(obeying);
    const { stored, events } = await readCommands(db);
    const faults = [...undelivered, ...findCommandFaults(shared.requests, shared.receipts, stored, events)];
    const counts = `${stored.length} commands, ${shared.receipts.length} deliveries, ${kills} kills`;
    print(`seed ${seed}: ${counts}, ${faults.length} faults`);
    return { commands: stored.length, receipts: shared.receipts.length, kills, faults };
  } finally {
    load.abort();
    devicesEnd.abort();
    await Promise.all(instances.map((instance) => instance.stop('SIGKILL')));
    await client.close();
    await embedded.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

async function createDevices(url: string, key: string): Promise<TrafficDevice[]> {
  await sendOk(url, key, 'POST', '/projects/', { name: 'p', id_customer: 'c' });
  await sendOk(url, key, 'POST', '/services/', { name: 's', id_project: 'p@demo' });
  await sendOk(url, key, 'POST', '/groups/', { name: 'g', id_service: 's@demo' });
  const devices: TrafficDevice[] = [];
  for (let number = 0; number < device_count; number++) {
    const id = `d${number}@demo`;
    const login = { username: `d${number}`, password: randomBytes(8).toString('hex') };
    await sendOk(url, key, 'POST', '/devices/', { name: `d${number}`, type: 't', id_group: 'g@demo' });
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

async function main(): Promise<void> {
  const program = new Command('commands')
    .description(
      'Compares commands with requests, deliveries and events, while two instances and the database are killed.',
    )
    .option('--minutes <n>', 'length of the load', parseCount, 30)
    .option('--seed <n>', 'first seed; each run of a minute takes the next one', parseCount, 1)
    .parse();
  const { minutes, seed } = program.opts<{ minutes: number; seed: number }>();
  for (let minute = 0; minute < minutes; minute++) {
    const run = { seconds: 60, seed: seed + minute, kill_period_ms: 4000 };
    const { faults } = await runCommandRaces({ ...run, print: console.log });
    for (const fault of faults.slice(0, 20)) console.log(fault);
    if (faults.length > 0) process.exitCode = 1;
  }
}

const [, entry = ''] = process.argv;
if (entry !== '' && import.meta.url === pathToFileURL(realpathSync(entry)).href) await main();
