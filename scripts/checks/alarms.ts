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
import { type ServiceProcess, waitUntil } from '../support/service-process.js';
import { createDeviceModel, createRandomStreams, type DeviceModel, modelRules } from './alarm-model.js';
import { killDatabase, parseCount, sendOk, startInstance, waitUntilReady } from './instance.js';

interface Options {
  seconds: number;
  seed: number;
  devices: number;
  /** Between two kills, at random up to twice as long; absent: nothing is killed. */
  kill_period_ms?: number;
  print: (line: string) => void;
}

/** Counts of requests and transitions. */
export interface AlarmOutcome {
  requests: number;
  transitions: number;
  kills: number;
  /** Differences between the model, the log and the stored alarms. */
  faults: readonly string[];
}

interface LoggedAlarm {
  type: string;
  id_developer: string;
  data: { id: string; rule: string; state: string };
}

/**
 * Sends random streams to two instances, kills instances and database at random moments, repeats what was not answered, and
 * compares events and alarms with a plain model of the rules.
 */
export async function runAlarmCheck({ seconds, seed, devices, kill_period_ms, print }: Options): Promise<AlarmOutcome> {
  const folder = await mkdtemp(join(tmpdir(), 'alarms-'));
  const random = createRandom(seed);
  const log = { info() {}, warn() {}, error() {} };
  const embedded = await startEmbedded({ dataDir: folder, env: process.env, log, print: () => undefined });
  const key = randomBytes(16).toString('hex');
  const client = new mongoose.mongo.MongoClient(embedded.uri);
  const instances: ServiceProcess[] = [];
  try {
    instances.push(await startInstance(embedded.uri, key), await startInstance(embedded.uri, key));
    await prepare(instances[0]?.url ?? '', key, devices);
    const load = new AbortController();
    const models = Array.from({ length: devices }, () => createDeviceModel(modelRules));
    const senders = models.map((model, number) =>
      sendStreams({ instances, key, random, number, model, signal: load.signal }),
    );
    let kills = 0;
    for (const end = Date.now() + seconds * 1000; Date.now() < end; ) {
      await sleep(Math.min(random() * 2 * (kill_period_ms ?? 1000), Math.max(0, end - Date.now())));
      if (Date.now() >= end || kill_period_ms === undefined) continue;
      kills++;
      const victim = Math.floor(random() * 3);
      const instance = instances[victim];
      if (instance === undefined) await killDatabase(folder);
      else {
        await instance.stop('SIGKILL');
        instances[victim] = await startInstance(embedded.uri, key);
      }
    }
    load.abort();
    const requests = (await Promise.all(senders)).reduce((sum, count) => sum + count, 0);
    await Promise.all(instances.map(waitUntilReady));
    const { faults, transitions } = await compare(client.db(), models);
    print(`seed ${seed}: ${requests} requests, ${transitions} transitions, ${kills} kills, ${faults.length} faults`);
    return { requests, transitions, kills, faults };
  } finally {
    await Promise.all(instances.map((instance) => instance.stop('SIGKILL')));
    await client.close();
    await embedded.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

const deviceOf = (number: number) => `pump ${number}@demo`;

/** Creates the devices and the rules, and waits until all instances know these. */
async function prepare(url: string, key: string, devices: number): Promise<void> {
  await sendOk(url, key, 'POST', '/projects/', { name: 'p', id_customer: 'c' });
  await sendOk(url, key, 'POST', '/services/', { name: 's', id_project: 'p@demo' });
  await sendOk(url, key, 'POST', '/groups/', { name: 'g', id_service: 's@demo' });
  for (let number = 0; number < devices; number++)
    await sendOk(url, key, 'POST', '/devices/', { name: `pump ${number}`, type: 'pump', id_group: 'g@demo' });
  for (const rule of modelRules) await sendOk(url, key, 'POST', '/alarmrules/', { ...rule, severity: 'info' });
  await sleep(5000);
}

interface Sender {
  instances: readonly { url: string }[];
  key: string;
  random: () => number;
  number: number;
  model: DeviceModel;
  signal: AbortSignal;
}

/** Sends the streams of one device, one request after the other; each until it is acknowledged. @returns their number */
async function sendStreams({ instances, key, random, number, model, signal }: Sender): Promise<number> {
  const begun = Math.floor(Date.now() / 1000) - 1_000_000;
  const path = `/devices/${encodeURIComponent(deviceOf(number))}/streams/`;
  let count = 0;
  for (; !signal.aborted; count++) {
    const streams = createRandomStreams(random, begun + count);
    for (let isAcknowledged = false; !isAcknowledged; ) {
      const { url } = instances[Math.floor(random() * instances.length)] ?? { url: '' };
      isAcknowledged = await sendOk(url, key, 'POST', path, streams).then(
        () => true,
        () => false,
      );
      if (!isAcknowledged) await sleep(50);
    }
    model.receive(streams);
  }
  return count;
}

async function compare(db: mongo.Db, models: readonly DeviceModel[]) {
  const expected = models.flatMap((model) => modelRules.flatMap(({ name }) => model.transitionsOf(name)));
  const events = db.collection<LoggedAlarm>('events');
  const count = () => events.countDocuments({ resource: 'alarm' });
  const isComplete = async () => (await count()) >= expected.length;
  await waitUntil(isComplete, 60_000).catch(() => undefined);
  await sleep(2000);
  const faults: string[] = [];
  for (const [number, model] of models.entries()) {
    const device = deviceOf(number);
    const logged = await events.find({ id_developer: device, resource: 'alarm' }, { sort: { _id: 1 } }).toArray();
    const alarms = await db.collection('alarms').find({ device, account: 'demo' }).toArray();
    for (const { name } of modelRules) {
      const own = logged.filter(({ data }) => data.rule === `${name}@demo`);
      const kinds = own.map(({ type }) => type.slice('alarm.'.length)).join();
      const wanted = model.transitionsOf(name).join();
      if (kinds !== wanted) faults.push(`${device}, ${name}: ${kinds} instead of ${wanted}`);
      const open = alarms.filter(({ rule, state }) => rule === `${name}@demo` && state !== 'closed');
      if (open.length !== (model.isOpen(name) ? 1 : 0)) faults.push(`${device}, ${name}: ${open.length} open alarms`);
    }
    for (const { id, state } of alarms) {
      const last = logged.findLast(({ data }) => data.id === id);
      if (last?.data.state !== state) faults.push(`${device}: ${id} is ${state}, in the log ${last?.data.state}`);
    }
  }
  return { faults, transitions: expected.length };
}

async function main(): Promise<void> {
  const program = new Command('alarms')
    .description('Compares alarms with a plain model, while two instances and the database are killed.')
    .option('--minutes <n>', 'length of the load', parseCount, 30)
    .option('--devices <n>', 'devices that send at the same time', parseCount, 16)
    .option('--seed <n>', 'first seed; each run of a minute takes the next one', parseCount, 1)
    .parse();
  const { minutes, devices, seed } = program.opts<{ minutes: number; devices: number; seed: number }>();
  for (let minute = 0; minute < minutes; minute++) {
    const run = { seconds: 60, seed: seed + minute, devices, kill_period_ms: 6000 };
    const { faults } = await runAlarmCheck({ ...run, print: console.log });
    for (const fault of faults.slice(0, 20)) console.log(fault);
    if (faults.length > 0) process.exitCode = 1;
  }
}

const [, entry = ''] = process.argv;
if (entry !== '' && import.meta.url === pathToFileURL(realpathSync(entry)).href) await main();
