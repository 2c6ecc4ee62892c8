import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import {
  encodeConnect,
  encodePacket,
  encodeString,
  type GivenDevice,
  type MqttService,
  password,
  type Raw,
  startMqtt,
} from '../support/mqtt.js';
import { waitUntil } from '../support/process.js';

let mqtt: MqttService;
let device: GivenDevice;

beforeAll(async () => {
  mqtt = await startMqtt();
  device = await (await mqtt.account('acme')).device(['plain/#']);
});
afterAll(() => mqtt.stop());

const id = (value: number) => Buffer.from([value >> 8, value & 255]);
const qos = (value: number) => Buffer.from([value]);
const pingreq = Buffer.from([0xc0, 0]);
const accepted = [0x20, 2, 0, 0];

async function logIn(options: Partial<Parameters<typeof encodeConnect>[0]> = {}): Promise<Raw> {
  const raw = await mqtt.raw();
  raw.socket.write(encodeConnect({ username: device.username, clientId: 'raw', ...options }));
  await raw.bytes(4);
  return raw;
}

describe('a protocol error of MQTT 3.1.1 (reference/mqtt.md#packet-limits)', () => {
  const topic = encodeString('plain/x');
  const illFormed = encodeString(Buffer.from([0x70, 0xc3, 0x28]));
  const surrogate = encodeString(Buffer.from([0x70, 0xed, 0xa0, 0x80]));
  const nul = encodeString('plain/\0');

  it.each([
    ['a PUBLISH at QoS 1 with packet id 0', encodePacket(0x32, topic, id(0), Buffer.from('x')), 'packet id 0'],
    ['a PUBLISH at QoS 2 with packet id 0', encodePacket(0x34, topic, id(0), Buffer.from('x')), 'packet id 0'],
    ['a SUBSCRIBE with packet id 0', encodePacket(0x82, id(0), topic, qos(1)), 'packet id 0'],
    ['an UNSUBSCRIBE with packet id 0', encodePacket(0xa2, id(0), topic), 'packet id 0'],
    ['a PUBACK with packet id 0', encodePacket(0x40, id(0)), 'packet id 0'],
    ['a PUBREC with packet id 0', encodePacket(0x50, id(0)), 'packet id 0'],
    ['a PUBREL with packet id 0', encodePacket(0x62, id(0)), 'packet id 0'],
    ['a PUBCOMP with packet id 0', encodePacket(0x70, id(0)), 'packet id 0'],
    ['a SUBSCRIBE without a filter', encodePacket(0x82, id(1)), 'no topic filter'],
    ['an UNSUBSCRIBE without a filter', encodePacket(0xa2, id(1)), 'no topic filter'],
    ['a SUBSCRIBE with an empty filter', encodePacket(0x82, id(1), encodeString(''), qos(0)), 'empty topic filter'],
    ['an UNSUBSCRIBE with an empty filter', encodePacket(0xa2, id(1), encodeString('')), 'empty topic filter'],
    ['a SUBSCRIBE at QoS 3', encodePacket(0x82, id(1), topic, qos(3)), 'invalid QoS'],
    ['a PUBLISH in ill-formed UTF-8', encodePacket(0x30, illFormed, Buffer.from('x')), 'ill-formed UTF-8'],
    ['a PUBLISH with a surrogate', encodePacket(0x30, surrogate, Buffer.from('x')), 'ill-formed UTF-8'],
    ['a SUBSCRIBE in ill-formed UTF-8', encodePacket(0x82, id(1), illFormed, qos(1)), 'ill-formed UTF-8'],
    ['an UNSUBSCRIBE in ill-formed UTF-8', encodePacket(0xa2, id(1), illFormed), 'ill-formed UTF-8'],
    ['a PUBLISH with NUL', encodePacket(0x30, nul, Buffer.from('x')), 'NUL in a string'],
    ['a SUBSCRIBE with NUL', encodePacket(0x82, id(1), nul, qos(1)), 'NUL in a string'],
    ['an UNSUBSCRIBE with NUL', encodePacket(0xa2, id(1), nul), 'NUL in a string'],
    ['a topic longer than its packet', encodePacket(0x30, id(20), Buffer.from('x')), 'packet too short'],
    ['a PUBLISH without its packet id', encodePacket(0x32, topic), 'packet too short'],
    ['a PUBACK of three bytes', encodePacket(0x40, id(1), qos(0)), 'packet too long'],
    ['a CONNACK', encodePacket(0x20, id(0)), 'unexpected packet type'],
  ])('closes the connection: %s', async (_what, bytes, error) => {
    const raw = await logIn();
    const before = mqtt.logged.length;
    raw.socket.write(Buffer.concat([bytes, pingreq]));
    await raw.closed;
    expect([...(await raw.bytes(4))]).toEqual(accepted);
    const isLogged = (line: string) => line.includes(`MQTT connection closed: ${error}`);
    await waitUntil(() => mqtt.logged.slice(before).some(isLogged));
  });

  it('is found in a packet that comes in pieces, and whole packets before it count', async () => {
    const watcher = await mqtt.connect(device.username, { clientId: 'watcher' });
    await watcher.subscribe('plain/#');
    const raw = await logIn();
    const publish = encodePacket(0x32, topic, id(7), Buffer.from('counts'));
    for (const byte of publish) {
      raw.socket.write(Buffer.from([byte]));
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect([...(await raw.bytes(8)).subarray(4)]).toEqual([0x40, 2, 0, 7]);
    for (const byte of encodePacket(0x32, topic, id(0), Buffer.from('x'))) raw.socket.write(Buffer.from([byte]));
    await raw.closed;
    await watcher.publish('plain/mark', 'mark');
    expect((await watcher.received(2)).map(({ text }) => text)).toEqual(['counts', 'mark']);
    await watcher.end();
  });

  it.each([
    ['client id', (bad: string | Buffer) => [bad, undefined, undefined]],
    ['will topic', (bad: string | Buffer) => ['raw', bad, undefined]],
    ['username', (bad: string | Buffer) => ['raw', undefined, bad]],
  ] as const)('closes before the login: %s in ill-formed UTF-8 or with NUL', async (_field, place) => {
    for (const bad of [Buffer.from([0xc3, 0x28]), 'a\0b']) {
      const [clientId, will, username] = place(bad);
      const raw = await mqtt.raw();
      raw.socket.write(
        encodePacket(
          0x10,
          encodeString('MQTT'),
          Buffer.from([4, 0xc2 | (will === undefined ? 0 : 4), 0, 60]),
          encodeString(clientId ?? ''),
          ...(will === undefined ? [] : [encodeString(will), encodeString('bye')]),
          encodeString(username ?? device.username),
          encodeString(password),
        ),
      );
      await raw.closed;
      expect([...(await raw.bytes(0))]).toEqual([]);
    }
  });
});

describe('protocol versions (reference/mqtt.md#broker)', () => {
  it.each([
    ['MQTT', 2, [0x20, 2, 0, 1]],
    ['MQTT', 3, [0x20, 2, 0, 1]],
    ['MQTT', 6, [0x20, 3, 0, 0x84, 0]],
    ['MQTT', 0, [0x20, 2, 0, 1]],
    ['MQIsdp', 4, [0x20, 2, 0, 1]],
    ['MQIsdp', 3, accepted],
    ['MQTT', 4, accepted],
    ['MQTT', 0x84, accepted],
  ])('%s level %i is answered with CONNACK %j (MQTT-3.1.2-2)', async (name, level, connack) => {
    const raw = await mqtt.raw();
    raw.socket.write(encodeConnect({ username: device.username, clientId: 'raw', name, level }));
    expect([...(await raw.bytes(connack.length))]).toEqual(connack);
    if (connack === accepted) {
      raw.socket.write(pingreq);
      expect([...(await raw.bytes(6)).subarray(4)]).toEqual([0xd0, 0]);
      raw.socket.destroy();
    }
    await raw.closed;
  });

  it('an unknown level is answered even if the rest of CONNECT has another layout', async () => {
    const raw = await mqtt.raw();
    raw.socket.write(encodePacket(0x10, encodeString('MQTT'), Buffer.from([9])));
    expect([...(await raw.bytes(5))]).toEqual([0x20, 3, 0, 0x84, 0]);
    await raw.closed;
  });

  it('another protocol name closes the connection without an answer (MQTT-3.1.2-1)', async () => {
    const raw = await mqtt.raw();
    raw.socket.write(encodeConnect({ username: device.username, clientId: 'raw', name: 'AMQP' }));
    await raw.closed;
    expect([...(await raw.bytes(0))]).toEqual([]);
  });

  it('a client of MQTT 3.1 publishes, subscribes and receives at every QoS', async () => {
    const client = await mqtt.connect(device.username, {
      protocolId: 'MQIsdp',
      protocolVersion: 3,
      clientId: 'old-client',
    });
    expect(await client.subscribe('plain/#', 2)).toEqual([2]);
    for (const level of [0, 1, 2] as const) await client.publish('plain/old', `at ${level}`, { qos: level });
    expect((await client.received(3)).map(({ text }) => text)).toEqual(['at 0', 'at 1', 'at 2']);
    await client.publish(`${device.id}/streams`, { data: { from: '3.1' } });
    expect(await mqtt.stored(device.id)).toEqual([{ from: '3.1' }]);
    await client.end();
  });

  it('MQTT 3.1 takes client ids of 1 to 256 characters, as 3.1.1 does, and repeats packets with DUP', async () => {
    for (const clientId of ['', 'x'.repeat(257)]) {
      const refused = await mqtt.raw();
      refused.socket.write(encodeConnect({ username: device.username, clientId, name: 'MQIsdp', level: 3 }));
      expect([...(await refused.bytes(4))]).toEqual([0x20, 2, 0, 2]);
      await refused.closed;
    }
    const raw = await logIn({ clientId: 'x'.repeat(256), name: 'MQIsdp', level: 3 });
    raw.socket.write(encodePacket(0x8a, id(1), encodeString('plain/x'), qos(1)));
    expect([...(await raw.bytes(9)).subarray(4)]).toEqual([0x90, 3, 0, 1, 1]);
    raw.socket.write(encodePacket(0xaa, id(2), encodeString('plain/x')));
    expect([...(await raw.bytes(13)).subarray(9)]).toEqual([0xb0, 2, 0, 2]);
    raw.socket.write(encodePacket(0x6a, id(3)));
    expect([...(await raw.bytes(17)).subarray(13)]).toEqual([0x70, 2, 0, 3]);
    raw.socket.destroy();
    const strict = await logIn();
    strict.socket.write(encodePacket(0x8a, id(1), encodeString('plain/x'), qos(1)));
    await strict.closed;
  });
});

it('sets the DUP flag on a message that was sent before, and on no other (reference/mqtt.md#delivery)', async () => {
  const own = await (await mqtt.account('acme')).device(['repeated']);
  const options = { username: own.username, clientId: 'repeats', clean: false };
  const first = await logIn(options);
  first.socket.write(encodePacket(0x82, id(1), encodeString('repeated'), qos(1)));
  expect([...(await first.bytes(9)).subarray(4)]).toEqual([0x90, 3, 0, 1, 1]);
  const sender = await mqtt.connect(own.username, { clientId: 'sends' });
  const header_bytes = 2;
  const message_bytes = header_bytes + encodeString('repeated').length + id(1).length + 'number 1'.length;
  await sender.publish('repeated', 'number 1');
  const sent = (await first.bytes(9 + message_bytes)).subarray(9);
  first.socket.destroy();
  await first.closed;
  await sender.publish('repeated', 'number 2');
  const second = await logIn(options);
  const received = (await second.bytes(4 + 2 * message_bytes)).subarray(4);
  expect(sent[0]).toBe(0x32);
  expect(received[0]).toBe(0x3a);
  expect(received.subarray(1, message_bytes)).toEqual(sent.subarray(1));
  expect(received[message_bytes]).toBe(0x32);
  expect(received.subarray(-8).toString()).toBe('number 2');
  second.socket.destroy();
  await second.closed;
  await sender.end();
});

it('sends a message again that the client has published right after its SUBSCRIBE', async () => {
  const own = await (await mqtt.account('acme')).device(['at-once']);
  const options = { username: own.username, clientId: 'at-once', clean: false };
  const first = await logIn(options);
  const subscribe = encodePacket(0x82, id(1), encodeString('at-once'), qos(1));
  first.socket.write(Buffer.concat([subscribe, encodePacket(0x32, encodeString('at-once'), id(2), Buffer.from('x'))]));
  // CONNACK, SUBACK, PUBACK and the message, which is not acknowledged
  expect((await first.bytes(27)).length).toBe(27);
  first.socket.destroy();
  await first.closed;
  const second = await logIn(options);
  expect((await second.bytes(18))[4]).toBe(0x3a);
  second.socket.destroy();
  await second.closed;
});

describe('session present (reference/mqtt.md#sessions)', () => {
  it('is 1 when only QoS 2 state is kept, and that state is used', async () => {
    const own = await (await mqtt.account('acme')).device();
    const options = { username: own.username, clientId: 'keeps-qos-2', clean: false };
    const first = await logIn(options);
    expect([...(await first.bytes(4))]).toEqual(accepted);
    const publish = (flags: number) =>
      encodePacket(0x34 | flags, encodeString(`${own.id}/streams`), id(7), Buffer.from('{"data":{"n":1}}'));
    first.socket.write(publish(0));
    expect([...(await first.bytes(8)).subarray(4)]).toEqual([0x50, 2, 0, 7]);
    first.socket.destroy();
    await first.closed;

    const second = await logIn(options);
    expect([...(await second.bytes(4))]).toEqual([0x20, 2, 1, 0]);
    second.socket.write(publish(0x08));
    expect([...(await second.bytes(8)).subarray(4)]).toEqual([0x50, 2, 0, 7]);
    second.socket.write(encodePacket(0x62, id(7)));
    expect([...(await second.bytes(12)).subarray(8)]).toEqual([0x70, 2, 0, 7]);
    expect(await mqtt.stored(own.id)).toEqual([{ n: 1 }]);
    second.socket.destroy();
    await second.closed;
  });

  it('is 0 for the first connection, a clean one, and the one after a clean one; 1 with an empty session', async () => {
    const present = async (clientId: string, clean: boolean) => {
      const raw = await logIn({ clientId, clean });
      const flags = (await raw.bytes(4))[2];
      raw.socket.destroy();
      await raw.closed;
      return flags;
    };
    const flags: (number | undefined)[] = [];
    for (const clean of [false, false, true, false, false]) flags.push(await present('present', clean));
    expect(flags).toEqual([0, 1, 0, 0, 1]);
  });
});
