import { afterAll, expect, it } from '@jest/globals';
import { generate } from 'mqtt-packet';
import { encodeConnect, type Raw, startMqtt } from '../../support/mqtt.js';
import { waitUntil } from '../../support/process.js';

const KiB = 1024;
const MiB = 1024 * KiB;
let stalledAccount: string | undefined;
let release: () => void = () => undefined;
/** Bytes of streams that are being stored, and how many were. */
let waiting_bytes = 0;
let stored = 0;

const mqtt = await startMqtt(({ record }) => ({
  async record(job) {
    const bytes = job.entries.length * 40 * KiB;
    waiting_bytes += bytes;
    if (job.account === stalledAccount) await stall;
    await record(job);
    waiting_bytes -= bytes;
    stored += job.entries.length;
  },
}));
const acme = await mqtt.account('acme');
afterAll(() => mqtt.stop());

let stall: Promise<void> = Promise.resolve();
function stallAccount(account: string): void {
  stalledAccount = account;
  stall = new Promise((resolve) => {
    release = () => {
      stalledAccount = undefined;
      resolve();
    };
  });
}

async function connectRaw(username: string): Promise<Raw> {
  const raw = await mqtt.raw();
  raw.socket.write(encodeConnect({ username, clientId: '' }));
  await raw.bytes(4);
  return raw;
}

/** Subscribes at QoS 0 and reads nothing after SUBACK. */
async function subscribeSilently(username: string, topic: string): Promise<void> {
  const raw = await connectRaw(username);
  raw.socket.write(generate({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic, qos: 0 }] }));
  await raw.bytes(9);
  raw.socket.pause();
}

it('ends a subscriber that is 1 MiB behind, drops its messages, and delivers those of others', async () => {
  const { username } = await acme.device(['flood/#', 'calm']);
  await subscribeSilently(username, 'flood/#');
  const reader = await mqtt.connect(username, { clientId: 'reader' });
  await reader.subscribe('calm', 1);
  const publishers = await Promise.all(Array.from({ length: 40 }, () => connectRaw(username)));
  const payload = 'x'.repeat(16 * KiB);
  const message = generate({ cmd: 'publish', topic: 'flood/x', payload, qos: 0, dup: false, retain: false });
  const messages = Buffer.concat(Array(10).fill(message));
  // one after the other: the broker reads no more of a publisher while its messages wait, and ends after 5 s who reads nothing
  let turn = 0;
  await waitUntil(() => {
    publishers[turn++ % publishers.length]?.socket.write(messages);
    return mqtt.connections() === 41;
  });
  await reader.publish('calm', 'still here', { qos: 1 });
  expect(await reader.received(1)).toMatchObject([{ topic: 'calm', text: 'still here' }]);
  expect(mqtt.drops.get('queue_full')).toBeGreaterThan(0);
  expect(mqtt.logged.join()).toContain('MQTT connection closed: it does not read');
  for (const { socket } of publishers) socket.destroy();
  await reader.end();
});

/** 200 KiB. */
const streams = Array(5).fill({ data: { text: 'x'.repeat(40 * KiB) } });

it('reads no more of a connection while 1 MiB of it is not stored', async () => {
  const { id, username } = await acme.device();
  stallAccount('acme');
  const before = stored;
  const device = await mqtt.connect(username);
  const published = Promise.all(Array.from({ length: 100 }, () => device.publish(`${id}/streams`, streams)));
  await waitUntil(() => waiting_bytes > 800 * KiB);
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect(waiting_bytes).toBeLessThan(1.3 * MiB);
  release();
  await published;
  expect(stored - before).toBe(500);
  await device.end();
});

it('holds 16 MiB of an account, beside which others publish', async () => {
  const { id, username } = await acme.device();
  const other = await (await mqtt.account('other')).device();
  stallAccount('acme');
  const before = stored;
  const devices = await Promise.all(Array.from({ length: 30 }, () => mqtt.connect(username)));
  const published = devices.flatMap((device) =>
    Array.from({ length: 10 }, () => device.publish(`${id}/streams`, streams)),
  );
  await waitUntil(() => waiting_bytes > 10 * MiB);
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect(waiting_bytes).toBeLessThan(16 * MiB);
  const device = await mqtt.connect(other.username);
  await device.publish(`${other.id}/streams`, streams);
  expect(await mqtt.stored(other.id)).toHaveLength(5);
  release();
  await Promise.all(published);
  expect(stored - before).toBe(1505);
  await Promise.all([...devices, device].map((client) => client.end()));
});

it('completes large packets of many connections at once', async () => {
  const { id, username } = await acme.device();
  const before = stored;
  const devices = await Promise.all(Array.from({ length: 80 }, () => connectRaw(username)));
  const payload = JSON.stringify([...streams, ...streams]);
  const packet = generate({ cmd: 'publish', topic: `${id}/streams`, payload, qos: 0, dup: false, retain: false });
  // the first parts of all are more than 16 MiB
  for (let at = 0; at < packet.length; at += 300 * KiB) {
    for (const { socket } of devices) socket.write(packet.subarray(at, at + 300 * KiB));
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
  await waitUntil(() => stored - before === 800);
  for (const { socket } of devices) socket.destroy();
});
