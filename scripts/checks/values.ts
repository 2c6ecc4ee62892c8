import { realpathSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { Command } from 'commander';
import type { mongo } from 'mongoose';
import { waitUntil } from '../support/service-process.js';
import { createGroup, parseCount, sendOk } from './instance.js';
import { type RaceOptions, type Races, runForMinutes, withRaces } from './races.js';
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

/**
 * Sends random streams to two instances and deletes some, kills instances and database at random moments, and compares the lists
 * of devices by values with the streams that are stored then.
 */
export function runValueRaces({ devices, print, ...setup }: RaceOptions & { devices: number }) {
  return withRaces(setup, async (races) => {
    const { instances, key, random, db, kill, recover } = races;
    const load = new AbortController();
    const names = Array.from({ length: devices }, (_, number) => `gauge ${number}`);
    await prepare(instances[0]?.url ?? '', key, names);
    const workers = names.map((name) => change(races, name, load.signal));
    const kills = await kill();
    load.abort();
    const requests = (await Promise.all(workers)).reduce((sum, count) => sum + count, 0);
    await recover();
    const due = () =>
      db.collection('device_value_reviews').countDocuments({ due_at: { $lte: Date.now() / 1000 + 60 } });
    await waitUntil(async () => (await due()) === 0, review_limit_ms);
    const url = instances[0]?.url ?? '';
    const faults = await compare({ url, key, random, models: await readStreams(db, names) });
    print(`seed ${setup.seed}: ${requests} requests, ${kills} kills, ${faults.length} faults`);
    return { requests, kills, faults };
  });
}

async function prepare(url: string, key: string, names: readonly string[]): Promise<void> {
  const id_group = await createGroup(url, key);
  for (const name of names) await sendOk(url, key, 'POST', '/devices/', { name, type: 'gauge', id_group });
  // one path is declared under load
  const measures = modelPaths.slice(1).map((path) => ({ path, filter: true }));
  await sendOk(url, key, 'POST', '/models/', { name: 'Gauge', measures });
  setTimeout(() => void declareFirst(url, key), 5000);
}

async function declareFirst(url: string, key: string): Promise<void> {
  const measures = [{ path: modelPaths[0], filter: true }];
  await sendOk(url, key, 'POST', '/models/', { name: 'Late', measures }).catch(() => undefined);
}

/** Changes the streams of one device, one request after the other. @returns their number */
async function change({ instances, key, random }: Races, name: string, signal: AbortSignal): Promise<number> {
  const path = `/devices/${encodeURIComponent(`${name}@demo`)}/streams/`;
  let count = 0;
  for (; !signal.aborted; count++) {
    const { url } = instances[Math.floor(random() * instances.length)] ?? { url: '' };
    const now = Math.floor(Date.now() / 1000);
    const request =
      random() < 0.9
        ? sendOk(url, key, 'POST', path, createRandomStream(random, now))
        : sendOk(url, key, 'DELETE', `${path}?at_from=${now - Math.floor(random() * 5)}`);
    await request.catch(() => sleep(50));
  }
  return count;
}

async function readStreams(db: mongo.Db, names: readonly string[]): Promise<ModelDevice[]> {
  return Promise.all(
    names.map(async (name) => {
      const bounds = {
        $gte: { account: 'demo', device: `${name}@demo` },
        $lt: { account: 'demo', device: `${name}@demo~` },
      };
      const stored = await db
        .collection('streams')
        .find({ _id: bounds } as object, { sort: { _id: 1 } })
        .toArray();
      // of equal times the last received is the last in the order of ids
      return { name, streams: stored.map(({ _id, data }) => ({ at: (_id as unknown as { at: number }).at, data })) };
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
  await sendOk(url, key, 'POST', '/models/', { name: 'Last', measures: [{ path: modelPaths[0], filter: true }] });
  const first = `/devices/?sort=latest.${modelPaths[0]}`;
  await waitUntil(() => sendOk(url, key, 'GET', first).then(Boolean, () => false), review_limit_ms);
  const faults: string[] = [];
  for (let number = 0; number < comparisons; number++) {
    const path = modelPaths[number % modelPaths.length] ?? '';
    const condition = createRandomCondition(random);
    const query = `/devices/?sort=latest.${path}${formatCondition(path, condition)}&fields=name`;
    const { result } = (await (await sendOk(url, key, 'GET', query)).json()) as { result: { name: string }[] };
    const listed = result.map(({ name }) => name).join();
    const expected = listByModel(models, path, { ...(condition && { condition }), now: Date.now() / 1000 }).join();
    if (listed !== expected) faults.push(`${query}: ${listed} instead of ${expected}`);
  }
  return faults;
}

const [, entry = ''] = process.argv;
if (entry !== '' && import.meta.url === pathToFileURL(realpathSync(entry)).href) {
  const program = new Command('values')
    .description('Compares lists by last values with a plain model, while two instances and the database are killed.')
    .option('--devices <n>', 'devices that send at the same time', parseCount, 16);
  await runForMinutes(program, (options) => runValueRaces({ ...program.opts<{ devices: number }>(), ...options }));
}
