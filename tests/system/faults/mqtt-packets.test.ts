import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { encodeConnect, encodePacket, encodeString, openRawConnection } from '../../support/mqtt.js';
import { createMqttProcesses, type MqttProcess, type MqttProcesses } from '../../support/mqtt-process.js';
import { openSandbox, type Sandbox, waitUntil } from '../../support/process.js';
import { createRandom } from '../../support/random.js';

const duration_ms = Number(process.env.FUZZ_SECONDS ?? 60) * 1000;
const senders = 8;

let sandbox: Sandbox;
let processes: MqttProcesses;
let service: MqttProcess;

beforeAll(async () => {
  sandbox = await openSandbox();
  processes = createMqttProcesses(sandbox);
  service = await processes.start();
});
afterAll(async () => {
  processes.close();
  await sandbox.close();
});

const bytes = (...values: number[]) => Buffer.from(values);
const withLength = (...parts: Buffer[]) => encodePacket(0, ...parts).subarray(1);

/** Packets that clients of a version send after their CONNECT. */
function createPackets(level: number, device: string): Buffer[] {
  const properties = (...parts: Buffer[]) => (level === 5 ? withLength(...parts) : bytes());
  const user = Buffer.concat([bytes(0x26), encodeString('a'), encodeString('b')]);
  const answer = Buffer.concat([bytes(0x08), encodeString('fuzz/answer'), bytes(0x09, 0, 2, 0, 255)]);
  const publish = (first: number, topic: string, content: string, ...own: Buffer[]) =>
    encodePacket(
      first,
      encodeString(topic),
      (first & 6) === 0 ? bytes() : bytes(0, 7),
      properties(...own),
      Buffer.from(content),
    );
  const subscribe = (filter: string, options: number) =>
    encodePacket(0x82, bytes(0, 1), properties(bytes(0x0b, 3)), encodeString(filter), bytes(options));
  const packets = [
    subscribe('fuzz/#', 2),
    subscribe('$share/group/fuzz/+', 1),
    publish(0x30, 'fuzz/a', 'text', bytes(1, 1), user, user),
    publish(0x33, 'fuzz/b', 'retained', bytes(2, 0, 0, 0, 9), answer),
    publish(0x34, 'fuzz/c', 'exactly once', bytes(0x23, 0, 1), user),
    publish(0x32, `${device}/streams`, '{"data":{"value":1}}'),
    publish(0x32, `${device}/state/reported`, '{"reported":{"mode":"on"}}'),
    encodePacket(0xa2, bytes(0, 2), properties(user), encodeString('fuzz/#')),
    bytes(0xc0, 0),
    bytes(0xe0, 0),
  ];
  for (const first of [0x40, 0x50, 0x62, 0x70]) packets.push(encodePacket(first, bytes(0, 7)));
  return packets;
}

it('no bytes of a client end the service or the connection of another one', async () => {
  const seed = Number(process.env.SEED ?? Date.now() % 1e9);
  process.stderr.write(`seed of the packets: ${seed}\n`);
  const random = createRandom(seed);
  const below = (limit: number) => Math.floor(random() * limit);
  const pick = <Value>(values: readonly Value[]) => values[below(values.length)] as Value;
  const extremes = [0, 1, 2, 0x7f, 0x80, 0xff];

  function mutateOnce(packet: Buffer): Buffer {
    const at = below(packet.length);
    const end = at + below(packet.length - at);
    const copy = Buffer.from(packet);
    switch (below(6)) {
      case 0:
        copy[at] = (copy[at] ?? 0) ^ (1 << below(8));
        return copy;
      case 1:
        copy[at] = pick(extremes);
        return copy;
      case 2:
        return Buffer.concat([packet.subarray(0, at), bytes(pick(extremes), below(256)), packet.subarray(at)]);
      case 3:
        return Buffer.concat([packet.subarray(0, at), packet.subarray(end)]);
      case 4:
        return Buffer.concat([packet.subarray(0, end), packet.subarray(at)]);
      default:
        // the fixed header fits what is left
        return packet.length < 2 || packet.length > 127 ? copy : encodePacket(copy[0] ?? 0, copy.subarray(2, end));
    }
  }

  function mutate(packet: Buffer): Buffer {
    let mutated = packet;
    for (let times = below(4); times > 0 && mutated.length > 0; times--) mutated = mutateOnce(mutated);
    return mutated;
  }

  const device = await service.device(['fuzz/#']);
  const calm = await service.device(['calm']);
  const [five, four] = [
    await service.connect(calm, { clientId: 'calm-5', protocolVersion: 5 }),
    await service.connect(calm, { clientId: 'calm-4', clean: false }),
  ];
  for (const client of [five, four]) await client.subscribe('calm', 1);
  const until = performance.now() + duration_ms;
  let sent = 0;
  let connections = 0;

  async function send(): Promise<void> {
    while (performance.now() < until) {
      const level = pick([3, 4, 5, 5]);
      const name = level === 3 ? 'MQIsdp' : 'MQTT';
      const options = { username: device, clientId: `fuzz-${below(20)}`, clean: random() < 0.5, name, level };
      const connect = encodeConnect(options);
      const packets = createPackets(level, device);
      const chosen = Array.from({ length: below(20) }, () => (random() < 0.5 ? pick(packets) : mutate(pick(packets))));
      const all = Buffer.concat([random() < 0.8 ? connect : mutate(connect), ...chosen]);
      const { socket, closed } = await openRawConnection(service.mqtt_port);
      for (let from = 0; from < all.length && socket.writable; ) {
        const to = random() < 0.5 ? all.length : from + 1 + below(30);
        socket.write(all.subarray(from, to));
        from = to;
        await nextTurn();
      }
      socket.end();
      await closed;
      connections++;
    }
  }

  async function exchange(): Promise<void> {
    while (performance.now() < until) await pick([five, four]).publish('calm', `${sent++}`);
  }

  await Promise.all([exchange(), ...Array.from({ length: senders }, send)]);
  const texts = Array.from({ length: sent }, (_, index) => `${index}`);
  for (const { client, messages } of [five, four]) {
    await waitUntil(() => messages.length >= sent);
    expect(messages.map(({ text }) => text)).toEqual(texts);
    expect(client.connected).toBe(true);
  }
  expect((await service.send('GET', '/readyz')).status).toBe(200);
  process.stderr.write(`${connections} connections, ${sent} messages beside them\n`);
}, 300_000);
