import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { Agent } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import mongoose from 'mongoose';
import { silentLog } from '../../src/lib/log.js';
import { startEmbedded } from '../../src/mongod/embedded.js';
import { type Backend, startBalancer } from '../../tests/support/balancer.js';
import { startHaproxy } from '../../tests/support/haproxy.js';
import { createRandom } from '../../tests/support/random.js';
import { sendRequest } from '../support/instance.js';
import { type ServiceProcess, waitUntil } from '../support/service-process.js';
import { findBackend, startInstance } from './instance.js';
import { createStreamDevice, findLongestPause, findStreamFaults, startPublishing } from './numbered-streams.js';

interface Options {
  /** Restarts of each instance. */
  rounds: number;
  seed: number;
  /** SHUTDOWN_DELAY_S of the instances; without, what the balancer needs to notice. */
  shutdown_delay_s?: number | undefined;
  /** Uses HAProxy instead of the balancer of the tests. */
  haproxy?: boolean | undefined;
  /** Ends after the round in which a request failed. */
  until_failure?: boolean | undefined;
  /** Clients that send requests; default: 12. */
  clients?: number;
  /** Pause of a client between two requests, at random up to twice as long; default: 10. */
  pause_ms?: number;
  print: (line: string) => void;
}

/** Counts of requests and publishes. */
export interface Outcome {
  requests: number;
  /** Requests by method. */
  methods: ReadonlyMap<string, number>;
  /** One line for each request that was not answered with the code it should have. */
  failed: readonly string[];
  /** Publishes that were acknowledged. */
  published: number;
  /** Differences between the publishes and the stored streams. */
  faults: readonly string[];
  restarts: number;
}

const publisher_count = 4;
/** As in docs/operations.md: longer than a balancer needs to notice, also on a busy machine. */
const delay_s = 5;
const load_between_restarts_ms = 500;
const recovery_timeout_ms = 120_000;
/** A request whose time limit ends after so long was sent to a machine that is too busy, whatever is restarted. */
const slow_ms = 4000;

/**
 * Restarts two instances behind a balancer in turn, with SIGTERM, while clients send requests of all methods over kept-alive
 * connections and publish at QoS 1. No client repeats a request.
 */
export async function runRollingRestart(options: Options): Promise<Outcome> {
  const {
    rounds,
    seed,
    haproxy = false,
    until_failure = false,
    clients: client_count = 12,
    pause_ms = 10,
    print,
  } = options;
  const { shutdown_delay_s = delay_s } = options;
  const folder = await mkdtemp(join(tmpdir(), 'rolling-restart-'));
  const random = createRandom(seed);
  const embedded = await startEmbedded({ dataDir: folder, env: process.env, log: silentLog, print: () => undefined });
  const database = new mongoose.mongo.MongoClient(embedded.uri);
  const key = randomBytes(16).toString('hex');
  const ports = [await findBackend(), await findBackend()];
  const instances: ServiceProcess[] = [];
  const start = ({ url, mqtt_port }: Backend) =>
    startInstance(embedded.uri, key, {
      PORT: new URL(url).port,
      MQTT_PORT: String(mqtt_port),
      SHUTDOWN_DELAY_S: String(shutdown_delay_s),
      TRUSTED_PROXIES: '127.0.0.1/32',
    });
  const balancer = haproxy ? await startHaproxy(folder, ports) : await startBalancer(ports);
  try {
    for (const place of ports) instances.push(await start(place));
    await balancer.waitForReady(ports.length);
    const device = await createStreamDevice(balancer.url, key, 'rolling');
    const load = new AbortController();
    const failed: string[] = [];
    const methods = new Map<string, number>();
    const clients = Array.from({ length: client_count }, (_, number) =>
      sendCycles({ url: balancer.url, key, number, random, pause_ms, signal: load.signal, failed, methods }),
    );
    const publishing = await Promise.all(
      Array.from({ length: publisher_count }, () => startPublishing(balancer.mqtt_url, device)),
    );
    await waitUntil(() => publishing.every(({ acknowledged }) => acknowledged.length > 0), recovery_timeout_ms);
    const begun_ms = performance.now();
    let restarts = 0;
    for (let round = 0; round < rounds; round++) {
      for (const [index, place] of ports.entries()) {
        await sleep(load_between_restarts_ms * (0.5 + random()));
        const code = await restart(instances, index, () => start(place));
        if (code !== 0) failed.push(`instance ${index + 1} ended with ${code}`);
        await balancer.waitForReady(ports.length);
        restarts++;
      }
      if (until_failure && failed.length > 0) break;
    }
    await sleep(load_between_restarts_ms);
    const max_pause_ms = Math.max(
      ...publishing.map(({ acknowledged_at_ms }) => findLongestPause(acknowledged_at_ms, begun_ms)),
    );
    load.abort();
    await Promise.all([...clients, ...publishing.map((publisher) => publisher.stop())]);
    const refused = await balancer.countRefused();
    if (refused > 0) failed.push(`${refused} connections were refused`);
    const faults = await findStreamFaults(database.db(), { posting: [], publishing, isGraceful: true });
    const requests = [...methods.values()].reduce((sum, count) => sum + count, 0);
    const published = publishing.reduce((sum, { acknowledged }) => sum + acknowledged.length, 0);
    print(
      `seed ${seed}: ${restarts} restarts, ${requests} requests (${[...methods].map((entry) => entry.join(' ')).join(', ')}), ${failed.length} failed; ${published} publishes, ${faults.length} faults, longest pause of a publisher ${Math.round(max_pause_ms)} ms`,
    );
    return { requests, methods, failed, published, faults, restarts };
  } finally {
    await balancer.close();
    await Promise.all(instances.map((instance) => instance.stop('SIGKILL')));
    await database.close();
    await embedded.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

/** @returns the exit code */
async function restart(instances: ServiceProcess[], index: number, start: () => Promise<ServiceProcess>) {
  const instance = instances[index];
  await instance?.stop('SIGTERM');
  const code = await instance?.ended;
  instances[index] = await start();
  return code;
}

interface Client {
  url: string;
  key: string;
  number: number;
  random: () => number;
  pause_ms: number;
  signal: AbortSignal;
  failed: string[];
  methods: Map<string, number>;
}

/** Creates, reads, changes and deletes objects on one kept-alive connection, cycle after cycle. */
async function sendCycles({ url, key, number, random, pause_ms, signal, failed, methods }: Client): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const group = encodeURIComponent('rolling@demo');
  for (let cycle = 0; !signal.aborted; cycle++) {
    const name = `rolling-${number}-${cycle}`;
    const id = `${name}@demo`;
    const device = `/devices/${encodeURIComponent(id)}/`;
    const filter = `/devices/?type=${name}`;
    const calls: [method: string, path: string, code: number | undefined, body?: object][] = [
      ['POST', '/devices/', 2001, { name, type: name, id_group: 'rolling@demo' }],
      ['GET', device, undefined],
      ['PUT', device, 2005, { description: name, version: 0 }],
      ['POST', `${device}streams/`, 2001, { data: { cycle } }],
      ['HEAD', device, undefined],
      ['PATCH', `${filter}&confirm=1`, 2005, { description: `${name} again` }],
      ['GET', filter, undefined],
      ['GET', `/groups/${group}/devices/?max=5`, undefined],
      ['DELETE', device, 2004],
    ];
    for (const [method, path, code, body] of calls) {
      await sleep(random() * 2 * pause_ms);
      methods.set(method, (methods.get(method) ?? 0) + 1);
      const sent_at_ms = performance.now();
      const answer = await sendRequest({ url, key, method, path, body, agent }).catch(
        (error: NodeJS.ErrnoException) => ({ status: 0, code: error.code ?? error.message }),
      );
      if (answer.status === 200 && (code === undefined || answer.code === code)) continue;
      // carried out or not: the rest of the cycle is left out
      if (answer.code === 5031 && performance.now() - sent_at_ms > slow_ms) break;
      failed.push(`${method} ${path}: ${answer.status} ${answer.code}`);
    }
  }
  agent.destroy();
}
