import { randomBytes } from 'node:crypto';
import { realpathSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { Command, InvalidArgumentError } from 'commander';
import mongoose from 'mongoose';
import { silentLog } from '../../src/lib/log.js';
import { startEmbedded } from '../../src/mongod/embedded.js';
import { type ServiceProcess, startServiceProcess, waitFor, waitUntil } from '../support/service-process.js';

export type Victim = 'service' | 'mongod' | 'both';

/** Counts of writes. */
export interface Outcome {
  acknowledged: number;
  /** Acknowledged, but missing in the database. */
  lost: number;
}

/** Counts of streams. */
export interface StreamOutcome extends Outcome {
  /** Devices that were shown with a receipt before that of an acknowledged stream. */
  late: number;
}

interface Options {
  /** The number of kills. */
  rounds: number;
  print: (line: string) => void;
}

const writers = 12;
const batch_size = 20;
const device_count = 4;
const recovery_timeout_ms = 120_000;

/**
 * Posts streams from several clients, singly and in arrays, and kills the victim with SIGKILL, several times on the same
 * data. After every kill, and at the end over all of them, it counts the acknowledged streams that the service no longer
 * lists, and the devices that it shows with an earlier receipt. @throws Error if the service does not recover, or if a minute
 * later its lists do not show the receipts
 */
export async function killDuringIngest(victim: Victim, { rounds, print }: Options): Promise<StreamOutcome> {
  const folder = await mkdtemp(join(tmpdir(), 'durability-'));
  const key = randomBytes(16).toString('hex');
  let service = await startService(folder, key);
  try {
    const ids = await createDevices(service);
    const acknowledgedByRound = new Map<string, number[]>();
    const receivedAt = new Map(ids.map((id) => [id, 0]));
    let [lost, late] = [0, 0];
    let next = 0;
    for (let round = 1; round <= rounds; round++) {
      const protocol = `round ${round}`;
      const acknowledged: number[] = [];
      acknowledgedByRound.set(protocol, acknowledged);
      const writing = new AbortController();
      const current = service;
      const clients = Array.from({ length: writers }, async (_, writer) => {
        while (!writing.signal.aborted) {
          const first = next;
          const numbers = Array.from({ length: writer % 2 ? batch_size : 1 }, (_, index) => first + index);
          next += numbers.length;
          const begun = Math.floor(Date.now() / 1000);
          const isStored = await postStreams(current, ids, protocol, numbers).catch(() => false);
          if (isStored) acknowledged.push(...numbers);
          const senders = isStored ? numbers.map((n) => ids[n % ids.length] ?? '') : [];
          for (const id of senders) receivedAt.set(id, Math.max(receivedAt.get(id) ?? 0, begun));
          if (!isStored) await sleep(10);
        }
      });
      // a kill at any moment of steady writes; a busy machine takes longer to begin
      await waitUntil(() => acknowledged.length > 3 * batch_size, recovery_timeout_ms);
      await sleep(Math.random() * 700);
      const killedAt = performance.now();
      if (victim !== 'service') process.kill(await readMongodPid(folder), 'SIGKILL');
      if (victim !== 'mongod') {
        await service.stop('SIGKILL');
        writing.abort();
        service = await startService(folder, key);
      } else {
        // until streams are acknowledged again
        const before = acknowledged.length;
        await waitUntil(() => acknowledged.length > before + writers * batch_size, recovery_timeout_ms);
        writing.abort();
      }
      const recovery_ms = Math.round(performance.now() - killedAt);
      await Promise.all(clients);
      const missing = await countMissing(service, protocol, acknowledged);
      lost += missing;
      const lateNow = await countLate(receivedAt, async (id) => [await show(service, `/devices/${id}/`)]);
      late += lateNow;
      const counts = `${acknowledged.length} acknowledged, ${missing} lost, ${lateNow} of ${ids.length} receipts late`;
      print(`${victim} ${round}/${rounds}: ${counts}, recovered after ${recovery_ms} ms`);
    }
    let lostAtEnd = 0;
    for (const [protocol, acknowledged] of acknowledgedByRound)
      lostAtEnd += await countMissing(service, protocol, acknowledged);
    const listed = async () => (await show(service, '/devices/')).result;
    await waitUntil(async () => (await countLate(receivedAt, listed)) === 0, recovery_timeout_ms);
    const total = [...acknowledgedByRound.values()].reduce((sum, { length }) => sum + length, 0);
    return { acknowledged: total, lost: Math.max(lost, lostAtEnd), late };
  } finally {
    await service.stop();
    await killOrphanedMongod(folder);
    await rm(folder, { recursive: true, force: true });
  }
}

/** The control: kills the same mongod the same way while it acknowledges writes with `w: 1`, without the journal. */
export async function killDuringUnsafeWrites({ rounds, print }: Options): Promise<Outcome> {
  const folder = await mkdtemp(join(tmpdir(), 'durability-'));
  const { uri, stop } = await startEmbedded({ dataDir: folder, env: process.env, log: silentLog, print });
  const client = new mongoose.mongo.MongoClient(uri, {
    writeConcern: { w: 1, journal: false },
    serverSelectionTimeoutMS: 1000,
    socketTimeoutMS: 2000,
  });
  const outcome: Outcome = { acknowledged: 0, lost: 0 };
  try {
    for (let round = 1; round <= rounds; round++) {
      const collection = client.db().collection<{ _id: number }>(`round ${round}`);
      const acknowledged: number[] = [];
      const writing = new AbortController();
      let next = 0;
      const clients = Array.from({ length: writers }, async () => {
        while (!writing.signal.aborted) {
          const _id = next++;
          const isStored = await collection.insertOne({ _id }).then(
            () => true,
            () => false,
          );
          if (isStored) acknowledged.push(_id);
        }
      });
      await sleep(300 + Math.random() * 700);
      process.kill(await readMongodPid(folder), 'SIGKILL');
      writing.abort();
      await Promise.all(clients);
      let stored: Set<number> | undefined;
      await waitUntil(async () => {
        stored = new Set((await collection.find().toArray()).map(({ _id }) => _id));
        return true;
      }, recovery_timeout_ms);
      const missing = acknowledged.filter((_id) => stored?.has(_id) !== true).length;
      outcome.acknowledged += acknowledged.length;
      outcome.lost += missing;
      print(`control ${round}/${rounds}: ${acknowledged.length} acknowledged, ${missing} lost`);
    }
    return outcome;
  } finally {
    await client.close();
    await stop();
    await rm(folder, { recursive: true, force: true });
  }
}

interface Service extends ServiceProcess {
  key: string;
}

/** Starts the built service with its embedded database in `folder`. */
async function startService(folder: string, key: string): Promise<Service> {
  const settings = {
    PORT: '0',
    MQTT_PORT: 'off',
    LOG_FORMAT: 'off',
    LOG_LEVEL: 'fatal',
    MONGODB_URI: '',
    BASE_PATH: '',
  };
  const env = { ...process.env, ...settings, WORKERS: '1', DATA_DIR: folder, BOOTSTRAP_API_KEY: key };
  return { ...(await startServiceProcess({ env })), key };
}

/** A mongod outlives a service that was killed and not started again. */
async function killOrphanedMongod(folder: string): Promise<void> {
  const pid = await readMongodPid(folder).catch(() => 0);
  const command = pid > 0 ? await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '') : '';
  if (command.includes(join(folder, 'db'))) process.kill(pid, 'SIGKILL');
}

async function readMongodPid(folder: string): Promise<number> {
  return Number(await readFile(join(folder, 'db', 'mongod.lock'), 'utf8'));
}

async function send({ url, key }: Service, method: string, path: string, body?: object): Promise<Response> {
  return fetch(url + path, {
    method,
    headers: { 'service.apikey': key, 'content-type': 'application/json' },
    signal: AbortSignal.timeout(10_000),
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
}

/** Creates a few devices with their parents. @returns the identifiers of the devices */
async function createDevices(service: Service): Promise<string[]> {
  const create = async (plural: string, body: object) => {
    const response = await send(service, 'POST', `/${plural}/`, body);
    if (response.status !== 200) throw new Error(`cannot create ${plural}: ${await response.text()}`);
    return decodeURIComponent(response.headers.get('location')?.split('/').at(-2) ?? '');
  };
  const id_project = await create('projects', { name: 'durability', id_customer: 'test' });
  const id_service = await create('services', { name: 'durability', id_project });
  const id_group = await create('groups', { name: 'durability', id_service });
  const ids: string[] = [];
  for (let count = 0; count < device_count; count++)
    ids.push(await create('devices', { name: 'writer', type: 'test', id_group }));
  return ids;
}

/** Posts one stream per number in one request. @returns whether they were acknowledged */
async function postStreams(
  service: Service,
  ids: readonly string[],
  protocol: string,
  numbers: readonly number[],
): Promise<boolean> {
  const entries = numbers.map((n) => ({ device: ids[n % ids.length], protocol, data: { n } }));
  const response = await send(service, 'POST', '/streams/', entries);
  await response.arrayBuffer();
  return response.status === 200;
}

/** Counts the acknowledged streams that the service does not list exactly once. */
async function countMissing(service: Service, protocol: string, acknowledged: readonly number[]): Promise<number> {
  const occurrences = new Map<number, number>();
  for (let offset = 0; ; offset += 1000) {
    const query = `protocol=${encodeURIComponent(protocol)}&max=1000&offset=${offset}&sort=created_at`;
    const list = () => send(service, 'GET', `/streams/?${query}`);
    // a busy machine may not answer in time
    const response = await waitFor(list, ({ status }) => status !== 503);
    if (response.status !== 200) throw new Error(`cannot list streams: ${await response.text()}`);
    const { result } = (await response.json()) as { result: { data: { n: number } }[] };
    for (const { data } of result) occurrences.set(data.n, (occurrences.get(data.n) ?? 0) + 1);
    if (result.length < 1000) break;
  }
  return acknowledged.filter((n) => occurrences.get(n) !== 1).length;
}

interface Shown {
  id_developer: string;
  last_stream_at?: number;
}

async function show(service: Service, path: string): Promise<Shown & { result: Shown[] }> {
  const response = await send(service, 'GET', encodeURI(path));
  if (response.status !== 200) throw new Error(`cannot show ${path}: ${await response.text()}`);
  return (await response.json()) as Shown & { result: Shown[] };
}

/** Counts the devices that are shown with a receipt before that of an acknowledged stream. */
async function countLate(
  receivedAt: ReadonlyMap<string, number>,
  load: (id: string) => Promise<readonly Shown[]>,
): Promise<number> {
  let late = 0;
  for (const [id, received_at] of receivedAt) {
    const shown = (await load(id)).find(({ id_developer }) => id_developer === id);
    if ((shown?.last_stream_at ?? 0) < received_at) late++;
  }
  return late;
}

function parseRounds(text: string): number {
  if (!/^[1-9][0-9]{0,3}$/.test(text)) throw new InvalidArgumentError('must be a whole number from 1 to 9999.');
  return Number(text);
}

async function main(): Promise<void> {
  const program = new Command('durability')
    .description('Kills the service and its database during ingest and counts acknowledged streams that are missing.')
    .option('--rounds <n>', 'kills of each victim', parseRounds, 10)
    .parse();
  const options = { rounds: program.opts<{ rounds: number }>().rounds, print: console.log };
  let failed = false;
  for (const victim of ['service', 'mongod', 'both'] as const) {
    const { acknowledged, lost, late } = await killDuringIngest(victim, options);
    console.log(`${victim}: ${lost} of ${acknowledged} acknowledged streams lost, ${late} receipts late`);
    failed ||= lost > 0 || late > 0;
  }
  const control = await killDuringUnsafeWrites(options);
  console.log(`control, w:1 without journal: ${control.lost} of ${control.acknowledged} acknowledged writes lost`);
  if (control.lost === 0) {
    console.log(`the control lost nothing in ${options.rounds} rounds, so the result proves nothing: use more rounds`);
    failed = true;
  }
  process.exitCode = failed ? 1 : 0;
}

const [, entry = ''] = process.argv;
if (entry !== '' && import.meta.url === pathToFileURL(realpathSync(entry)).href) await main();
