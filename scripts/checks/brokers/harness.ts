import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { type AddressInfo, connect as connectTcp, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import mqtt, { type IClientOptions, type MqttClient } from 'mqtt';
import {
  findProgram,
  type RecordedProcess,
  type ServiceProcess,
  startProcess,
  startServiceProcess,
  waitUntil,
} from '../../support/service-process.js';

/** A device with MQTT credentials. */
export interface TestDevice {
  id: string;
  username: string;
  password: string;
}

/** The service on its own database, a broker, and functions for checks. */
export type Harness = ReturnType<typeof createHarness>;

/** Runs `checks`, stops everything that was started and prints the counts; the exit code is 1 if a check failed. */
export async function runChecks(program: string, checks: (harness: Harness) => Promise<void>): Promise<void> {
  if (findProgram(program) === undefined) {
    console.log(`skipped: ${program} is not installed`);
    return;
  }
  const counts = { passed: 0, failed: 0 };
  const folder = await mkdtemp(join(tmpdir(), 'brokers-'));
  const processes: RecordedProcess[] = [];
  const clients: MqttClient[] = [];
  try {
    await checks(createHarness(folder, processes, clients, counts));
  } catch (error) {
    counts.failed++;
    console.log(`FAILED ${error instanceof Error ? error.stack : String(error)}`);
  }
  for (const client of clients) client.end(true);
  for (const started of processes.toReversed()) await started.stop();
  await rm(folder, { recursive: true, force: true });
  console.log(`${counts.passed} passed, ${counts.failed} failed`);
  process.exitCode = counts.failed > 0 ? 1 : 0;
}

function createHarness(
  folder: string,
  processes: RecordedProcess[],
  clients: MqttClient[],
  counts: { passed: number; failed: number },
) {
  const secret = randomBytes(24).toString('base64url');
  const SECRET_KEY = randomBytes(24).toString('base64url');
  const BOOTSTRAP_API_KEY = randomBytes(24).toString('base64url');
  const keys = new Map([['demo', BOOTSTRAP_API_KEY]]);
  /** HTTP ports of the instances, newest first. */
  const ports: number[] = [];
  const balancedSockets = new Set<Socket>();
  let url = '';
  let uri = '';

  async function startInstance(env: NodeJS.ProcessEnv): Promise<ServiceProcess> {
    const settings = { PORT: '0', MQTT_PORT: 'off', LOG_FORMAT: 'off', DATA_DIR: join(folder, 'data'), SECRET_KEY };
    const service = await startServiceProcess({ env: { ...process.env, ...settings, BOOTSTRAP_API_KEY, ...env } });
    processes.push(service);
    ports.unshift(Number(new URL(service.url).port));
    for (const socket of balancedSockets) socket.destroy();
    return service;
  }

  async function call(account: string, method: string, path: string, body?: object): Promise<Response> {
    const headers = { 'service.apikey': keys.get(account) ?? '' };
    return fetch(url + path, { method, headers, ...(body && { body: JSON.stringify(body) }) });
  }

  /** Returns an API key of the account, which is created if necessary. */
  async function findKey(account: string): Promise<string> {
    const existingKey = keys.get(account);
    if (existingKey !== undefined) return existingKey;
    const args = ['dist/src/cli/keys.js', 'create', '--account', account, '--user', 'admin', '--scope', 'admin'];
    const output = execFileSync(process.execPath, args, {
      encoding: 'utf8',
      env: { ...process.env, MONGODB_URI: uri, SECRET_KEY },
    });
    keys.set(account, output.trim());
    return output.trim();
  }

  return {
    folder,
    /** A random secret for bridge and broker. */
    secret,
    findKey,
    run(command: string, args: readonly string[], env: NodeJS.ProcessEnv): RecordedProcess {
      const started = startProcess(command, args, { env });
      processes.push(started);
      return started;
    },
    /** Waits until `condition` is true. @returns false on timeout */
    becomesTrue: (condition: () => Promise<boolean> | boolean, timeout_ms: number): Promise<boolean> =>
      waitUntil(condition, timeout_ms).then(
        () => true,
        () => false,
      ),
    /** Starts a load balancer in front of the newest running instance. @returns its port */
    async startBalancer(): Promise<number> {
      const forward = (socket: Socket, [port, ...otherPorts]: readonly number[]): void => {
        if (port === undefined) return void socket.destroy();
        const upstream = connectTcp(port, '127.0.0.1');
        upstream.once('error', () => forward(socket, otherPorts));
        upstream.once('connect', () => {
          upstream.removeAllListeners('error').on('error', () => socket.destroy());
          upstream.once('close', () => socket.destroy());
          socket.pipe(upstream).pipe(socket);
        });
        balancedSockets.add(socket);
        socket.once('close', () => {
          balancedSockets.delete(socket);
          upstream.destroy();
        });
      };
      const server = createServer((socket) => {
        socket.on('error', () => socket.destroy());
        forward(socket, ports);
      });
      server.listen(0, '127.0.0.1').unref();
      await once(server, 'listening');
      return (server.address() as AddressInfo).port;
    },
    /** Starts the instance that brings the database and answers HTTP. @returns its URL */
    async startFirst(env: NodeJS.ProcessEnv = {}): Promise<string> {
      url = (await startInstance({ MONGODB_URI: '', ...env })).url;
      uri = (await readFile(join(folder, 'data', 'mongodb.uri'), 'utf8')).trim();
      return url;
    },
    /** Starts two more instances on the same database. */
    startTwo: (env: NodeJS.ProcessEnv) => Promise.all([1, 2].map(() => startInstance({ MONGODB_URI: uri, ...env }))),
    async createDevice(account: string, name: string): Promise<TestDevice> {
      await findKey(account);
      const parents: [string, object][] = [
        ['projects', { id_customer: 'c' }],
        ['services', { id_project: `Brokers@${account}` }],
        ['groups', { id_service: `Brokers@${account}` }],
      ];
      for (const [plural, fields] of parents)
        await call(account, 'POST', `/${plural}/`, { name: 'Brokers', ...fields });
      await call(account, 'POST', '/devices/', { name, type: 'probe', id_group: `Brokers@${account}` });
      const id = `${name}@${account}`;
      const login = { username: `${name} of ${account}`, password: randomBytes(12).toString('base64url') };
      const response = await call(account, 'POST', `/mqttdevices/${encodeURIComponent(id)}/credentials/`, login);
      if (response.status !== 200) throw new Error(await response.text());
      return { id, ...login };
    },
    /** Lists the numbers `n` in the data of a device's streams, sorted. */
    async listStored(id: string): Promise<number[]> {
      const account = id.slice(id.lastIndexOf('@') + 1);
      const response = await call(account, 'GET', `/devices/${encodeURIComponent(id)}/streams/?_t=str&sort=created_at`);
      const { result } = (await response.json()) as { result: { data: { n: number } }[] };
      return result.map(({ data }) => data.n).sort((a, b) => a - b);
    },
    /** Publishes the numbers from `from` to `to` - 1 at QoS 1. @returns the acknowledged ones */
    async publish(client: MqttClient, topic: string, from: number, to: number): Promise<number[]> {
      const acknowledged: number[] = [];
      for (let n = from; n < to; n++) {
        await client.publishAsync(topic, JSON.stringify({ n }), { qos: 1 });
        acknowledged.push(n);
      }
      return acknowledged;
    },
    /** @returns undefined if the broker rejects the connection */
    async connect(port: number, options: IClientOptions): Promise<MqttClient | undefined> {
      const client = mqtt.connect(`mqtt://127.0.0.1:${port}`, { reconnectPeriod: 0, ...options });
      clients.push(client);
      client.on('error', () => undefined);
      const opened = new Promise<boolean>((resolve) => client.once('connect', () => resolve(true)));
      const closed = new Promise<boolean>((resolve) => client.once('close', () => resolve(false)));
      return (await Promise.race([opened, closed])) ? client : undefined;
    },
    /** Prints the result of a check and counts it. */
    async check(title: string, result: boolean | Promise<boolean>): Promise<void> {
      const hasPassed = await result;
      counts[hasPassed ? 'passed' : 'failed']++;
      console.log(`${hasPassed ? 'ok    ' : 'FAILED'} ${title}`);
    },
  };
}

/** Returns whether `numbers` are 0 to `count` - 1, each once. */
export function isEachOnce(numbers: readonly number[], count: number): boolean {
  return numbers.length === count && numbers.every((n, index) => n === index);
}

/**
 * Checks what every broker must support: two instances store each message once, an instance that is killed is replaced,
 * and messages sent while no instance runs are stored later. `device` must be allowed to publish its own streams.
 */
export async function checkIngest(
  harness: Harness,
  env: NodeJS.ProcessEnv,
  port: number,
  device: TestDevice,
): Promise<void> {
  const { check, becomesTrue, publish, listStored, startTwo } = harness;
  const instances = await startTwo(env);
  const bridges = (env.MQTT_BRIDGE_URL ?? '').split(',').length;
  const isConsumer = (instance: ServiceProcess) =>
    (instance.out() + instance.err()).split('MQTT bridge connected').length > bridges;
  await check(
    'one of two instances subscribes',
    becomesTrue(() => instances.filter(isConsumer).length === 1, 20_000),
  );
  const { username, password, id } = device;
  const client = await harness.connect(port, { username, password, clientId: 'sender', clean: true });
  await check('a device connects with its credentials', client !== undefined);
  if (client === undefined) return;
  const topic = `${id}/streams`;
  const startedAt = performance.now();
  await publish(client, topic, 0, 200);
  const waitForStreams = (count: number) => becomesTrue(async () => (await listStored(id)).length >= count, 30_000);
  await waitForStreams(200);
  const took_ms = Math.round(performance.now() - startedAt);
  await check(`200 streams at QoS 1 are each stored once (${took_ms} ms)`, isEachOnce(await listStored(id), 200));
  const consumer = instances.find(isConsumer);
  await consumer?.stop('SIGKILL');
  const killedAt = performance.now();
  await publish(client, topic, 200, 300);
  const standby = instances.find((instance) => instance !== consumer);
  await check(
    'the other instance takes over when the first is killed',
    becomesTrue(() => standby !== undefined && isConsumer(standby), 20_000),
  );
  const takeover_s = ((performance.now() - killedAt) / 1000).toFixed(1);
  await waitForStreams(300);
  await check(
    `streams sent during the takeover are each stored once (${takeover_s} s)`,
    isEachOnce(await listStored(id), 300),
  );
  await standby?.stop();
  await publish(client, topic, 300, 350);
  await startTwo(env);
  await waitForStreams(350);
  await sleep(500);
  await check('streams sent while no instance ran are each stored once', isEachOnce(await listStored(id), 350));
}
