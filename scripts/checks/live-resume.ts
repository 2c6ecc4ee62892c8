import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import mongoose from 'mongoose';
import { silentLog } from '../../src/lib/log.js';
import { startEmbedded } from '../../src/mongod/embedded.js';
import { createRandom } from '../../tests/support/random.js';
import { type ServiceProcess, waitUntil } from '../support/service-process.js';
import { createGroup, sendOk, startInstance, waitUntilReady } from './instance.js';
import { type ResumingReader, startResumingReader } from './resuming-reader.js';

interface Options {
  /** Kills of the service. */
  tries: number;
  seed: number;
  print: (line: string) => void;
}

/** Counts of what the readers received. */
export interface Outcome {
  events: number;
  streams: number;
  /** Connections that resumed by an id. */
  resumed: number;
  /** Differences between what a reader received and what is stored. */
  faults: readonly string[];
}

const writers = 4;
const pause_ms = 10;
const recovery_timeout_ms = 120_000;
const device_count = 4;

/**
 * Kills the service with SIGKILL again and again while devices and streams are written and both live feeds are read, by
 * readers that resume with the last id. Compares what they received with the log of events and with the stored streams.
 */
export async function runLiveResume({ tries, seed, print }: Options): Promise<Outcome> {
  const folder = await mkdtemp(join(tmpdir(), 'live-resume-'));
  const embedded = await startEmbedded({ dataDir: folder, env: process.env, log: silentLog, print: () => undefined });
  const client = new mongoose.mongo.MongoClient(embedded.uri);
  const key = randomBytes(16).toString('hex');
  const random = createRandom(seed);
  let service = await startInstance(embedded.uri, key);
  const urlOf = (path: string) => () => service.url + path;
  const readers = ['/events/live/', '/streams/live/'].map((path) => startResumingReader(urlOf(path), key));
  const [events, streams] = readers as [ResumingReader, ResumingReader];
  try {
    await waitUntilReady(service);
    const write = createWriter(() => service, key);
    await createDevices(service.url, key);
    await waitUntil(() => readers.every(({ first_id }) => first_id() !== ''), recovery_timeout_ms);
    const writing = new AbortController();
    const acknowledged: number[] = [];
    const running = Array.from({ length: writers }, (_, number) =>
      writeAlways({ write, random, number, acknowledged, signal: writing.signal }),
    );
    for (let attempt = 1; attempt <= tries; attempt++) {
      const connections = readers.map((reader) => reader.connections());
      await service.stop('SIGKILL');
      service = await startInstance(embedded.uri, key);
      const received = events.messages.length;
      await waitUntil(
        () => readers.every((reader, index) => reader.connections() > (connections[index] ?? 0)),
        recovery_timeout_ms,
      );
      // the log continues only when the lease of the killed instance has expired
      const waitsForEvents = random() < 0.5;
      if (waitsForEvents) await waitUntil(() => events.messages.length > received, recovery_timeout_ms);
      await sleep(random() * 1000);
      const counts = `${events.messages.length} events, ${streams.messages.length} streams`;
      print(`try ${attempt}/${tries}: ${counts} received`);
    }
    writing.abort();
    await Promise.all(running);
    await waitUntilReady(service);
    const faults = await findFaults({ client, write, events, streams, acknowledged });
    const resumed = readers.reduce((sum, reader) => sum + reader.connections() - 1, 0);
    const outcome = { events: events.messages.length, streams: streams.messages.length, resumed, faults };
    const counts = `${outcome.events} events, ${outcome.streams} streams`;
    const ends = `${resumed} resumed, ${events.overflows() + streams.overflows()} overflows`;
    print(`seed ${seed}: ${tries} kills, ${counts}, ${ends}, ${faults.length} faults`);
    return outcome;
  } finally {
    await Promise.all(readers.map((reader) => reader.close()));
    await service.stop('SIGKILL');
    await client.close();
    await embedded.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

/** Sends one request. @returns whether it was acknowledged */
type Write = (method: string, path: string, body: object) => Promise<boolean>;

function createWriter(service: () => ServiceProcess, key: string): Write {
  return (method, path, body) =>
    sendOk(service().url, key, method, path, body)
      .then((response) => response.arrayBuffer())
      .then(
        () => true,
        () => false,
      );
}

const deviceName = (index: number) => `reader-${index}`;

async function createDevices(url: string, key: string): Promise<void> {
  const id_group = await createGroup(url, key);
  for (let index = 0; index < device_count; index++)
    await sendOk(url, key, 'POST', '/devices/', { name: deviceName(index), type: 'test', id_group });
}

interface Writing {
  write: Write;
  random: () => number;
  number: number;
  /** Numbers of the streams that were acknowledged. */
  acknowledged: number[];
  signal: AbortSignal;
}

/** Creates and updates devices and posts streams, with a number in each, until `signal` aborts. */
async function writeAlways({ write, random, number, acknowledged, signal }: Writing): Promise<void> {
  for (let count = 0; !signal.aborted; ) {
    const roll = random();
    const device = `${deviceName(Math.floor(random() * device_count))}@demo`;
    if (roll < 0.2)
      await write('POST', '/devices/', { name: `d-${number}-${count++}`, type: 'test', id_group: 'g@demo' });
    else if (roll < 0.4) await write('PUT', `/devices/${device}/`, { description: `${number} ${count++}` });
    else {
      const numbers = Array.from({ length: roll < 0.7 ? 1 : 20 }, () => number + writers * count++);
      const bodies = numbers.map((n) => ({ device, data: { n } }));
      if (await write('POST', '/streams/', bodies)) acknowledged.push(...numbers);
    }
    await sleep(pause_ms);
  }
}

interface Comparison {
  client: mongoose.mongo.MongoClient;
  write: Write;
  events: ResumingReader;
  streams: ResumingReader;
  acknowledged: readonly number[];
}

const last_number = -1;

/** Writes a last device and a last stream, waits until both were received, and compares all before them. */
async function findFaults({ client, write, events, streams, acknowledged }: Comparison): Promise<string[]> {
  const lastDevice = { name: 'last', type: 'test', id_group: 'g@demo' };
  const lastStream = { device: `${deviceName(0)}@demo`, data: { n: last_number } };
  // again where a busy machine does not answer in time
  await waitUntil(() => write('POST', '/devices/', lastDevice), recovery_timeout_ms);
  await waitUntil(() => write('POST', '/streams/', lastStream), recovery_timeout_ms);
  await waitUntil(() => events.messages.some(({ data }) => data.id_developer === 'last@demo'), recovery_timeout_ms);
  await waitUntil(() => streams.messages.some(({ data }) => data.data.n === last_number), recovery_timeout_ms);
  const db = client.db();
  const end = events.messages.find(({ data }) => data.id_developer === 'last@demo')?.id ?? '';
  const inRange = { _id: { $gt: events.first_id(), $lte: end } };
  const logged = await db
    .collection<{ _id: string }>('events')
    .find(inRange, { sort: { _id: 1 } })
    .toArray();
  const received = events.messages.map(({ id }) => id).filter((id) => id <= end);
  const stored = (await db.collection('streams').find().toArray()).map(({ data }): number => data.n);
  const numbers = streams.messages.map(({ data }): number => data.data.n);
  const known = new Set(stored);
  const lost = acknowledged.filter((n) => !known.has(n));
  return [
    ...[...events.refusals, ...streams.refusals].map((answer) => `refused: ${answer}`),
    ...compare(
      'events',
      received,
      logged.map(({ _id }) => _id),
    ),
    ...compare('streams', numbers.toSorted(byValue), stored.toSorted(byValue)),
    ...lost.map((n) => `stream ${n} was acknowledged and is not stored`),
    ...findDisorder('events', events),
    ...findDisorder('streams', streams),
  ];
}

const byValue = (one: number, other: number) => one - other;

/** Finds what one list lacks, has too much of, or twice. Both are sorted. */
function compare(of: string, received: readonly (string | number)[], stored: readonly (string | number)[]): string[] {
  const count = (list: readonly (string | number)[]) => {
    const counts = new Map<string | number, number>();
    for (const one of list) counts.set(one, (counts.get(one) ?? 0) + 1);
    return counts;
  };
  const [left, right] = [count(received), count(stored)];
  return [...new Set([...received, ...stored])]
    .filter((one) => left.get(one) !== right.get(one))
    .map((one) => `${of}: ${one} is stored ${right.get(one) ?? 0} times, received ${left.get(one) ?? 0} times`);
}

function findDisorder(of: string, { messages }: ResumingReader): string[] {
  return messages
    .filter(({ id }, index) => index > 0 && id <= (messages[index - 1]?.id ?? ''))
    .map(({ id }) => `${of}: ${id} came after a later one`);
}
