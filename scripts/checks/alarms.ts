import { setTimeout as sleep } from 'node:timers/promises';
import type { mongo } from 'mongoose';
import mqtt, { type MqttClient } from 'mqtt';
import { findFreePort, waitUntil } from '../support/service-process.js';
import { createDeviceModel, createRandomStreams, type DeviceModel, modelRules } from './alarm-model.js';
import { createGroup, sendOk } from './instance.js';
import { type RaceOptions, withRaces } from './races.js';

/** Counts of requests and transitions. */
export interface AlarmOutcome {
  requests: number;
  transitions: number;
  /** Rounds of streams with equal `at`. */
  rounds: number;
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
 * compares events and alarms with a plain model of the rules. Beside it, streams with equal `at` come at the same moment.
 */
export async function runAlarmRaces({
  devices,
  print,
  ...setup
}: RaceOptions & { devices: number }): Promise<AlarmOutcome> {
  const ports = [await findFreePort(), await findFreePort()] as const;
  const env = [{ MQTT_PORT: String(ports[0]) }, { MQTT_PORT: String(ports[1]) }] as const;
  return withRaces({ ...setup, env }, async ({ instances, key, random, db, kill, recover }) => {
    await prepare(instances[0]?.url ?? '', key, devices);
    const load = new AbortController();
    const models = Array.from({ length: devices }, () => createDeviceModel(modelRules));
    const shared = { instances, key, random, signal: load.signal };
    const senders = models.map((model, number) => sendStreams({ ...shared, number, model }));
    const racers = models.map((_model, number) => race({ ...shared, number, ports }));
    const kills = await kill();
    load.abort();
    const requests = (await Promise.all(senders)).reduce((sum, count) => sum + count, 0);
    const races = (await Promise.all(racers)).flat();
    await recover();
    const { faults, transitions } = await compare(db, models);
    faults.push(...races.filter((fault) => fault !== undefined));
    const counts = `${requests} requests, ${transitions} transitions, ${races.length} rounds, ${kills} kills`;
    print(`seed ${setup.seed}: ${counts}, ${faults.length} faults`);
    return { requests, transitions, rounds: races.length, kills, faults };
  });
}

const deviceOf = (number: number) => `pump ${number}@demo`;
const pathOf = (number: number) => `/devices/${encodeURIComponent(deviceOf(number))}/`;
const raceRule = { name: 'race', conditions: [{ path: 'race', op: '>', value: 50 }] };

/** Creates the devices and the rules, and waits until all instances know these. */
async function prepare(url: string, key: string, devices: number): Promise<void> {
  const id_group = await createGroup(url, key);
  for (let number = 0; number < devices; number++) {
    await sendOk(url, key, 'POST', '/devices/', { name: `pump ${number}`, type: 'pump', id_group });
    await sendOk(url, key, 'POST', `/mqtt${pathOf(number).slice(1)}credentials/`, loginOf(number));
  }
  for (const rule of [...modelRules, raceRule])
    await sendOk(url, key, 'POST', '/alarmrules/', { ...rule, severity: 'info' });
  await sleep(5000);
}

const loginOf = (number: number) => ({ username: `pump ${number}`, password: 'open sesame' });

interface Sender {
  instances: readonly { url: string }[];
  key: string;
  random: () => number;
  number: number;
  signal: AbortSignal;
}

/** Sends a request to one of the instances until it succeeds. */
async function send(
  { instances, key, random }: Sender,
  method: string,
  path: string,
  body?: object,
): Promise<Response> {
  for (;;) {
    const { url } = instances[Math.floor(random() * instances.length)] ?? { url: '' };
    const response = await sendOk(url, key, method, path, body).catch(() => undefined);
    if (response !== undefined) return response;
    await sleep(50);
  }
}

/** Sends the streams of one device, one request after the other; each until it is acknowledged. @returns their number */
async function sendStreams({ model, ...sender }: Sender & { model: DeviceModel }): Promise<number> {
  const begun = Math.floor(Date.now() / 1000) - 1_000_000;
  let count = 0;
  for (; !sender.signal.aborted; count++) {
    const streams = createRandomStreams(sender.random, begun + count);
    await send(sender, 'POST', `${pathOf(sender.number)}streams/`, streams);
    model.receive(streams);
  }
  return count;
}

const streams_per_round = 6;

/**
 * Sends streams with equal `at` at the same moment, over both instances, HTTP and MQTT, round after round; after each the alarm
 * has to be what the value says that was received last. @returns the fault of each round
 */
async function race({ ports, ...sender }: Sender & { ports: readonly number[] }): Promise<(string | undefined)[]> {
  const { number, random, signal } = sender;
  // after all other streams
  const begun = Math.floor(Date.now() / 1000) - 500_000;
  const clients = ports.map((port) =>
    mqtt.connect(`mqtt://127.0.0.1:${port}`, {
      ...{ ...loginOf(number), clientId: `pump ${number} ${port}`, clean: false },
      ...{ reconnectPeriod: 100, reconnectOnConnackError: true },
    }),
  );
  for (const client of clients) client.on('error', () => undefined);
  const faults: (string | undefined)[] = [];
  while (!signal.aborted) {
    const at = begun + faults.length;
    const streams = Array.from({ length: streams_per_round }, () => ({
      at,
      data: { race: Math.floor(random() * 100) },
    }));
    await Promise.all(
      streams.map((stream, index) => {
        const client = clients[index];
        return client === undefined
          ? send(sender, 'POST', `${pathOf(number)}streams/`, stream)
          : publish(client, `${deviceOf(number)}/streams`, stream);
      }),
    );
    const shown = (await (await send(sender, 'GET', `${pathOf(number)}?fields=latest.race`)).json()) as Latest;
    const open = `${pathOf(number)}alarms/?rule=race%40demo&state=active,acknowledged`;
    const { total_documents } = (await (await send(sender, 'GET', open)).json()) as { total_documents: number };
    const { race: last } = shown.latest.data;
    const values = streams.map(({ data }) => data.race).join();
    const isFaulty = total_documents !== (last > 50 ? 1 : 0);
    faults.push(isFaulty ? `${deviceOf(number)}: ${total_documents} open after ${values}, last ${last}` : undefined);
  }
  await Promise.all(clients.map((client) => client.endAsync(true)));
  return faults;
}

interface Latest {
  latest: { data: { race: number } };
}

/** Publishes a stream until it is acknowledged: a client gives up on some when it connects again. */
async function publish(client: MqttClient, topic: string, stream: object): Promise<void> {
  for (let isSent = false; !isSent; )
    isSent = await client.publishAsync(topic, JSON.stringify(stream), { qos: 1 }).then(
      () => true,
      () => false,
    );
}

async function compare(db: mongo.Db, models: readonly DeviceModel[]) {
  const expected = models.flatMap((model) => modelRules.flatMap(({ name }) => model.transitionsOf(name)));
  const events = db.collection<LoggedAlarm>('events');
  const count = () => events.countDocuments({ resource: 'alarm', 'data.rule': { $ne: 'race@demo' } });
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
