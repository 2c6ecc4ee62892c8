import { randomBytes } from 'node:crypto';
import { realpathSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { Command } from 'commander';
import mongoose from 'mongoose';
import type { ServiceProcess } from '../../scripts/support/service-process.js';
import { startEmbedded } from '../../src/mongod/embedded.js';
import { createRandom } from '../support/random.js';
import { findFaults, type LoggedEvent, type SentRequest, type StoredObject } from './event-log-model.js';
import { parseCount, startInstance, waitUntilReady } from './instance.js';

interface Options {
  /** Length of the load. */
  seconds: number;
  seed: number;
  /** Between two kills, at random up to twice as long. */
  kill_period_ms: number;
  print: (line: string) => void;
}

/** Counts of requests and events. */
export interface Outcome {
  acknowledged: number;
  unknown: number;
  events: number;
  kills: number;
  /** Differences between the log, the acknowledged requests and the stored objects. */
  faults: readonly string[];
}

const clients = 8;
const plurals = ['projects', 'services', 'groups', 'assets', 'devices'] as const;
type Plural = (typeof plurals)[number];

/** Fields that name the parent in the body of a create, by collection. */
const parentsOf: Readonly<Record<Plural, readonly (readonly [field: string, plural: Plural])[]>> = {
  projects: [],
  services: [['id_project', 'projects']],
  groups: [['id_service', 'services']],
  assets: [['id_group', 'groups']],
  devices: [
    ['id_group', 'groups'],
    ['id_asset', 'assets'],
  ],
};

/**
 * Sends random creates, updates, moves, cascades and streams to two instances, kills instances and database with SIGKILL at
 * random moments, and compares the event log with the answers and with what is stored at the end.
 */
export async function runEventLogRaces({ seconds, seed, kill_period_ms, print }: Options): Promise<Outcome> {
  const folder = await mkdtemp(join(tmpdir(), 'event-log-'));
  const random = createRandom(seed);
  const log = { info() {}, warn() {}, error() {} };
  const embedded = await startEmbedded({ dataDir: folder, env: process.env, log, print: () => undefined });
  const key = randomBytes(16).toString('hex');
  const start = () => startInstance(embedded.uri, key);
  const client = new mongoose.mongo.MongoClient(embedded.uri);
  const instances: ServiceProcess[] = [];
  try {
    instances.push(await start(), await start());
    const requests: SentRequest[] = [];
    const load = new AbortController();
    const running = Array.from({ length: clients }, (_, number) =>
      sendRequests({ instances, key, random, requests, number, signal: load.signal }),
    );
    let kills = 0;
    for (const end = Date.now() + seconds * 1000; Date.now() < end; ) {
      await sleep(Math.min(random() * 2 * kill_period_ms, Math.max(0, end - Date.now())));
      if (Date.now() >= end) break;
      kills++;
      const victim = Math.floor(random() * 3);
      const instance = instances[victim];
      if (instance === undefined)
        process.kill(Number(await readFile(join(folder, 'db', 'mongod.lock'), 'utf8')), 'SIGKILL');
      else {
        await instance.stop('SIGKILL');
        instances[victim] = await start();
      }
    }
    load.abort();
    await Promise.all(running);
    await Promise.all(instances.map(waitUntilReady));
    const db = client.db();
    const events = await readWholeLog(db);
    const stored = await readObjects(db);
    const faults = findFaults(requests, events, stored);
    const acknowledged = requests.filter(({ code }) => code < 3000).length;
    const unknown = requests.filter(({ code }) => code >= 5000).length;
    print(
      `seed ${seed}: ${acknowledged} acknowledged, ${unknown} unknown, ${events.length} events, ${kills} kills, ${faults.length} faults`,
    );
    return { acknowledged, unknown, events: events.length, kills, faults };
  } finally {
    await Promise.all(instances.map((instance) => instance.stop('SIGKILL')));
    await client.close();
    await embedded.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

interface Client {
  instances: readonly ServiceProcess[];
  key: string;
  random: () => number;
  requests: SentRequest[];
  number: number;
  signal: AbortSignal;
}

/** Sends one request after the other until `signal` aborts. All clients share the objects they have created. */
async function sendRequests({ instances, key, random, requests, number, signal }: Client): Promise<void> {
  const chooseFrom = <T>(list: readonly T[]): T | undefined => list[Math.floor(random() * list.length)];
  const known = new Map<Plural, string[]>(plurals.map((plural) => [plural, []]));
  const choose = (plural: Plural) => chooseFrom(known.get(plural) ?? []);
  for (let count = 0; !signal.aborted; count++) {
    const plural = chooseFrom(plurals) ?? 'devices';
    const roll = random();
    const parent = chooseFrom(parentsOf[plural]);
    const parentId = parent && choose(parent[1]);
    const id = choose(plural);
    let request: Omit<SentRequest, 'code' | 'request_id' | 'version'>;
    let body: object | undefined;
    if (id === undefined || (roll < 0.35 && (parent === undefined || parentId !== undefined))) {
      if (parent !== undefined && parentId === undefined) continue;
      const name = `${plural}-${number}-${count}`;
      request = { method: 'POST', plural, id: `${name}@demo` };
      body = { name, ...(parent && { [parent[0]]: parentId }), ...requiredFields[plural] };
    } else if (roll < 0.9) {
      const isMove = roll > 0.75 && parent !== undefined && parentId !== undefined;
      request = { method: 'PUT', plural, id };
      body = isMove ? { [parent[0]]: parentId } : { description: `${number} ${count}` };
    } else if (plural === 'devices' || random() < 0.2) {
      request = { method: 'DELETE', plural, id };
    } else continue;
    const { url } = chooseFrom(instances) ?? { url: '' };
    const path = request.method === 'POST' ? `/${plural}/` : `/${plural}/${encodeURIComponent(request.id)}/`;
    const answer = await send(url + path, key, request.method, body);
    requests.push({ ...request, ...answer });
    if (answer.code === 2001) known.get(plural)?.push(request.id);
    if (answer.code === 2004 || answer.code === 4041)
      known.set(
        plural,
        (known.get(plural) ?? []).filter((one) => one !== request.id),
      );
    if (answer.code === 5030) await sleep(50);
  }
}

const requiredFields: Readonly<Record<Plural, object>> = {
  projects: { id_customer: 'c' },
  services: {},
  groups: {},
  assets: {},
  devices: { type: 'test' },
};

/** @returns the code of the answer, 5030 without one */
async function send(url: string, key: string, method: string, body: object | undefined) {
  try {
    const response = await fetch(url, {
      method,
      headers: { 'service.apikey': key, 'content-type': 'application/json' },
      signal: AbortSignal.timeout(10_000),
      ...(body && { body: JSON.stringify(body) }),
    });
    const { code, details } = (await response.json()) as { code: number; details: { version?: number } };
    return { code, request_id: response.headers.get('x-request-id') ?? '', version: details?.version };
  } catch {
    return { code: 5030, request_id: '', version: undefined };
  }
}

/** Reads the log once nothing has been added to it for a while. */
async function readWholeLog(db: mongoose.mongo.Db): Promise<LoggedEvent[]> {
  const log = db.collection<LoggedEvent>('events');
  const quiet_ms = 8000;
  for (let last = ''; ; ) {
    await sleep(quiet_ms);
    const [latest] = await log.find({}, { sort: { _id: -1 }, limit: 1 }).toArray();
    if (latest !== undefined && latest._id === last) break;
    last = latest?._id ?? '';
  }
  return log.find({}, { sort: { _id: 1 } }).toArray();
}

async function readObjects(db: mongoose.mongo.Db): Promise<StoredObject[]> {
  const objects: StoredObject[] = [];
  for (const plural of plurals) {
    const projection = { _id: 0, id_developer: 1, version: 1 };
    for await (const { id_developer, version } of db.collection(plural).find({}, { projection }))
      objects.push({ resource: plural.slice(0, -1), id_developer, version });
  }
  return objects;
}

async function main(): Promise<void> {
  const program = new Command('races')
    .description('Compares the event log with random requests, while two instances and the database are killed.')
    .option('--minutes <n>', 'length of the load', parseCount, 30)
    .option('--seed <n>', 'first seed; each run of a minute takes the next one', parseCount, 1)
    .parse();
  const { minutes, seed } = program.opts<{ minutes: number; seed: number }>();
  for (let minute = 0; minute < minutes; minute++) {
    const run = { seconds: 60, seed: seed + minute, kill_period_ms: 4000 };
    const { faults } = await runEventLogRaces({ ...run, print: console.log });
    for (const fault of faults.slice(0, 20)) console.log(fault);
    if (faults.length > 0) process.exitCode = 1;
  }
}

const [, entry = ''] = process.argv;
if (entry !== '' && import.meta.url === pathToFileURL(realpathSync(entry)).href) await main();
