import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { generate } from 'mqtt-packet';
import { encodeConnect, openRawConnection, type Raw } from '../../support/mqtt.js';
import { createMqttProcesses, type MqttProcess, type MqttProcesses } from '../../support/mqtt-process.js';
import { openSandbox, type Sandbox, waitUntil } from '../../support/process.js';

let sandbox: Sandbox;
let processes: MqttProcesses;
let a: MqttProcess;
let b: MqttProcess;
const raws: Raw[] = [];

beforeAll(async () => {
  sandbox = await openSandbox();
  processes = createMqttProcesses(sandbox);
  a = await processes.start();
  b = await processes.start();
});
afterAll(async () => {
  for (const { socket } of raws) socket.destroy();
  processes.close();
  await sandbox.close();
});

/** Subscribes at QoS 0 and reads nothing after SUBACK. */
async function subscribeSilently({ mqtt_port }: MqttProcess, username: string, topic: string): Promise<Raw> {
  const raw = await openRawConnection(mqtt_port);
  raws.push(raw);
  raw.socket.write(encodeConnect({ username, clientId: '' }));
  await raw.bytes(4);
  raw.socket.write(generate({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic, qos: 0 }] }));
  await raw.bytes(9);
  raw.socket.pause();
  return raw;
}

type Client = Awaited<ReturnType<MqttProcess['connect']>>;

async function publishMany(publisher: Client, topic: string, count: number): Promise<void> {
  for (let sent = 0; sent < count; sent += 128)
    await Promise.all(Array.from({ length: 128 }, () => publisher.publish(topic, 'x'.repeat(4096), { qos: 0 })));
}

it('outlives a subscriber of another instance that does not read, and delivers to others', async () => {
  const device = await a.device(['flood/#', 'calm']);
  await subscribeSilently(b, device, 'flood/#');
  const reader = await b.connect(device, { clientId: 'reader' });
  await reader.subscribe('calm', 1);
  const publisher = await a.connect(device, { clientId: 'publisher' });
  await publishMany(publisher, 'flood/x', 44 * 128);
  await publisher.publish('calm', 'after the flood', { qos: 1 });
  expect(await reader.received(1)).toMatchObject([{ text: 'after the flood' }]);
  expect((await b.send('GET', '/healthz')).status).toBe(200);
  await Promise.all([reader.end(), publisher.end()]);
});

it('delivers a burst of 12 MiB to a subscriber of another instance that reads', async () => {
  const other = createMqttProcesses(sandbox);
  const [from, to] = [await other.start(), await other.start()];
  const device = await from.device(['flood/#']);
  const reader = await to.connect(device, { clientId: 'reader' });
  await reader.subscribe('flood/#', 0);
  const publisher = await from.connect(device, { clientId: 'publisher' });
  await publishMany(publisher, 'flood/x', 3072);
  await waitUntil(() => reader.messages.length === 3072);
  await Promise.all([reader.end(), publisher.end()]);
  other.close();
});
