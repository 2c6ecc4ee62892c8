import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import mongoose from 'mongoose';
import { createRandom } from '../../tests/support/random.js';
import { type ReplicaSet, startReplicaSet } from '../../tests/support/replica-set.js';
import { findFreePort, type ServiceProcess, waitUntil } from '../support/service-process.js';
import { findFaults, type SentRequest } from './event-log-model.js';
import { sendOk, startInstance, waitUntilReady } from './instance.js';
import { countLines, findRepeatedLines, type LogEntry, parseLog } from './log-lines.js';
import {
  createStreamDevice,
  findLongestPause,
  findStreamFaults,
  type StreamSender,
  startPosting,
  startPublishing,
} from './numbered-streams.js';
import { readObjects, readWholeLog, sendRequests } from './random-requests.js';

/** Fault of the primary: it is killed, steps down, or hangs until another is elected, or for a moment. */
export type Fault = 'kill' | 'step down' | 'partition' | 'short partition';

interface Options {
  /** In this order. */
  faults: Iterable<Fault>;
  seed: number;
  /** Settings of the replica set, in milliseconds. */
  election: { electionTimeoutMillis: number; heartbeatIntervalMillis: number };
  /** Pause of a client between two requests; default: none. */
  pause_ms?: number;
  print: (line: string) => void;
}

/** Counts of writes, and what was wrong. */
export interface Outcome {
  /** Acknowledged requests, posted and published streams. */
  acknowledged: { requests: number; posted: number; published: number };
  events: number;
  /** Differences between answers, event log, stored objects and streams. */
  faults: readonly string[];
  /** Lines of the log that follow one of the same cause within a second. */
  repeatedLines: readonly string[];
  /** Holders of the lease of the event log before and after its holder was killed. */
  holders: readonly [before: string, after: string];
  /** Longest time without an acknowledged stream at one instance, in milliseconds. */
  pauses_ms: ReadonlyMap<Fault, number>;
}

const instance_count = 2;
const clients = 6;
const posters_per_instance = 2;
/** One publisher at each instance. */
const load_before_fault_ms = 1000;
const recovery_timeout_ms = 120_000;
/** Acknowledged streams at each sender after which writes count as recovered. */
const recovered_streams = 10;
const step_down_s = 5;
const max_log_length = 4000;
const readiness_period_ms = 50;
const lease = 'event-log';

/**
 * Kills, steps down and partitions the primary of a replica set of three while two instances of the service are written to, over
 * HTTP and MQTT. Compares what was acknowledged with what is stored and with the event log, and reads the log of the instances.
 * @throws Error if an instance does not recover by itself
 */
export async function runFailover({ faults, seed, election, pause_ms, print }: Options): Promise<Outcome> {
  const folder = await mkdtemp(join(tmpdir(), 'failover-'));
  const random = createRandom(seed);
  const key = randomBytes(16).toString('hex');
  const set = await startReplicaSet({ folder, settings: election });
  const database = new mongoose.mongo.MongoClient(set.uri);
  const instances: ServiceProcess[] = [];
  try {
    const mqttUrls: string[] = [];
    for (let count = 0; count < instance_count; count++) {
      const port = String(await findFreePort());
      instances.push(await startInstance(set.uri, key, { MQTT_PORT: port, LOG_LEVEL: 'info' }));
      mqttUrls.push(`mqtt://127.0.0.1:${port}`);
    }
    const [first] = instances;
    if (first === undefined) throw new Error('no instance');
    const device = await createStreamDevice(first.url, key, 'failover');
    const load = new AbortController();
    const requests: SentRequest[] = [];
    const running = Array.from({ length: clients }, (_, number) =>
      sendRequests({ instances, key, random, requests, number, pause_ms, signal: load.signal }),
    );
    const posting = instances.flatMap(({ url }) =>
      Array.from({ length: posters_per_instance }, () => startPosting(url, key, device)),
    );
    const publishing = await Promise.all(mqttUrls.map((url) => startPublishing(url, device)));
    const senders = [...posting, ...publishing];
    const pauses_ms = new Map<Fault, number>();
    for (const fault of faults) {
      await sleep(load_before_fault_ms * (0.5 + random()));
      const pause_ms = await causeFault(fault, { set, senders, instances, random, election, print });
      pauses_ms.set(fault, Math.max(pauses_ms.get(fault) ?? 0, pause_ms));
    }
    load.abort();
    await Promise.all([...running, ...senders.map((sender) => sender.stop())]);
    const entries = instances.map((instance) => parseLog(instance.err()));
    const holders = await moveLease(database.db(), key, instances);
    const events = await readWholeLog(database.db());
    const found = [
      ...findFaults(requests, events, await readObjects(database.db()), ['failover@demo']),
      ...findAnswerFaults(requests, posting),
      ...findExceptions(entries.flat()),
      ...(await findStreamFaults(database.db(), { posting, publishing })),
    ];
    const acknowledged = {
      requests: requests.filter(({ code }) => code < 3000).length,
      posted: countAcknowledged(posting),
      published: countAcknowledged(publishing),
    };
    printSummary({ requests, posting, entries, print });
    print(
      `seed ${seed}: acknowledged ${acknowledged.requests} requests, ${acknowledged.posted} posted and ${acknowledged.published} published streams; ${events.length} events, ${found.length} faults; longest pauses ${[...pauses_ms].map(([fault, pause]) => `${fault} ${Math.round(pause)} ms`).join(', ')}`,
    );
    return {
      acknowledged,
      events: events.length,
      faults: found,
      repeatedLines: entries.flatMap(findRepeatedLines),
      holders,
      pauses_ms,
    };
  } finally {
    await Promise.all(instances.map((instance) => instance.stop('SIGKILL')));
    await database.close();
    await set.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

interface Scene extends Pick<Options, 'election' | 'print'> {
  set: ReplicaSet;
  senders: readonly StreamSender[];
  instances: readonly ServiceProcess[];
  random: () => number;
}

/** Causes a fault, waits until all senders are acknowledged again, and mends it. @returns the longest pause of a sender */
async function causeFault(fault: Fault, { set, senders, instances, random, election, print }: Scene): Promise<number> {
  const primary = await set.findPrimary();
  const readiness = instances.map(watchReadiness);
  const begun_ms = performance.now();
  if (fault === 'kill') await primary.kill();
  else if (fault === 'step down') await set.stepDown(step_down_s);
  else await primary.freeze();
  if (fault === 'short partition') await sleep(random() * 2 * election.electionTimeoutMillis);
  else await waitForWrites(senders, instances);
  if (fault === 'kill') primary.start();
  // a former primary that continues while others write
  else if (fault !== 'step down') primary.thaw();
  await set.settle();
  await waitForWrites(senders, instances);
  await Promise.all(instances.map(waitUntilReady));
  const unready = await Promise.all(readiness.map(async (watch) => findLongestPause(await watch.stop(), begun_ms)));
  const pauses = senders.map(({ acknowledged_at_ms }) => findLongestPause(acknowledged_at_ms, begun_ms));
  print(`${fault}: pauses of the senders ${formatTimes(pauses)}, of the readiness ${formatTimes(unready)}`);
  return Math.max(...pauses);
}

const formatTimes = (times_ms: readonly number[]) => `${times_ms.map(Math.round).join(', ')} ms`;

/** Asks again and again whether an instance is ready. `stop` returns the moments at which it was. */
function watchReadiness({ url }: ServiceProcess): { stop(): Promise<number[]> } {
  const stopped = new AbortController();
  const ready_at_ms: number[] = [];
  const running = (async () => {
    for (; !stopped.signal.aborted; await sleep(readiness_period_ms)) {
      const { status } = await fetch(`${url}/readyz`).catch(() => ({ status: 0 }));
      if (status === 200) ready_at_ms.push(performance.now());
    }
  })();
  return {
    async stop() {
      stopped.abort();
      await running;
      return ready_at_ms;
    },
  };
}

/** Waits until all senders are acknowledged again. @throws Error if an instance has ended, or with what the senders got */
async function waitForWrites(senders: readonly StreamSender[], instances: readonly ServiceProcess[]): Promise<void> {
  const before = senders.map(({ acknowledged }) => acknowledged.length);
  const countNew = () => senders.map(({ acknowledged }, index) => acknowledged.length - (before[index] ?? 0));
  const findEnded = () => instances.findIndex((instance) => instance.hasExited());
  const isOver = () => findEnded() >= 0 || countNew().every((count) => count >= recovered_streams);
  await waitUntil(isOver, recovery_timeout_ms).catch((cause: unknown) => {
    const logs = instances.map((instance) => instance.err().slice(-max_log_length)).join('\n');
    throw new Error(`senders were acknowledged ${countNew().join(', ')} times; last lines of the instances: ${logs}`, {
      cause,
    });
  });
  const ended = findEnded();
  if (ended >= 0) throw new Error(`instance ${ended + 1} has ended: ${instances[ended]?.err()}`);
}

/** Kills the instance that writes the event log. @returns the holders of its lease before and after */
async function moveLease(
  db: mongoose.mongo.Db,
  key: string,
  instances: readonly ServiceProcess[],
): Promise<readonly [before: string, after: string]> {
  const read = async () => {
    const found = await db.collection<{ _id: string; holder: string }>('held_leases').findOne({ _id: lease });
    return found?.holder ?? '';
  };
  const before = await read();
  // a lease does not name its process
  const counts = await Promise.all(instances.map(countWrittenEvents));
  let writer = -1;
  const path = '/devices/failover@demo/';
  const change = () => sendOk(instances[0]?.url ?? '', key, 'PUT', path, { description: 'to be logged' });
  await waitUntil(() => change().then(Boolean), recovery_timeout_ms);
  await waitUntil(async () => {
    const now = await Promise.all(instances.map(countWrittenEvents));
    writer = now.findIndex((count, index) => count > (counts[index] ?? 0));
    return writer >= 0;
  }, recovery_timeout_ms);
  await instances[writer]?.stop('SIGKILL');
  await waitUntil(async () => (await read()) !== before, recovery_timeout_ms);
  return [before, await read()];
}

async function countWrittenEvents({ url }: ServiceProcess): Promise<number> {
  const metrics = await (await fetch(`${url}/metrics`)).text();
  return Number(/^events_written_total (\d+)$/m.exec(metrics)?.[1] ?? 0);
}

/** A request that is not answered, and answers that a missing database does not explain. */
function findAnswerFaults(requests: readonly SentRequest[], posting: readonly StreamSender[]): string[] {
  const isExpected = (code: number) => code < 3000 || [4003, 4041, 5031].includes(code);
  const unexpected = requests.filter(({ code }) => !isExpected(code));
  const refused = posting.flatMap((sender) => [...sender.refused.keys()]).filter((answer) => answer !== '5031');
  return [
    ...unexpected.map(({ method, plural, id, code }) => `${method} ${plural} ${id} was answered ${code}`),
    ...refused.map((answer) => `a stream was answered ${answer}`),
  ];
}

/** Faults of the service itself, and lines that did not come from its log. */
function findExceptions(entries: readonly LogEntry[]): string[] {
  const isFault = ({ msg, cause }: LogEntry) =>
    msg === 'exception' || cause === 'not JSON' || cause.startsWith('TypeError');
  return entries.filter(isFault).map(({ msg, cause, stack }) => `${msg} (${cause}) ${stack}`);
}

function countAcknowledged(senders: readonly StreamSender[]): number {
  return senders.reduce((sum, { acknowledged }) => sum + acknowledged.length, 0);
}

interface Summary {
  requests: readonly SentRequest[];
  posting: readonly StreamSender[];
  entries: readonly (readonly LogEntry[])[];
  print: (line: string) => void;
}

function printSummary({ requests, posting, entries, print }: Summary): void {
  const codes = new Map<number, number>();
  for (const { code } of requests) codes.set(code, (codes.get(code) ?? 0) + 1);
  print(`answers ${[...codes].map(([code, count]) => `${code}: ${count}`).join(', ')}`);
  const refused = posting.flatMap((sender) => [...sender.refused.values()]).reduce((sum, count) => sum + count, 0);
  const max_answer_ms = Math.max(...requests.map(({ took_ms }) => took_ms), ...posting.map((one) => one.max_answer_ms));
  print(`${refused} streams refused; longest answer ${Math.round(max_answer_ms)} ms`);
  for (const [index, lines] of entries.entries())
    print(`log of instance ${index + 1}: ${[...countLines(lines)].map((entry) => entry.join(': ')).join('; ')}`);
}
