import { setTimeout as sleep } from 'node:timers/promises';
import mqtt, { type IClientOptions, type IPublishPacket, type MqttClient } from 'mqtt';
import { openConnection, openConnections } from '../support/instance.js';
import { encodeConnect } from '../support/mqtt-packets.js';
import { waitUntil } from '../support/service-process.js';
import { type Attack, assert, create, device, group, measureSlowest, password, type Target } from './target.js';

const login_limit_ms = 5000;

/** Attacks on the broker by ordinary packets (reference/mqtt.md#login, reference/mqtt.md#delivery). */
export const mqttAttacks: readonly Attack[] = [
  { name: 'mqtt: 3,000 abandoned logins, then a login of another account', run: abandonLogins },
  { name: 'mqtt: 101 topics of one device', run: createTopics },
  { name: 'mqtt: a wildcard subscription below the QoS of the message', run: subscribeBelowQos },
  { name: 'mqtt: overlapping subscriptions of different QoS', run: subscribeTwice },
  { name: 'mqtt: a retained message above the QoS of the subscription', run: retainAboveQos },
  { name: 'mqtt: payloads whose _t contradicts the topic', run: contradictTopic },
];

async function abandonLogins(target: Target): Promise<void> {
  const slowest_ms = await measureSlowest(target, async () => {
    for (let opened = 0; opened < 3000; opened += 200) {
      const connections = await openConnections(target.mqttPort, 200);
      for (const [n, { socket }] of connections.entries())
        socket.write(encodeConnect('demo', `wrong password ${opened + n}`, `abandoned-${opened + n}`));
      await sleep(20);
      for (const { socket } of connections) socket.resetAndDestroy();
    }
  });
  const begun_ms = performance.now();
  const isAccepted = async () => {
    const { socket, received } = await openConnection(target.mqttPort);
    socket.write(encodeConnect('bystander', password, 'after the flood'));
    await waitUntil(() => received().length >= 4 || socket.destroyed, login_limit_ms).catch(() => undefined);
    socket.destroy();
    return received()[3] === 0;
  };
  const isInTime = await waitUntil(isAccepted, login_limit_ms).then(
    () => performance.now() - begun_ms <= login_limit_ms,
    () => false,
  );
  assert(isInTime, `the next login is not accepted within ${login_limit_ms} ms`);
  assert(slowest_ms < target.calm_limit_ms, `HTTP requests of another account waited ${slowest_ms} ms`);
}

async function createTopics(target: Target): Promise<void> {
  await create(target, 'devices', { name: 'talkative', type: 'pump', id_group: group });
  const path = 'mqttdevices/talkative@demo/topics';
  for (let number = 1; number <= 100; number++) await create(target, path, { name: `talk/${number}` });
  const { code } = await target.send('POST', `/${path}/`, { name: 'talk/101' });
  assert(code === 4003, `topic 101 gets ${code} instead of 4003`);
}

interface Received {
  topic: string;
  text: string;
  qos: number;
}

/** Runs `work` with two connected clients of the device `pump`, and ends them. */
async function withClients(
  target: Target,
  work: (publisher: MqttClient, subscriber: MqttClient, received: Received[]) => Promise<void>,
): Promise<void> {
  const received: Received[] = [];
  const options: IClientOptions = { username: 'demo', password, reconnectPeriod: 0, connectTimeout: login_limit_ms };
  const url = `mqtt://127.0.0.1:${target.mqttPort}`;
  const clients = await Promise.all([mqtt.connectAsync(url, options), mqtt.connectAsync(url, options)]);
  const [publisher, subscriber] = clients;
  subscriber.on('message', (topic: string, payload: Buffer, { qos }: IPublishPacket) => {
    received.push({ topic, text: payload.toString(), qos });
  });
  try {
    await work(publisher, subscriber, received);
  } finally {
    for (const client of clients) await client.endAsync(true);
  }
}

/** Publishes at `qos`, waits until nothing more comes, and compares what was received with one message of `expected_qos`. */
async function expectQos(
  publisher: MqttClient,
  received: Received[],
  topic: string,
  expected_qos: number,
): Promise<void> {
  await publisher.publishAsync(topic, 'x', { qos: 1 });
  await sleep(500);
  const levels = received.splice(0).map(({ qos }) => qos);
  assert(
    levels.join() === String(expected_qos),
    `QoS ${levels.join() || 'none'} instead of one of ${expected_qos}: ${topic}`,
  );
}

function subscribeBelowQos(target: Target): Promise<void> {
  return withClients(target, async (publisher, subscriber, received) => {
    await subscriber.subscribeAsync('plant/+', { qos: 0 });
    await expectQos(publisher, received, 'plant/a', 0);
    await subscriber.unsubscribeAsync('plant/+');
    await subscriber.subscribeAsync('plant/#', { qos: 0 });
    await expectQos(publisher, received, 'plant/a/b', 0);
  });
}

function subscribeTwice(target: Target): Promise<void> {
  return withClients(target, async (publisher, subscriber, received) => {
    await subscriber.subscribeAsync('plant/c/#', { qos: 0 });
    await subscriber.subscribeAsync('plant/c/+', { qos: 1 });
    await expectQos(publisher, received, 'plant/c/1', 1);
    await subscriber.subscribeAsync('plant/d/#', { qos: 1 });
    await subscriber.subscribeAsync('plant/d/1', { qos: 0 });
    await expectQos(publisher, received, 'plant/d/1', 1);
  });
}

function retainAboveQos(target: Target): Promise<void> {
  return withClients(target, async (publisher, subscriber, received) => {
    await publisher.publishAsync('plant/kept', 'x', { qos: 1, retain: true });
    await subscriber.subscribeAsync('plant/+', { qos: 0 });
    await sleep(500);
    const levels = received.map(({ qos }) => qos).join();
    await publisher.publishAsync('plant/kept', '', { qos: 1, retain: true });
    assert(levels === '0', `a retained message comes at QoS ${levels || 'none'} instead of 0`);
  });
}

function contradictTopic(target: Target): Promise<void> {
  return withClients(target, async (publisher) => {
    const send = (kind: string, payload: object) =>
      publisher.publishAsync(`${device}/${kind}`, JSON.stringify(payload), { qos: 1 });
    await send('streams', { data: { contradiction: 1 }, _t: 'sta', protocol: 'contradiction' });
    await send('status', [{ data: { contradiction: 2 }, _t: 'str', protocol: 'contradiction' }]);
    await send('streams', { data: { contradiction: 3 }, _t: 17, protocol: 'contradiction' });
    const { text } = await target.send('GET', `/devices/${device}/streams/?protocol=contradiction&max=10`);
    const stored: { _t: string; data: { contradiction: number } }[] = JSON.parse(text).result;
    const kinds = [1, 2, 3].map((n) => stored.find(({ data }) => data.contradiction === n)?._t ?? 'dropped');
    assert(kinds.join() === 'str,sta,str', `stored as ${kinds} instead of str,sta,str`);
  });
}
