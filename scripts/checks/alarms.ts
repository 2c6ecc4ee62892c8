import { realpathSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { Command } from 'commander';
import type { mongo } from 'mongoose';
import { waitUntil } from '../support/service-process.js';
import { createDeviceModel, createRandomStreams, type DeviceModel, modelRules } from './alarm-model.js';
import { createGroup, parseCount, sendOk } from './instance.js';
import { type RaceOptions, runForMinutes, withRaces } from './races.js';

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
export function runAlarmRaces({ devices, print, ...setup }: RaceOptions & { devices: number }): Promise<AlarmOutcome> {
  return withRaces(setup, async ({ instances, key, random, db, kill, recover }) => {
    await prepare(instances[0]?.url ?? '', key, devices);
    const load = new AbortController();
    const models = Array.from({ length: devices }, () => createDeviceModel(modelRules));
    const senders = models.map((model, number) =>
      sendStreams({ instances, key, random, number, model, signal: load.signal }),
    );
    const kills = await kill();
    load.abort();
    const requests = (await Promise.all(senders)).reduce((sum, count) => sum + count, 0);
    await recover();
    const { faults, transitions } = await compare(db, models);
    const counts = `${requests} requests, ${transitions} transitions, ${kills} kills`;
    print(`seed ${setup.seed}: ${counts}, ${faults.length} faults`);
    return { requests, transitions, kills, faults };
  });
}

const deviceOf = (number: number) => `pump ${number}@demo`;

/** Creates the devices and the rules, and waits until all instances know these. */
async function prepare(url: string, key: string, devices: number): Promise<void> {
  const id_group = await createGroup(url, key);
  for (let number = 0; number < devices; number++)
    await sendOk(url, key, 'POST', '/devices/', { name: `pump ${number}`, type: 'pump', id_group });
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
  await waitUntil(isComplete).catch(() => undefined);
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

const [, entry = ''] = process.argv;
if (entry !== '' && import.meta.url === pathToFileURL(realpathSync(entry)).href) {
  const program = new Command('alarms')
    .description('Compares alarms with a plain model, while two instances and the database are killed.')
    .option('--devices <n>', 'devices that send at the same time', parseCount, 16);
  await runForMinutes(program, (options) => runAlarmRaces({ ...program.opts<{ devices: number }>(), ...options }));
}
