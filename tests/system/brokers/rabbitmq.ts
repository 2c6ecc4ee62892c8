import { execFileSync } from 'node:child_process';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { MqttClient } from 'mqtt';
import { checkIngest, perform, type Stage } from './harness.js';

/** Debian's wrapper in PATH insists on its own user and folders; the scripts behind it do not. */
const bin = '/usr/lib/rabbitmq/bin';

/** A RabbitMQ of its own, on loopback only, that asks the service about everything. @returns its MQTT port */
async function startRabbit({ folder, port, run, secret, until }: Stage, service_url: string) {
  const home = join(folder, 'rabbitmq');
  await mkdir(home, { mode: 0o700 });
  const [mqtt_port, dist_port, epmd_port] = [await port(), await port(), await port()];
  const asks = (question: string) =>
    `auth_http.${question}_path = ${service_url}/mqtt-auth/${question}?secret=${secret}`;
  const settings = [
    'listeners.tcp = none',
    `mqtt.listeners.tcp.1 = 127.0.0.1:${mqtt_port}`,
    'mqtt.allow_anonymous = false',
    'auth_backends.1 = http',
    'auth_http.http_method = post',
    ...['user', 'vhost', 'resource', 'topic'].map(asks),
  ];
  await writeFile(join(home, 'rabbitmq.conf'), `${settings.join('\n')}\n`);
  await chmod(join(home, 'rabbitmq.conf'), 0o600);
  await writeFile(join(home, 'enabled_plugins'), '[rabbitmq_mqtt,rabbitmq_auth_backend_http].\n');
  const env = {
    ...process.env,
    HOME: home,
    PATH: `${bin}:${process.env.PATH}`,
    RABBITMQ_MNESIA_BASE: join(home, 'mnesia'),
    RABBITMQ_LOG_BASE: join(home, 'log'),
    RABBITMQ_CONFIG_FILE: join(home, 'rabbitmq.conf'),
    RABBITMQ_ENABLED_PLUGINS_FILE: join(home, 'enabled_plugins'),
    RABBITMQ_CONF_ENV_FILE: join(home, 'none'),
    RABBITMQ_PID_FILE: join(home, 'pid'),
    RABBITMQ_NODENAME: `brokers${mqtt_port}@localhost`,
    RABBITMQ_DIST_PORT: String(dist_port),
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: '-kernel inet_dist_use_interface {127,0,0,1}',
    ERL_EPMD_ADDRESS: '127.0.0.1',
    ERL_EPMD_PORT: String(epmd_port),
  };
  run('epmd', [], env);
  await sleep(500);
  const rabbit = run(join(bin, 'rabbitmq-server'), [], env);
  if (!(await until(() => rabbit.text().includes('Starting broker... completed'), 90_000)))
    throw new Error(rabbit.text());
  const ctl = (...args: string[]) => execFileSync(join(bin, 'rabbitmqctl'), ['-q', ...args], { env, encoding: 'utf8' });
  return { mqtt_port, ctl };
}

/** Whether the broker takes a publish; it closes the connection of who may not. */
async function takes(client: MqttClient | undefined, topic: string): Promise<boolean> {
  if (client === undefined) return false;
  const closed = new Promise<boolean>((resolve) => client.once('close', () => resolve(false)));
  const taken = client
    .publishAsync(topic, '{"n":-1}', { qos: 1 })
    .then(() => true)
    .catch(() => false);
  return Promise.race([taken, closed]);
}

/** Whether a subscription is granted. */
async function grants(client: MqttClient | undefined, filter: string): Promise<boolean> {
  if (client === undefined) return false;
  const closed = new Promise<boolean>((resolve) => client.once('close', () => resolve(false)));
  const granted = client
    .subscribeAsync(filter, { qos: 1 })
    .then((list) => list.every(({ qos }) => qos < 128))
    .catch(() => false);
  return Promise.race([granted, closed]);
}

await perform('rabbitmq-server', async (stage) => {
  const { check } = stage;
  const bridge_password = stage.secret.toLowerCase();
  await stage.first({ MQTT_AUTH_SECRET: stage.secret });
  const rabbit = await startRabbit(stage, `http://127.0.0.1:${await stage.balance()}`);
  const { mqtt_port } = rabbit;
  const bridge = (user: string) => `mqtt://${encodeURIComponent(user)}:${bridge_password}@127.0.0.1:${mqtt_port}`;
  const env = { MQTT_AUTH_SECRET: stage.secret, MQTT_BRIDGE_URL: [bridge('bridge'), bridge('acme:bridge')].join() };
  rabbit.ctl('add_vhost', 'acme');
  rabbit.ctl('add_vhost', 'other');
  const sensor = await stage.device('acme', 'v1..2 *sensor');
  const second = await stage.device('acme', 'second');
  const other = await stage.device('other', 'sensor');
  const login = ({ username, password }: { username: string; password: string }, vhost?: string) => ({
    username: vhost === undefined ? username : `${vhost}:${username}`,
    password,
  });
  const connect = (options: object) => stage.connect(mqtt_port, options);

  await check('RabbitMQ asks the service, and a device logs in', (await connect(login(sensor))) !== undefined);
  await check('a wrong password is refused', (await connect({ ...login(sensor), password: 'wrong' })) === undefined);
  await check('nobody gets in without a login', (await connect({})) === undefined);
  await check("the account's own virtual host is open", (await connect(login(sensor, 'acme'))) !== undefined);
  await check("another account's is not", (await connect(login(sensor, 'other'))) === undefined);

  const kept = { clientId: 'kept', clean: false };
  const keeper = await connect({ ...login(sensor), ...kept });
  await check('a client id is bound to who uses it', (await connect({ ...login(second), ...kept })) === undefined);
  await check('in every virtual host', (await connect({ ...login(other, 'other'), ...kept })) === undefined);
  await check('and its connection stays', keeper?.connected === true);

  const may = async (filter: string) => grants(await connect(login(sensor)), filter);
  await check(
    "another device's status may not be subscribed to",
    may(`${second.id}/status`).then((granted) => !granted),
  );
  await check(
    "nor streams of another account's",
    may(`${other.id}/streams`).then((granted) => !granted),
  );
  for (const filter of ['#', '+/streams', '+/+/streams'])
    await check(
      `nor ${filter}`,
      may(filter).then((granted) => !granted),
    );
  const own = await grants(await connect(login(second)), `${second.id}/status`);
  await check('a device may subscribe to its own status', own);
  const foreign = async (topic: string) => !(await takes(await connect(login(sensor)), topic));
  await check("another device's streams may not be published", foreign(`${second.id}/streams`));
  await check("nor those of another account's", foreign(`${other.id}/streams`));
  await check('nor anything else', foreign('orders/7'));

  await checkIngest(stage, env, mqtt_port, sensor);
  await check('nothing was stored for others', (await stage.stored(other.id)).length === 0);

  const inOwn = await connect(login(second, 'acme'));
  await check('a stream in the own virtual host is taken', takes(inOwn, `${second.id}/streams`));
  await check(
    'and stored',
    stage.until(async () => (await stage.stored(second.id)).length === 1, 10_000),
  );
  const key = await stage.key('acme');
  const keyed = await connect({ username: key, password: '' });
  await check('an API key logs in', keyed !== undefined);
  const body = JSON.stringify({ device: second.id, data: { n: -2 } });
  await keyed?.publishAsync(`${key}/streams`, body, { qos: 1 });
  await check(
    'and sends for its devices',
    stage.until(async () => (await stage.stored(second.id)).length === 2, 10_000),
  );
});
