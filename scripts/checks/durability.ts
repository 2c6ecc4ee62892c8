import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import mongoose from 'mongoose';
import { silentLog } from '../../src/lib/log.js';
import { startEmbedded } from '../../src/mongod/embedded.js';
import { type Instance, startInstance } from '../support/instance.js';
import { waitFor, waitUntil } from '../support/service-process.js';
import { createGroup, killDatabase, send, sendOk } from './instance.js';

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
  const first = await startInstance({ MQTT_PORT: 'off', WORKERS: '1' });
  const DATA_DIR = join(first.folder, 'data');
  const started = [first];
  let service = first;
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
          const begin = next;
          const numbers = Array.from({ length: writer % 2 ? batch_size : 1 }, (_, index) => begin + index);
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
      if (victim !== 'service') await killDatabase(DATA_DIR);
      if (victim !== 'mongod') {
        await service.stop('SIGKILL');
        writing.abort();
        service = await startInstance({ MQTT_PORT: 'off', WORKERS: '1', DATA_DIR });
        started.unshift(service);
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
      const showOne = async (id: string) => [await show<Shown>(service, encodeURI(`/devices/${id}/`))];
      const lateNow = await countLate(receivedAt, showOne);
      late += lateNow;
      const counts = `${acknowledged.length} acknowledged, ${missing} lost, ${lateNow} of ${ids.length} receipts late`;
      print(`${victim} ${round}/${rounds}: ${counts}, recovered after ${recovery_ms} ms`);
    }
    let lostAtEnd = 0;
    for (const [protocol, acknowledged] of acknowledgedByRound)
      lostAtEnd += await countMissing(service, protocol, acknowledged);
    const listed = async () => (await show<Shown>(service, '/devices/')).result;
    await waitUntil(async () => (await countLate(receivedAt, listed)) === 0, recovery_timeout_ms);
    const total = [...acknowledgedByRound.values()].reduce((sum, { length }) => sum + length, 0);
    return { acknowledged: total, lost: Math.max(lost, lostAtEnd), late };
  } finally {
    for (const instance of started) await instance.close();
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
      await killDatabase(folder);
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

/** Creates a few devices with their parents. @returns the identifiers of the devices */
async function createDevices({ url, key }: Instance): Promise<string[]> {
  const id_group = await createGroup(url, key);
  const names = Array.from({ length: device_count }, (_, index) => `writer ${index}`);
  for (const name of names) await sendOk(url, key, 'POST', '/devices/', { name, type: 'test', id_group });
  return names.map((name) => `${name}@demo`);
}

/** Posts one stream per number in one request. @returns whether they were acknowledged */
async function postStreams(
  { url, key }: Instance,
  ids: readonly string[],
  protocol: string,
  numbers: readonly number[],
): Promise<boolean> {
  const entries = numbers.map((n) => ({ device: ids[n % ids.length], protocol, data: { n } }));
  const response = await send(url, key, 'POST', '/streams/', entries);
  await response.arrayBuffer();
  return response.status === 200;
}

/** Counts the acknowledged streams that the service does not list exactly once. */
async function countMissing(service: Instance, protocol: string, acknowledged: readonly number[]): Promise<number> {
  const occurrences = new Map<number, number>();
  for (let offset = 0; ; offset += 1000) {
    const query = `protocol=${encodeURIComponent(protocol)}&max=1000&offset=${offset}&sort=created_at`;
    const { result } = await show<{ data: { n: number } }>(service, `/streams/?${query}`);
    for (const { data } of result) occurrences.set(data.n, (occurrences.get(data.n) ?? 0) + 1);
    if (result.length < 1000) break;
  }
  return acknowledged.filter((n) => occurrences.get(n) !== 1).length;
}

interface Shown {
  id_developer: string;
  last_stream_at?: number;
}

/** Reads a list, or one object; again where a busy machine does not answer in time. */
async function show<T>({ url, key }: Instance, path: string): Promise<T & { result: T[] }> {
  const answer = await waitFor(() => sendOk(url, key, 'GET', path), Boolean);
  return answer.json() as Promise<T & { result: T[] }>;
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
