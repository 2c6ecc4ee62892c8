import { setTimeout as sleep } from 'node:timers/promises';
import type { mongo } from 'mongoose';
import { waitUntil } from '../support/service-process.js';
import { createGroup, send, sendOk } from './instance.js';
import { type RaceOptions, type Races, withRaces } from './races.js';
import {
  createRandomCondition,
  createRandomStream,
  formatCondition,
  listByModel,
  type ModelDevice,
  modelPaths,
} from './value-model.js';

const comparisons = 200;
/** Reviews that crashes leave behind are due by then. */
const review_limit_ms = 90_000;
const model_pause_ms = 500;

/**
 * Sends random streams to two instances, deletes some and whole devices, which come again under their name, and changes what a
 * model declares. Kills instances and database at random moments, and compares the lists of devices by values with the
 * streams that are stored then.
 */
export function runValueRaces({ devices, print, ...setup }: RaceOptions & { devices: number }) {
  return withRaces(setup, async (races) => {
    const { instances, key, random, db, kill, recover } = races;
    const load = new AbortController();
    const names = Array.from({ length: devices }, (_, number) => `gauge ${number}`);
    const id_group = await prepare(instances[0]?.url ?? '', key, names);
    const workers = [
      ...names.map((name) => change(races, { name, id_group }, load.signal)),
      changeModel(races, load.signal),
    ];
    const kills = await kill();
    load.abort();
    const requests = (await Promise.all(workers)).reduce((sum, count) => sum + count, 0);
    await recover();
    const due = () =>
      db.collection('device_value_reviews').countDocuments({ due_at: { $lte: Date.now() / 1000 + 60 } });
    await waitUntil(async () => (await due()) === 0, review_limit_ms);
    const url = instances[0]?.url ?? '';
    await declareAll(url, key);
    const faults = await compare({ url, key, random, models: await readStreams(db) });
    print(`seed ${setup.seed}: ${requests} requests, ${kills} kills, ${faults.length} faults`);
    return { requests, kills, faults };
  });
}

/** @returns the group of the devices */
async function prepare(url: string, key: string, names: readonly string[]): Promise<string> {
  const id_group = await createGroup(url, key);
  for (const name of names) await sendOk(url, key, 'POST', '/devices/', { name, type: 'gauge', id_group });
  await sendOk(url, key, 'POST', '/models/', { name: 'Gauge', measures: declare(fixedPath) });
  return id_group;
}

const [changedPath, fixedPath, removedPath] = modelPaths;
const declare = (...paths: readonly string[]) => paths.map((path) => ({ path, filter: true }));

const choose = <T>({ random }: Pick<Races, 'random'>, list: readonly T[]): T =>
  list[Math.floor(random() * list.length)] as T;

/** Changes the streams of one device, one request after the other. @returns their number */
async function change(races: Races, device: { name: string; id_group: string }, signal: AbortSignal): Promise<number> {
  const { instances, key, random } = races;
  const path = `/devices/${encodeURIComponent(`${device.name}@demo`)}/`;
  let count = 0;
  for (; !signal.aborted; count++) {
    const { url } = choose(races, instances);
    const now = Math.floor(Date.now() / 1000);
    const roll = random();
    const request =
      roll < 0.9
        ? sendOk(url, key, 'POST', `${path}streams/`, createRandomStream(random, now))
        : roll < 0.98
          ? sendOk(url, key, 'DELETE', `${path}streams/?at_from=${now - Math.floor(random() * 5)}`)
          : sendOk(url, key, 'DELETE', path);
    await request.catch(() => sleep(50));
    if (roll >= 0.98) await createAgain(races, device, path);
  }
  return count;
}

/** Creates a device unless it is there. An answer that was lost may let a second one be created, which sends nothing. */
async function createAgain({ instances, key }: Races, device: object, path: string): Promise<void> {
  for (let attempt = 0; ; attempt++) {
    const { url } = instances[attempt % instances.length] ?? { url: '' };
    const { status } = await send(url, key, 'GET', path).catch(() => ({ status: 0 }));
    if (status === 200) return;
    if (status === 404)
      await sendOk(url, key, 'POST', '/devices/', { ...device, type: 'gauge' }).catch(() => undefined);
    await sleep(50);
  }
}

/** Declares one path again and again, and takes it back; another with a model that is deleted again. */
async function changeModel(races: Races, signal: AbortSignal): Promise<number> {
  const { instances, key, random } = races;
  let count = 0;
  for (; !signal.aborted; count++) {
    const { url } = choose(races, instances);
    const measures = random() < 0.5 ? declare(fixedPath) : declare(fixedPath, changedPath);
    const other = { name: 'Other', measures: declare(removedPath) };
    const request = [
      () => sendOk(url, key, 'PUT', '/models/Gauge@demo/', { measures }),
      () => sendOk(url, key, 'POST', '/models/', other),
      () => sendOk(url, key, 'DELETE', '/models/Other@demo/'),
    ][count % 3];
    await request?.().catch(() => undefined);
    await sleep(model_pause_ms);
  }
  return count;
}

/** Declares all paths, and waits until lists can be filtered by them. */
async function declareAll(url: string, key: string): Promise<void> {
  await sendOk(url, key, 'PUT', '/models/Gauge@demo/', { measures: declare(...modelPaths) });
  for (const path of modelPaths)
    await waitUntil(
      () => sendOk(url, key, 'GET', `/devices/?sort=latest.${path}`).then(Boolean, () => false),
      review_limit_ms,
    );
}

/** Reads the devices in the order of their creation, each with its streams. */
async function readStreams(db: mongo.Db): Promise<ModelDevice[]> {
  const devices = await db
    .collection('devices')
    .find({}, { sort: { _id: 1 } })
    .toArray();
  return Promise.all(
    devices.map(async ({ _id: parent, id_developer: device }) => {
      const bounds = { $gte: { account: 'demo', device }, $lt: { account: 'demo', device: `${device}~` } };
      const stored = await db
        .collection('streams')
        .find({ _id: bounds, parent } as object, { sort: { _id: 1 } })
        .toArray();
      // of equal times the last received is the last in the order of ids
      const streams = stored.map(({ _id, data }) => ({ at: (_id as unknown as { at: number }).at, data }));
      return { name: String(device), streams };
    }),
  );
}

interface Comparison {
  url: string;
  key: string;
  random: () => number;
  models: readonly ModelDevice[];
}

async function compare({ url, key, random, models }: Comparison): Promise<string[]> {
  const faults: string[] = [];
  for (let number = 0; number < comparisons; number++) {
    const path = modelPaths[number % modelPaths.length] ?? '';
    const condition = createRandomCondition(random);
    const query = `/devices/?sort=latest.${path}${formatCondition(path, condition)}&fields=id_developer`;
    const { result } = (await (await sendOk(url, key, 'GET', query)).json()) as {
      result: { id_developer: string }[];
    };
    const listed = result.map(({ id_developer }) => id_developer).join();
    const expected = listByModel(models, path, { ...(condition && { condition }), now: Date.now() / 1000 }).join();
    if (listed !== expected) faults.push(`${query}: ${listed} instead of ${expected}`);
  }
  return faults;
}
