import { randomBytes } from 'node:crypto';
import { connect as connectTcp } from 'node:net';
import { afterAll, beforeAll, describe, expect, it, jest } from '@jest/globals';
import { WebSocket } from 'ws';
import { StartError } from '../../src/errors.js';
import {
  encodeConnect,
  encodePacket,
  encodeString,
  type GivenDevice,
  type MqttService,
  password,
  startMqtt,
} from '../support/mqtt.js';
import { waitUntil } from '../support/process.js';

let mqtt: MqttService;
let device: GivenDevice;

beforeAll(async () => {
  mqtt = await startMqtt();
  device = await (await mqtt.account('acme')).device(['big']);
});
afterAll(() => mqtt.stop());

const limit = 512 * 1024;

const connectPacket = (clientId = 'raw') => encodeConnect({ username: device.username, clientId });

/** A publish at QoS 1 of exactly `bytes` bytes altogether. */
function publishOf(bytes: number): Buffer {
  const probe = encodePacket(0x32, encodeString('big'), Buffer.from([0, 1]), Buffer.alloc(bytes - 20));
  return encodePacket(0x32, encodeString('big'), Buffer.from([0, 1]), Buffer.alloc(bytes - 20 + bytes - probe.length));
}

describe('packet limits (reference/mqtt.md#packet-limits)', () => {
  it.each([
    ['declares 256 MB', Buffer.from([0x10, 0xff, 0xff, 0xff, 0x7f])],
    ['declares a byte more than 512 KiB', Buffer.from([0x10, 0xfd, 0xff, 0x1f])],
    ['has a length of five bytes', Buffer.from([0x10, 0x80, 0x80, 0x80, 0x80, 0x01])],
    ['is not CONNECT', Buffer.from([0xc0, 0])],
    ['is a CONNECT with reserved flags', Buffer.from([0x11, 2, 0, 0])],
    ['is an empty CONNECT', Buffer.from([0x10, 0])],
    ['is rubbish in a CONNECT', Buffer.concat([Buffer.from([0x10, 20]), Buffer.alloc(20, 255)])],
    ['is HTTP', Buffer.from('GET / HTTP/1.1\r\n\r\n')],
  ])('closes at once a connection whose first packet %s (MQTT-3.1.0-1)', async (_what, bytes) => {
    // closed after 10 s
    const silent = await mqtt.raw();
    const raw = await mqtt.raw();
    raw.socket.write(bytes);
    const nameOf = async ({ closed }: typeof raw, name: string) => closed.then(() => name);
    expect(await Promise.race([nameOf(silent, 'the silent one'), nameOf(raw, 'this one')])).toBe('this one');
    silent.socket.destroy();
  });

  it('holds back nothing of a CONNECT that is too large', async () => {
    const before = process.memoryUsage().rss;
    const sockets = await Promise.all(
      Array.from({ length: 50 }, async () => {
        const raw = await mqtt.raw();
        raw.socket.write(Buffer.concat([Buffer.from([0x10, 0xff, 0xff, 0xff, 0x7f]), Buffer.alloc(100_000)]));
        return raw;
      }),
    );
    await Promise.all(sockets.map(({ closed }) => closed));
    expect(process.memoryUsage().rss - before).toBeLessThan(64 * 1024 * 1024);
  });

  it('takes packets of exactly 512 KiB, in pieces too, and closes on a byte more, after the login (MQTT-3.2.2-15)', async () => {
    const raw = await mqtt.raw();
    raw.socket.write(connectPacket());
    expect([...(await raw.bytes(4))]).toEqual([0x20, 2, 0, 0]);
    const exact = publishOf(limit);
    expect(exact).toHaveLength(limit);
    for (let from = 0; from < exact.length; from += 100_001) raw.socket.write(exact.subarray(from, from + 100_001));
    expect([...(await raw.bytes(8)).subarray(4)]).toEqual([0x40, 2, 0, 1]);
    const before = mqtt.drops.get('too_large') ?? 0;
    raw.socket.write(publishOf(limit + 1).subarray(0, 10));
    await raw.closed;
    expect(mqtt.drops.get('too_large')).toBe(before + 1);
  });

  it('reads a CONNECT that comes byte by byte, with packets right behind it', async () => {
    const raw = await mqtt.raw();
    raw.socket.setNoDelay(true);
    const bytes = Buffer.concat([
      connectPacket('slow'),
      encodePacket(0x32, encodeString('big'), Buffer.from([0, 9]), Buffer.from('x')),
      Buffer.from([0xc0, 0]),
    ]);
    for (const byte of bytes) {
      raw.socket.write(Buffer.from([byte]));
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect([...(await raw.bytes(10))]).toEqual(expect.arrayContaining([0x20, 0x40, 0xd0]));
    raw.socket.destroy();
  });

  it('closes a connection whose CONNECT is not complete within 10 s, however it drips', async () => {
    const [silent, dripping] = [await mqtt.raw(), await mqtt.raw()];
    const begun = performance.now();
    const bytes = connectPacket('drip');
    let sent = 0;
    const drip = setInterval(() => dripping.socket.write(bytes.subarray(sent, ++sent)), 500);
    await Promise.all([silent.closed, dripping.closed]);
    clearInterval(drip);
    expect(performance.now() - begun).toBeGreaterThan(9000);
  });

  it('ends a connection that stays silent for one and a half of its keep-alive time (MQTT-3.1.2-22, MQTT-3.2.2-22)', async () => {
    const raw = await mqtt.raw();
    raw.socket.write(
      encodePacket(
        0x10,
        encodeString('MQTT'),
        Buffer.from([4, 0xc2, 0, 1]),
        encodeString('silent'),
        encodeString(device.username),
        encodeString(password),
      ),
    );
    await raw.bytes(4);
    await raw.closed;
  });

  it('survives 300 connections of rubbish, before and after the login', async () => {
    const fatal = jest.fn();
    process.on('uncaughtException', fatal);
    const types = [
      0x10, 0x20, 0x30, 0x32, 0x34, 0x40, 0x50, 0x62, 0x70, 0x82, 0x90, 0xa2, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0,
    ];
    await Promise.all(
      Array.from({ length: 300 }, async (_, n) => {
        const raw = await mqtt.raw();
        if (n % 3 !== 0) {
          raw.socket.write(connectPacket(`fuzz-${n}`));
          await Promise.race([raw.bytes(4), raw.closed]);
        }
        for (let count = 0; count < 20; count++)
          raw.socket.write(encodePacket(types[(n + count) % types.length] ?? 0, randomBytes((n * count) % 40)));
        raw.socket.end();
        await raw.closed;
      }),
    );
    process.off('uncaughtException', fatal);
    expect(fatal).not.toHaveBeenCalled();
    await waitUntil(() => mqtt.connections() === 0);
    const alive = await mqtt.connect(device.username);
    await alive.publish('big', 'still here');
    await alive.end();
  });

  it('closes on a publish with a wildcard or an empty topic, and delivers nothing', async () => {
    for (const topic of ['big/+', '#', '']) {
      const raw = await mqtt.raw();
      raw.socket.write(connectPacket());
      await raw.bytes(4);
      raw.socket.write(encodePacket(0x32, encodeString(topic), Buffer.from([0, 1]), Buffer.from('x')));
      await raw.closed;
    }
  });
});

it('drops a message of more than 100 levels, refuses subscriptions and wills, and closes nothing', async () => {
  const levels = (count: number) => Array(count).fill('a').join('/');
  const { username } = await (await mqtt.account('deep')).device(['#']);
  const device = await mqtt.connect(username, { clientId: 'deep' });
  expect(await device.subscribe([levels(100), levels(101), `${levels(99)}/#`, `${levels(100)}/#`])).toEqual([
    1, 128, 1, 128,
  ]);
  const before = mqtt.droppedFields.get('topic') ?? 0;
  for (const count of [101, 30_000]) await device.publish(levels(count), 'too deep', { retain: true });
  await device.publish(levels(101), 'too deep', { qos: 2 });
  await device.client.unsubscribeAsync(levels(101));
  expect(mqtt.droppedFields.get('topic')).toBe(before + 3);
  await device.publish(levels(100), 'deep enough');
  expect((await device.received(1)).map(({ text }) => text)).toEqual(['deep enough']);
  const will = { topic: levels(101), payload: Buffer.from('x'), qos: 0 as const, retain: false };
  expect(await mqtt.refusal(username, { will })).toBe(5);
  await device.end();
});

it('grants a device its 100 topics together with those of the service', async () => {
  const names = Array.from({ length: 100 }, (_, n) => `of/${n}`);
  const { id, username } = await (await mqtt.account('topical')).device(names);
  const own = ['streams', 'status', 'commands', 'commands/result', 'state/desired', 'state/reported'];
  const connected = await mqtt.connect(username);
  expect(await connected.subscribe(names)).toEqual(names.map(() => 1));
  expect(await connected.subscribe(own.map((name) => `${id}/${name}`))).toEqual(own.map(() => 1));
  await connected.end();
});

describe('listening', () => {
  it('names MQTT_PORT where it is taken', async () => {
    await expect(mqtt.broker.listen('127.0.0.1', mqtt.port)).rejects.toEqual(
      new StartError(`MQTT_PORT ${mqtt.port} of HOST 127.0.0.1 is taken`),
    );
  });

  it('takes a WebSocket at /mqtt of mqtt or mqttv3.1 only, in binary (MQTT-6.0.0-1, MQTT-6.0.0-3, MQTT-6.0.0-4)', async () => {
    const attempt = (url: string, protocols: string[]) =>
      new Promise<string>((resolve) => {
        const socket = new WebSocket(url, protocols);
        socket.on('open', () => {
          resolve(`open ${socket.protocol}`);
          socket.terminate();
        });
        socket.on('error', ({ message }) => resolve(message));
      });
    expect(await attempt(mqtt.ws, ['mqtt'])).toBe('open mqtt');
    expect(await attempt(`${mqtt.ws}/`, ['other', 'mqtt'])).toBe('open mqtt');
    expect(await attempt(mqtt.ws, ['other', 'mqttv3.1'])).toBe('open mqttv3.1');
    expect(await attempt(mqtt.ws, ['mqttv3.1', 'mqtt'])).toBe('open mqtt');
    expect(await attempt(mqtt.ws, [])).toContain('400');
    expect(await attempt(mqtt.ws, ['other'])).toContain('400');
    expect(await attempt(mqtt.ws.replace('/mqtt', '/other'), ['mqtt'])).toContain('404');
    const texting = new WebSocket(mqtt.ws, ['mqtt']);
    texting.on('error', () => undefined);
    await new Promise((resolve) => texting.on('open', resolve));
    texting.send('text');
    await new Promise((resolve) => texting.on('close', resolve));
  });

  it('closes a WebSocket on a frame over the limit', async () => {
    const socket = new WebSocket(mqtt.ws, ['mqtt']);
    socket.on('error', () => undefined);
    await new Promise((resolve) => socket.on('open', resolve));
    socket.send(Buffer.alloc(limit + 1, 0x10));
    await new Promise((resolve) => socket.on('close', resolve));
  });

  it('does not hold up a port that only opens', async () => {
    const sockets = Array.from({ length: 200 }, () => connectTcp(mqtt.port, '127.0.0.1'));
    const connected = await mqtt.connect(device.username);
    await connected.end();
    for (const socket of sockets) socket.destroy();
  });
});
