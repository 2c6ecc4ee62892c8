import { setTimeout as sleep } from 'node:timers/promises';
import {
  countDescriptors,
  type Instance,
  type RawConnection,
  type Reply,
  readResident_mib,
  sendRequest,
  startInstance,
} from '../support/instance.js';
import { waitUntil } from '../support/service-process.js';

/** A service under attack by the account `demo`, while the account `bystander` uses it too. */
export interface Target extends Instance {
  port: number;
  bystanderKey: string;
  streamKey: string;
  /** Open descriptors before the first attack. */
  descriptors: number;
  /** With `--large`: the sizes of the review that found these attacks. */
  isLarge: boolean;
  /** Time in which another account must get its answer, 1 s unless `--patience` says otherwise. */
  calm_limit_ms: number;
  send(method: string, path: string, body?: string | object, key?: string): Promise<Reply>;
}

export interface Attack {
  name: string;
  /** Attacks the target. @throws Error with the reason if something that must hold does not */
  run(target: Target): Promise<void>;
}

/** Requests of the bystander during an attack. */
export interface Observation {
  slowest_ms: number;
  /** The first answer other than 200. */
  failure?: string;
  peak_mib: number;
}

export const answer_limit_ms = 5000;
/** Heap of 512 MiB, bodies of 64 MiB, buffers of sockets and the code itself. */
const max_resident_mib = 768;
const descriptor_tolerance = 8;
const settle_ms = 15_000;
const bystanderPath = '/projects/office@bystander/';

/** Identifiers of the objects that every target has. */
export const group = 'hall@demo';
export const device = 'pump@demo';
export const password = 'open sesame';

/** Starts a service with a heap of 512 MiB and creates what the attacks need. */
export async function startTarget(options: { isLarge: boolean; patience: number }): Promise<Target> {
  const local = '127.0.0.0/8';
  const env = { NODE_OPTIONS: '--max-old-space-size=512', FILESTORE_ALLOW_NETS: local, WEBHOOK_ALLOW_NETS: local };
  const instance = await startInstance(env);
  const { url } = instance;
  const target: Target = {
    ...instance,
    port: Number(new URL(url).port),
    bystanderKey: await instance.issueKey('bystander', 'admin'),
    streamKey: await instance.issueKey('demo', 'stream'),
    descriptors: 0,
    isLarge: options.isLarge,
    calm_limit_ms: 1000 * options.patience,
    send: (method, path, body, key = instance.key) => sendRequest({ url, key, method, path, body }),
  };
  await createFleet(target, 'demo', instance.key);
  await createFleet(target, 'bystander', target.bystanderKey);
  await create(target, 'projects', { name: 'office', id_customer: 'c' }, target.bystanderKey);
  await sleep(500);
  return { ...target, descriptors: countDescriptors(instance) };
}

/** Creates a device `pump` with MQTT credentials, the account being its username, and the topic `plant/#`. */
export async function createFleet(target: Pick<Target, 'send'>, account: string, key: string): Promise<void> {
  await create(target, 'projects', { name: 'plant', id_customer: 'c' }, key);
  await create(target, 'services', { name: 'cooling', id_project: `plant@${account}` }, key);
  await create(target, 'groups', { name: 'hall', id_service: `cooling@${account}` }, key);
  await create(target, 'devices', { name: 'pump', type: 'pump', id_group: `hall@${account}` }, key);
  await create(target, `mqttdevices/pump@${account}/credentials`, { username: account, password }, key);
  await create(target, `mqttdevices/pump@${account}/topics`, { name: 'plant/#' }, key);
}

/** Creates an object. @throws Error unless that succeeds */
export async function create(target: Pick<Target, 'send'>, path: string, body: object, key?: string): Promise<void> {
  const { code, text } = await target.send('POST', `/${path}/`, body, key);
  if (code !== 2001) throw new Error(`cannot create ${path}: ${text}`);
}

/** Formats a request for a raw connection. */
export function formatRequest(target: Target, path: string, headers = '', method = 'GET', body = ''): string {
  const length = body === '' ? '' : `Content-Length: ${Buffer.byteLength(body)}\r\n`;
  return `${method} ${path} HTTP/1.1\r\nHost: x\r\nservice.apikey: ${target.key}\r\n${headers}${length}\r\n${body}`;
}

/** Waits for `count` answers on a connection. @throws Error on timeout */
export async function awaitStatuses({ statuses }: RawConnection, count: number, what: string): Promise<number[]> {
  await waitUntil(() => statuses().length >= count, answer_limit_ms).catch(() => {
    throw new Error(`${what}: ${statuses().length} of ${count} answers within ${answer_limit_ms} ms`);
  });
  return statuses();
}

/** @throws Error with `reason` unless `condition` is true */
export function assert(condition: boolean, reason: string): void {
  if (!condition) throw new Error(reason);
}

/** Sends a request of the bystander ten times a second until `stop` is called. */
export function observe({ url, pid, bystanderKey: key }: Target): { stop(): Promise<Observation> } {
  const observation: Observation = { slowest_ms: 0, peak_mib: 0 };
  const stopping = new AbortController();
  const work = (async () => {
    while (!stopping.signal.aborted) {
      const begun_ms = performance.now();
      try {
        const { status, code } = await sendRequest({ url, key, path: bystanderPath });
        if (status !== 200) observation.failure ??= `another account got ${status} / ${code}`;
      } catch (error) {
        observation.failure ??= `another account got no answer for ${Math.round(performance.now() - begun_ms)} ms: ${error}`;
      }
      observation.slowest_ms = Math.max(observation.slowest_ms, Math.round(performance.now() - begun_ms));
      observation.peak_mib = Math.max(observation.peak_mib, readResident_mib(pid));
      await sleep(100, undefined, { signal: stopping.signal }).catch(() => undefined);
    }
  })();
  return {
    async stop() {
      stopping.abort();
      await work;
      return observation;
    },
  };
}

/** Runs `work` and returns the longest time in ms that the bystander has waited during it. @throws Error if it was refused */
export async function measureSlowest(target: Target, work: () => Promise<void>): Promise<number> {
  const observer = observe(target);
  await work().finally(() => observer.stop());
  const { slowest_ms, failure } = await observer.stop();
  if (failure !== undefined) throw new Error(failure);
  return slowest_ms;
}

/** Checks that others were served during an attack and that it has left nothing behind. @throws Error with the reason */
export async function checkAftermath(target: Target, observation: Observation): Promise<void> {
  const { slowest_ms, failure, peak_mib } = observation;
  assert(!target.hasExited(), 'the service has ended');
  if (failure !== undefined) throw new Error(failure);
  assert(
    slowest_ms <= answer_limit_ms * (target.calm_limit_ms / 1000),
    `another account waited ${slowest_ms} ms for an answer`,
  );
  assert(peak_mib <= max_resident_mib, `the service took ${peak_mib} MiB of memory`);
  const { took_ms } = await target.send('GET', bystanderPath, undefined, target.bystanderKey);
  assert(took_ms <= target.calm_limit_ms, `after the attack, another account waited ${Math.round(took_ms)} ms`);
  const { status } = await target.send('GET', '/readyz');
  assert(status === 200, `after the attack, /readyz answers ${status}`);
  const max_descriptors = target.descriptors + descriptor_tolerance;
  await waitUntil(() => countDescriptors(target) <= max_descriptors, settle_ms).catch(() => {
    throw new Error(`${countDescriptors(target)} descriptors are open, ${target.descriptors} before the attacks`);
  });
}
