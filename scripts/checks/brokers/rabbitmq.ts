import { execFileSync } from 'node:child_process';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { MqttClient } from 'mqtt';
import { findFreePort } from '../../support/service-process.js';
import { checkIngest, type Harness, runChecks } from './harness.js';

/** The scripts themselves: Debian's wrappers on PATH require the system's user and directories. */
const bin = '/usr/lib/rabbitmq/bin';

/** Starts a RabbitMQ on the loopback interface that delegates authentication and authorization to the service. */
async function startRabbit({ folder, run, secret, becomesTrue }: Harness, service_url: string) {
  const home = join(folder, 'rabbitmq');
  await mkdir(home, { mode: 0o700 });
  const [mqtt_port, dist_port, epmd_port] = [await findFreePort(), await findFreePort(), await findFreePort()];
  const authPath = (check: string) => `auth_http.${check}_path = ${service_url}/mqtt-auth/${check}?secret=${secret}`;
  const settings = [
    'listeners.tcp = none',
    `mqtt.listeners.tcp.1 = 127.0.0.1:${mqtt_port}`,
    'mqtt.allow_anonymous = false',
    'auth_backends.1 = http',
    'auth_http.http_method = post',
    ...['user', 'vhost', 'resource', 'topic'].map(authPath),
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
  if (!(await becomesTrue(() => (rabbit.out() + rabbit.err()).includes('Starting broker... completed'), 90_000)))
    throw new Error(rabbit.out() + rabbit.err());
  const ctl = (...args: string[]) => execFileSync(join(bin, 'rabbitmqctl'), ['-q', ...args], { env, encoding: 'utf8' });
  return { mqtt_port, ctl };
}

/** Returns whether the broker accepts a publish; it closes the connection of a client without permission. */
async function canPublish(client: MqttClient | undefined, topic: string): Promise<boolean> {
  if (client === undefined) return false;
  const closed = new Promise<boolean>((resolve) => client.once('close', () => resolve(false)));
  const accepted = client
    .publishAsync(topic, '{"n":-1}', { qos: 1 })
    .then(() => true)
    .catch(() => false);
  return Promise.race([accepted, closed]);
}

/** Returns whether the broker grants a subscription. */
async function canSubscribe(client: MqttClient | undefined, filter: string): Promise<boolean> {
  if (client === undefined) return false;
  const closed = new Promise<boolean>((resolve) => client.once('close', () => resolve(false)));
  const granted = client
    .subscribeAsync(filter, { qos: 1 })
    .then((list) => list.every(({ qos }) => qos < 128))
    .catch(() => false);
  return Promise.race([granted, closed]);
}

await runChecks('rabbitmq-server', async (harness) => {
  const { check, createDevice, becomesTrue, listStored, secret } = harness;
  const bridge_password = secret.toLowerCase();
  await harness.startFirst({ MQTT_AUTH_SECRET: secret });
  const rabbit = await startRabbit(harness, `http://127.0.0.1:${await harness.startBalancer()}`);
  const { mqtt_port } = rabbit;
  const bridgeUrl = (user: string) => `mqtt://${encodeURIComponent(user)}:${bridge_password}@127.0.0.1:${mqtt_port}`;
  const env = { MQTT_AUTH_SECRET: secret, MQTT_BRIDGE_URL: [bridgeUrl('bridge'), bridgeUrl('acme:bridge')].join() };
  rabbit.ctl('add_vhost', 'acme');
  rabbit.ctl('add_vhost', 'other');
  const sensor = await createDevice('acme', 'v1..2 *sensor');
  const second = await createDevice('acme', 'second');
  const other = await createDevice('other', 'sensor');
  const login = ({ username, password }: { username: string; password: string }, vhost?: string) => ({
    username: vhost === undefined ? username : `${vhost}:${username}`,
    password,
  });
  const connect = (options: object) => harness.connect(mqtt_port, options);

  await check('a device connects, authenticated by the service', (await connect(login(sensor))) !== undefined);
  await check('a wrong password is rejected', (await connect({ ...login(sensor), password: 'wrong' })) === undefined);
  await check('a client without credentials is rejected', (await connect({})) === undefined);
  await check('a device may use the virtual host of its account', (await connect(login(sensor, 'acme'))) !== undefined);
  await check('a device may not use that of another account', (await connect(login(sensor, 'other'))) === undefined);

  const session = { clientId: 'kept', clean: false };
  const owner = await connect({ ...login(sensor), ...session });
  await check(
    'a client id is bound to its first user',
    (await connect({ ...login(second), ...session })) === undefined,
  );
  await check(
    'a client id is bound in every virtual host',
    (await connect({ ...login(other, 'other'), ...session })) === undefined,
  );
  await check('the connection of the first user stays open', owner?.connected === true);

  const cannotSubscribe = async (filter: string) => !(await canSubscribe(await connect(login(sensor)), filter));
  await check("a device may not subscribe to another device's status", cannotSubscribe(`${second.id}/status`));
  await check('a device may not subscribe to streams of another account', cannotSubscribe(`${other.id}/streams`));
  for (const filter of ['#', '+/streams', '+/+/streams'])
    await check(`a device may not subscribe to ${filter}`, cannotSubscribe(filter));
  const canSubscribeToOwn = await canSubscribe(await connect(login(second)), `${second.id}/status`);
  await check('a device may subscribe to its own status', canSubscribeToOwn);
  const cannotPublish = async (topic: string) => !(await canPublish(await connect(login(sensor)), topic));
  await check("a device may not publish another device's streams", cannotPublish(`${second.id}/streams`));
  await check('a device may not publish streams of another account', cannotPublish(`${other.id}/streams`));
  await check('a device may not publish to any other topic', cannotPublish('orders/7'));

  await checkIngest(harness, env, mqtt_port, sensor);
  await check('nothing was stored for the other account', (await listStored(other.id)).length === 0);

  const vhostClient = await connect(login(second, 'acme'));
  await check(
    'a stream in the virtual host of the account is accepted',
    canPublish(vhostClient, `${second.id}/streams`),
  );
  await check(
    'a stream in the virtual host of the account is stored',
    becomesTrue(async () => (await listStored(second.id)).length === 1, 10_000),
  );
  const key = await harness.findKey('acme');
  const keyClient = await connect({ username: key, password: '' });
  await check('a client connects with an API key', keyClient !== undefined);
  const body = JSON.stringify({ device: second.id, data: { n: -2 } });
  await keyClient?.publishAsync(`${key}/streams`, body, { qos: 1 });
  await check(
    'a client with an API key sends streams of its devices',
    becomesTrue(async () => (await listStored(second.id)).length === 2, 10_000),
  );
});
