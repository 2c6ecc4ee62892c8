import { awaitWithin, openConnection, type RawConnection } from '../support/instance.js';
import { encodeConnect, encodePacket, encodeString } from '../support/mqtt-packets.js';
import { waitUntil } from '../support/service-process.js';
import { type Attack, assert, password, type Target } from './target.js';

const reaction_limit_ms = 3000;
const id = Buffer.from([0, 7]);
const zeroId = Buffer.from([0, 0]);
const payload = Buffer.from('x');
const illFormed = Buffer.concat([Buffer.from('plant/'), Buffer.from([0xc3, 0x28])]);
const surrogate = Buffer.concat([Buffer.from('plant/'), Buffer.from([0xed, 0xa0, 0x80])]);

/** Packets of a client that is logged in, each of which must close its connection (MQTT 3.1.1). */
const violations: Readonly<Record<string, Buffer>> = {
  'a PUBLISH with packet id 0': encodePacket(0x32, encodeString('plant/a'), zeroId, payload),
  'a SUBSCRIBE with packet id 0': encodePacket(0x82, zeroId, encodeString('plant/a'), Buffer.from([0])),
  'an UNSUBSCRIBE with packet id 0': encodePacket(0xa2, zeroId, encodeString('plant/a')),
  'a SUBSCRIBE without a filter': encodePacket(0x82, id),
  'an UNSUBSCRIBE without a filter': encodePacket(0xa2, id),
  'a PUBLISH to a topic of ill-formed UTF-8': encodePacket(0x32, encodeString(illFormed), id, payload),
  'a PUBLISH to a topic with a surrogate': encodePacket(0x32, encodeString(surrogate), id, payload),
  'a PUBLISH to a topic with NUL': encodePacket(0x32, encodeString('plant/\0'), id, payload),
  'a SUBSCRIBE to a filter of ill-formed UTF-8': encodePacket(0x82, id, encodeString(illFormed), Buffer.from([0])),
  'a SUBSCRIBE to a filter with NUL': encodePacket(0x82, id, encodeString('plant/\0'), Buffer.from([0])),
};

/** Attacks on the broker by packets that MQTT 3.1.1 forbids (reference/mqtt.md#packet-limits). */
export const mqttProtocolAttacks: readonly Attack[] = [
  ...Object.entries(violations).map(([violation, packet]) => ({
    name: `mqtt: ${violation}`,
    run: (target: Target) => violate(target, packet),
  })),
  { name: 'mqtt: unknown protocol levels', run: connectWithUnknownLevel },
];

async function violate(target: Target, packet: Buffer): Promise<void> {
  const connection = await openConnection(target.mqttPort);
  try {
    connection.socket.write(encodeConnect('demo', password, 'violator'));
    assert((await awaitReturnCode(connection)) === 0, 'the login before it is refused');
    connection.socket.write(packet);
    await awaitWithin(connection.closed, reaction_limit_ms, 'closing the connection');
  } finally {
    connection.socket.destroy();
  }
}

async function connectWithUnknownLevel(target: Target): Promise<void> {
  for (const level of [0, 2, 6, 9, 255]) {
    const connection = await openConnection(target.mqttPort);
    connection.socket.write(encodeConnect('demo', password, 'newer', level));
    try {
      const code = await awaitReturnCode(connection);
      assert(code === 1, `level ${level} gets return code ${code} instead of 1`);
      await awaitWithin(connection.closed, reaction_limit_ms, `closing a connection of level ${level}`);
    } finally {
      connection.socket.destroy();
    }
  }
}

/** @returns the return code of the CONNACK, or -1 if the connection is closed without one */
async function awaitReturnCode({ received, socket }: RawConnection): Promise<number> {
  await waitUntil(() => received().length >= 4 || socket.destroyed, reaction_limit_ms).catch(() => undefined);
  return received()[3] ?? -1;
}
