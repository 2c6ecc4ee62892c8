import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { type AddressInfo, connect as connectTcp, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import mqtt, { type IClientOptions, type MqttClient } from 'mqtt';

/** A process that this run has started. */
export interface Started {
  child: ChildProcess;
  text(): string;
  end(signal?: NodeJS.Signals): Promise<void>;
}

/** A device with credentials at the service. */
export interface GivenDevice {
  id: string;
  username: string;
  password: string;
}

/** The service on a database of its own, and what checks need. */
export interface Stage {
  folder: string;
  secret: string;
  port(): Promise<number>;
  run(command: string, args: readonly string[], env: NodeJS.ProcessEnv): Started;
  /** The instance that brings the database and answers HTTP. @returns its address */
  first(env?: NodeJS.ProcessEnv): Promise<string>;
  /** Two more on the same database. */
  two(env: NodeJS.ProcessEnv): Promise<Started[]>;
  device(account: string, name: string): Promise<GivenDevice>;
  key(account: string): Promise<string>;
  /** A port that leads to the youngest instance which runs, as a load balancer would. */
  balance(): Promise<number>;
  /** The numbers `n` in the data of a device's streams. */
  stored(id: string): Promise<number[]>;
  /** The numbers that publishing at QoS 1 was acknowledged for. */
  publish(client: MqttClient, topic: string, from: number, to: number): Promise<number[]>;
  connect(port: number, options: IClientOptions): Promise<MqttClient | undefined>;
  until(holds: () => Promise<boolean> | boolean, limit_ms: number): Promise<boolean>;
  check(what: string, holds: boolean | Promise<boolean>): Promise<void>;
}

/** Where a program is, also where only root's PATH leads. */
export function find(program: string): string | undefined {
  const PATH = `${process.env.PATH}:/usr/sbin:/usr/local/sbin`;
  try {
    return execFileSync('sh', ['-c', `command -v ${program}`], {
      encoding: 'utf8',
      env: { ...process.env, PATH },
    }).trim();
  } catch {
    return undefined;
  }
}

/** Runs `checks` on a stage, ends all that was started, and tells how many passed; exit code 1 if one failed. */
export async function perform(needs: string, checks: (stage: Stage) => Promise<void>): Promise<void> {
  if (find(needs) === undefined) {
    console.log(`skipped: ${needs} is not installed`);
    return;
  }
  const counts = { passed: 0, failed: 0 };
  const folder = await mkdtemp(join(tmpdir(), 'brokers-'));
  const started: Started[] = [];
  const clients: MqttClient[] = [];
  try {
    await checks(openStage(folder, started, clients, counts));
  } catch (error) {
    counts.failed++;
    console.log(`FAILED ${error instanceof Error ? error.stack : String(error)}`);
  }
  for (const client of clients) client.end(true);
  for (const one of started.toReversed()) await one.end();
  await rm(folder, { recursive: true, force: true });
  console.log(`${counts.passed} passed, ${counts.failed} failed`);
  process.exitCode = counts.failed > 0 ? 1 : 0;
}

function openStage(
  folder: string,
  started: Started[],
  clients: MqttClient[],
  counts: { passed: number; failed: number },
): Stage {
  const secret = randomBytes(24).toString('base64url');
  const SECRET_KEY = randomBytes(24).toString('base64url');
  const BOOTSTRAP_API_KEY = randomBytes(24).toString('base64url');
  const keys = new Map([['demo', BOOTSTRAP_API_KEY]]);
  const ports: number[] = [];
  const led = new Set<Socket>();
  let url = '';
  let uri = '';

  function run(command: string, args: readonly string[], env: NodeJS.ProcessEnv): Started {
    const child = spawn(command, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    let text = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
      });
    }
    const one: Started = {
      child,
      text: () => text,
      async end(signal = 'SIGTERM') {
        if (child.exitCode !== null || child.signalCode !== null) return;
        const ended = once(child, 'exit');
        child.kill(signal);
        await ended;
      },
    };
    started.push(one);
    return one;
  }

  async function service(env: NodeJS.ProcessEnv): Promise<{ one: Started; address: string }> {
    const shared = { PORT: '0', MQTT_PORT: 'off', LOG_FORMAT: 'off', DATA_DIR: join(folder, 'data'), SECRET_KEY };
    const one = run(process.execPath, ['dist/src/main.js'], { ...process.env, ...shared, BOOTSTRAP_API_KEY, ...env });
    const listening = () => /listening on (\S+)/.exec(one.text())?.[1];
    const ready = () => fetch(`${listening()}/readyz`).then(({ status }) => status === 200);
    if (!(await until(() => listening() !== undefined && ready(), 60_000))) throw new Error(one.text());
    const address = listening() ?? '';
    ports.unshift(Number(new URL(address).port));
    for (const socket of led) socket.destroy();
    return { one, address };
  }

  async function call(account: string, method: string, path: string, body?: object): Promise<Response> {
    const headers = { 'service.apikey': keys.get(account) ?? '' };
    return fetch(url + path, { method, headers, ...(body && { body: JSON.stringify(body) }) });
  }

  async function until(holds: () => Promise<boolean> | boolean, limit_ms: number): Promise<boolean> {
    const end = performance.now() + limit_ms;
    while (performance.now() < end) {
      if (
        await Promise.resolve()
          .then(holds)
          .catch(() => false)
      )
        return true;
      await sleep(50);
    }
    return false;
  }

  async function key(account: string): Promise<string> {
    const known = keys.get(account);
    if (known !== undefined) return known;
    const args = ['dist/src/cli/keys.js', 'create', '--account', account, '--user', 'admin', '--scope', 'admin'];
    const made = execFileSync(process.execPath, args, {
      encoding: 'utf8',
      env: { ...process.env, MONGODB_URI: uri, SECRET_KEY },
    });
    keys.set(account, made.trim());
    return made.trim();
  }

  return {
    folder,
    secret,
    run,
    key,
    until,
    async port() {
      const server = createServer().listen(0, '127.0.0.1');
      await once(server, 'listening');
      const { port } = server.address() as AddressInfo;
      server.close();
      await once(server, 'close');
      return port;
    },
    async balance() {
      const lead = (socket: Socket, [port, ...more]: readonly number[]): void => {
        if (port === undefined) return void socket.destroy();
        const onward = connectTcp(port, '127.0.0.1');
        onward.once('error', () => lead(socket, more));
        onward.once('connect', () => {
          onward.removeAllListeners('error').on('error', () => socket.destroy());
          onward.once('close', () => socket.destroy());
          socket.pipe(onward).pipe(socket);
        });
        led.add(socket);
        socket.once('close', () => {
          led.delete(socket);
          onward.destroy();
        });
      };
      const server = createServer((socket) => {
        socket.on('error', () => socket.destroy());
        lead(socket, ports);
      });
      server.listen(0, '127.0.0.1').unref();
      await once(server, 'listening');
      return (server.address() as AddressInfo).port;
    },
    async first(env = {}) {
      url = (await service({ MONGODB_URI: '', ...env })).address;
      uri = (await readFile(join(folder, 'data', 'mongodb.uri'), 'utf8')).trim();
      return url;
    },
    async two(env) {
      const both = await Promise.all([1, 2].map(() => service({ MONGODB_URI: uri, ...env })));
      return both.map(({ one }) => one);
    },
    async device(account, name) {
      await key(account);
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
      const made = await call(account, 'POST', `/mqttdevices/${encodeURIComponent(id)}/credentials/`, login);
      if (made.status !== 200) throw new Error(await made.text());
      return { id, ...login };
    },
    async stored(id) {
      const account = id.slice(id.lastIndexOf('@') + 1);
      const reply = await call(account, 'GET', `/devices/${encodeURIComponent(id)}/streams/?_t=str&sort=created_at`);
      const { result } = (await reply.json()) as { result: { data: { n: number } }[] };
      return result.map(({ data }) => data.n).sort((a, b) => a - b);
    },
    async publish(client, topic, from, to) {
      const acknowledged: number[] = [];
      for (let n = from; n < to; n++) {
        await client.publishAsync(topic, JSON.stringify({ n }), { qos: 1 });
        acknowledged.push(n);
      }
      return acknowledged;
    },
    async connect(port, options) {
      const client = mqtt.connect(`mqtt://127.0.0.1:${port}`, { reconnectPeriod: 0, ...options });
      clients.push(client);
      client.on('error', () => undefined);
      const opened = new Promise<boolean>((resolve) => client.once('connect', () => resolve(true)));
      const closed = new Promise<boolean>((resolve) => client.once('close', () => resolve(false)));
      return (await Promise.race([opened, closed])) ? client : undefined;
    },
    async check(what, holds) {
      const passed = await holds;
      counts[passed ? 'passed' : 'failed']++;
      console.log(`${passed ? 'ok    ' : 'FAILED'} ${what}`);
    },
  };
}

/** 0 to `count` - 1, each once. */
export function isEachOnce(numbers: readonly number[], count: number): boolean {
  return numbers.length === count && numbers.every((n, index) => n === index);
}

/**
 * What holds with every broker: two instances store each message once, one that is killed is replaced, and one that is
 * stopped hands over. `sender` may publish to its own streams.
 */
export async function checkIngest(
  stage: Stage,
  env: NodeJS.ProcessEnv,
  port: number,
  sender: GivenDevice,
): Promise<void> {
  const { check, until, publish, stored } = stage;
  const instances = await stage.two(env);
  const holds = (one: Started) => one.text().includes('MQTT bridge connected');
  await check(
    'one of two instances subscribes',
    until(() => instances.filter(holds).length === 1, 20_000),
  );
  const { username, password, id } = sender;
  const client = await stage.connect(port, { username, password, clientId: 'sender', clean: true });
  await check('a device logs in with its credentials', client !== undefined);
  if (client === undefined) return;
  await sleep(1000);
  const topic = `${id}/streams`;
  const begun = performance.now();
  await publish(client, topic, 0, 200);
  const all = (count: number) => until(async () => (await stored(id)).length >= count, 30_000);
  await all(200);
  const took_ms = Math.round(performance.now() - begun);
  await check(`200 streams at QoS 1 are stored, each once (${took_ms} ms)`, isEachOnce(await stored(id), 200));
  const holder = instances.find(holds);
  await holder?.end('SIGKILL');
  const killed = performance.now();
  await publish(client, topic, 200, 300);
  const other = instances.find((one) => one !== holder);
  await check(
    'the other takes over when it is killed',
    until(() => other !== undefined && holds(other), 20_000),
  );
  const after_s = ((performance.now() - killed) / 1000).toFixed(1);
  await all(300);
  await check(`what came meanwhile is stored, each once (${after_s} s)`, isEachOnce(await stored(id), 300));
  await other?.end('SIGTERM');
  await publish(client, topic, 300, 350);
  await stage.two(env);
  await all(350);
  await sleep(500);
  await check('what came while none ran is stored, each once', isEachOnce(await stored(id), 350));
}
