import { describe, expect, it } from '@jest/globals';
import { Connection, type Host } from '../../src/mqtt/connection/connection.js';
import { encodeConnack, encodeDisconnect, encodeRefusal } from '../../src/mqtt/connection/encode.js';
import { createFrameReader } from '../../src/mqtt/connection/frames.js';
import { type Level, parsePacket, readProtocol } from '../../src/mqtt/connection/packets.js';
import { PacketError } from '../../src/mqtt/connection/reasons.js';
import { refusals } from '../../src/mqtt/protocol/connect-packet.js';
import { bytesOf, hexOf, packet, string } from '../support/mqtt-hex.js';

/**
 * The normative statements of MQTT 5 (OASIS, 7 March 2019) about what a server reads and writes, by their numbers: bytes
 * in, bytes out. Those about sessions and delivery between clients are in tests/mqtt; tests/support/mqtt5-statements.ts
 * has those that do not apply.
 */
interface Opened {
  connection: Connection<string>;
  out(): string;
  calls: unknown[];
}

interface Setting {
  level?: Level;
  receive_maximum?: number;
  max_packet_bytes?: number;
  topic_alias_maximum?: number;
  wants_problem_information?: boolean;
  reason?: 0 | 0x10 | 0x99;
}

function open({ level = 5, reason = 0, ...limits }: Setting = {}): Opened {
  const written: Buffer[] = [];
  const calls: unknown[] = [];
  const released = new Set<number>();
  const host: Host<string> = {
    write: (bytes) => void written.push(bytes),
    async publish({ topic, payload, qos, packet_id, properties }) {
      calls.push(['publish', topic, payload.toString(), qos, properties.forwarded?.toString('hex') ?? '']);
      released.add(packet_id);
      return { acknowledgement: { reason, ...(reason === 0x99 && { text: '{"data":"is required"}' }) } };
    },
    release: async (packet_id) => released.delete(packet_id),
    async subscribe({ filters, properties }, granted) {
      calls.push(['subscribe', ...filters.map(({ filter }) => filter), properties.subscription_id ?? 0]);
      granted(filters.map(({ qos }) => qos));
    },
    unsubscribe: async (filters) => filters.map((filter) => (filter === 'a' ? 0 : 0x11)),
    received: async (packet_id) => void calls.push(['received', packet_id]),
    acknowledged: ({ origin }) => void calls.push(['acknowledged', origin]),
    hasRoom: () => undefined,
    disconnect: ({ reason: sent, properties: { session_expiry_s } }) =>
      void calls.push(['disconnect', sent, session_expiry_s ?? -1]),
    fail: ({ reason: code, message }) => void calls.push(['fail', code.toString(16), message]),
  };
  const client = {
    receive_maximum: 65_535,
    max_packet_bytes: 1_000_000,
    topic_alias_maximum: 0,
    wants_problem_information: true,
    ...limits,
  };
  const connection = new Connection<string>({ ...client, level }, host);
  return {
    connection,
    calls,
    out: () =>
      written
        .splice(0)
        .map((bytes) => bytes.toString('hex'))
        .join('|'),
  };
}

/** Hands in packets one after the other. */
async function feed({ connection }: Opened, packets: string): Promise<void> {
  for (const each of packets.split('|')) await connection.handle(bytesOf(each));
}

const failsWith = (code: string, text: string) => [['fail', code, text]];

describe('what a client of MQTT 5 may not send closes the connection', () => {
  it.each([
    ['MQTT-1.5.4-1, MQTT-3.3.2-1', 'ill-formed UTF-8', packet('30', '0002c328', '00'), '81', 'ill-formed UTF-8'],
    ['MQTT-1.5.4-1', 'a surrogate', packet('30', '0003eda080', '00'), '81', 'ill-formed UTF-8'],
    ['MQTT-1.5.4-2, MQTT-4.7.3-2', 'NUL', packet('30', '000100', '00'), '81', 'NUL in a string'],
    ['MQTT-1.5.7-1', 'NUL in a user property', packet('30', string('a'), '072600016b000100'), '81', 'NUL in a string'],
    ['MQTT-1.5.5-1', 'a length longer than it must be', packet('30', string('a'), '8000'), '81', 'malformed length'],
    ['MQTT-2.1.3-1', 'reserved flags of PUBACK', packet('41', '0001'), '81', 'invalid flags'],
    ['MQTT-2.2.1-3', 'PUBLISH with packet id 0', packet('32', string('a'), '0000', '00'), '82', 'packet id 0'],
    ['MQTT-2.2.1-3', 'SUBSCRIBE with packet id 0', packet('82', '0000', '00', string('a'), '00'), '82', 'packet id 0'],
    [
      'MQTT-3.1.0-2',
      'a second CONNECT',
      packet('10', string('MQTT'), '0502003c00', string('x')),
      '82',
      'unexpected packet type',
    ],
    ['MQTT-3.3.1-2', 'DUP at QoS 0', packet('38', string('a'), '00'), '81', 'DUP at QoS 0'],
    ['MQTT-3.3.1-4', 'QoS 3', packet('36', string('a'), '0001', '00'), '81', 'invalid QoS'],
    ['MQTT-3.3.2-2, MQTT-4.7.0-1', 'a wildcard', packet('30', string('a/#'), '00'), '81', 'topic with a wildcard'],
    ['MQTT-3.3.2-8', 'topic alias 0', packet('30', string('a'), '03230000'), '94', 'invalid topic alias'],
    [
      'MQTT-3.3.2-9, MQTT-3.2.2-17',
      'an alias over the maximum',
      packet('30', string('a'), '03230011'),
      '94',
      'invalid topic alias',
    ],
    [
      'MQTT-3.3.2-13',
      'an ill-formed response topic',
      packet('30', string('a'), '04080001ff'),
      '81',
      'ill-formed UTF-8',
    ],
    [
      'MQTT-3.3.2-14',
      'a response topic with a wildcard',
      packet('30', string('a'), '0508', string('b+')),
      '82',
      'response topic with a wildcard',
    ],
    [
      'MQTT-3.3.4-6',
      'a subscription identifier in PUBLISH',
      packet('30', string('a'), '020b01'),
      '82',
      'property of another packet',
    ],
    ['MQTT-3.3.2-19', 'an ill-formed content type', packet('30', string('a'), '04030001ff'), '81', 'ill-formed UTF-8'],
    ['MQTT-4.7.3-1', 'an empty topic without an alias', packet('30', '0000', '00'), '82', 'empty topic'],
    ['MQTT-4.7.3-1', 'an empty filter', packet('82', '0001', '00', '0000', '00'), '82', 'empty topic filter'],
    ['3.3.2.3.4', 'an alias that stands for nothing', packet('30', '0000', '03230003'), '82', 'unknown topic alias'],
    [
      '3.3.2.3.3',
      'a property given twice',
      packet('30', string('a'), '0a02000000010200000002'),
      '82',
      'property given twice',
    ],
    ['3.3.2.3.2', 'a payload format of 2', packet('30', string('a'), '020102'), '82', 'property out of range'],
    ['2.2.2.2', 'an unknown property', packet('30', string('a'), '027f00'), '81', 'unknown property'],
    ['2.2.2.1', 'properties longer than the packet', packet('30', string('a'), '7f'), '81', 'packet too short'],
    ['3.4.2', 'a PUBACK that is too short', packet('40', '00'), '81', 'packet too short'],
    ['MQTT-3.6.1-1', 'reserved flags of PUBREL', packet('60', '0001'), '81', 'invalid flags'],
    [
      'MQTT-3.8.1-1',
      'reserved flags of SUBSCRIBE',
      packet('80', '0001', '00', string('a'), '00'),
      '81',
      'invalid flags',
    ],
    ['MQTT-3.8.3-1', 'an ill-formed filter', packet('82', '0001', '00', '0001ff', '00'), '81', 'ill-formed UTF-8'],
    ['MQTT-3.8.3-2', 'SUBSCRIBE without a filter', packet('82', '0001', '00'), '82', 'no topic filter'],
    [
      'MQTT-3.8.3-4',
      'no local on a shared subscription',
      packet('82', '0001', '00', string('$share/g/a'), '04'),
      '82',
      'no local on a shared subscription',
    ],
    ['MQTT-3.8.3-5', 'reserved options', packet('82', '0001', '00', string('a'), '40'), '81', 'invalid QoS'],
    ['3.8.3.1', 'retain handling 3', packet('82', '0001', '00', string('a'), '30'), '82', 'invalid retain handling'],
    [
      '3.8.2.1.2',
      'subscription identifier 0',
      packet('82', '0001', '020b00', string('a'), '00'),
      '82',
      'property out of range',
    ],
    ['MQTT-3.10.1-1', 'reserved flags of UNSUBSCRIBE', packet('a0', '0001', '00', string('a')), '81', 'invalid flags'],
    ['MQTT-3.10.3-1', 'an ill-formed filter', packet('a2', '0001', '00', '0001ff'), '81', 'ill-formed UTF-8'],
    ['MQTT-3.10.3-2', 'UNSUBSCRIBE without a filter', packet('a2', '0001', '00'), '82', 'no topic filter'],
    ['MQTT-3.14.1-1', 'reserved flags of DISCONNECT', 'e100', '81', 'invalid flags'],
    ['MQTT-4.12.0-7', 'AUTH without an authentication method', 'f000', '82', 'unexpected packet type'],
    ['MQTT-3.15.1-1', 'reserved flags of AUTH', 'f100', '82', 'unexpected packet type'],
    ['4.13', 'a packet of the server', packet('90', '0001', '00', '00'), '82', 'unexpected packet type'],
  ])('%s: %s', async (_statement, _what, bytes, code, text) => {
    const opened = open();
    await feed(opened, bytes);
    expect([opened.out(), opened.calls]).toEqual(['', failsWith(code, text)]);
  });

  it('MQTT-3.3.4-7: more than the receive maximum of 100 unacknowledged messages', async () => {
    const opened = open();
    for (let id = 1; id <= 100; id++)
      opened.connection.handle(bytesOf(packet('34', string('a'), id.toString(16).padStart(4, '0'), '00')));
    expect(opened.calls.filter((call) => (call as string[])[0] === 'fail')).toEqual([]);
    opened.connection.handle(bytesOf(packet('34', string('a'), '0065', '00')));
    expect(opened.calls.at(-1)).toEqual(['fail', '93', 'more than the receive maximum']);
  });

  it('32 user properties and 8 KiB of properties are allowed', async () => {
    const user = `26${string('k')}${string('v')}`;
    const publish = (count: number) => packet('30', string('a'), packet('', user.repeat(count)));
    const opened = open();
    await feed(opened, publish(32));
    await feed(opened, publish(33));
    expect(opened.calls.map((call) => (call as string[])[0])).toEqual(['publish', 'fail']);
    expect(opened.calls.at(-1)).toEqual(['fail', '95', 'too many properties']);
  });
});

describe('what a client sends is answered', () => {
  it.each<[string, Setting, string, string]>([
    ['MQTT-3.12.4-1: PINGREQ with PINGRESP', {}, 'c000', 'd000'],
    [
      'MQTT-4.3.2-4, MQTT-3.3.4-1, MQTT-2.2.1-5: QoS 1 with PUBACK',
      {},
      packet('32', string('a'), '0007', '00'),
      '40020007',
    ],
    ['MQTT-3.4.2-1: with a reason code', { reason: 0x10 }, packet('32', string('a'), '0007', '00'), '4003000710'],
    [
      'and with a reason string',
      { reason: 0x99 },
      packet('32', string('a'), '0007', '00'),
      packet('40', '0007', '99', '19', '1f', string('{"data":"is required"}')),
    ],
    [
      'MQTT-3.4.2-2: but without it where it makes the packet too large for the client',
      { reason: 0x99, max_packet_bytes: 30 },
      packet('32', string('a'), '0007', '00'),
      '4003000799',
    ],
    [
      'MQTT-3.5.2-1: QoS 2 with PUBREC and a reason code',
      { reason: 0x99 },
      packet('34', string('a'), '0007', '00'),
      packet('50', '0007', '99', '19', '1f', string('{"data":"is required"}')),
    ],
    [
      'MQTT-3.5.2-2: but without a reason string that makes the packet too large for the client',
      { reason: 0x99, max_packet_bytes: 30 },
      packet('34', string('a'), '0007', '00'),
      '5003000799',
    ],
    [
      'MQTT-3.1.2-29: PUBACK and PUBREC without a reason string where the client wants none',
      { reason: 0x99, wants_problem_information: false },
      `${packet('32', string('a'), '0007', '00')}|${packet('34', string('a'), '0008', '00')}`,
      '4003000799|5003000899',
    ],
    ['and without both before MQTT 5', { reason: 0x99, level: 4 }, packet('32', string('a'), '0007'), '40020007'],
    [
      'MQTT-4.3.3-8, MQTT-4.3.3-11: QoS 2 with PUBREC and PUBCOMP',
      {},
      `${packet('34', string('a'), '0007', '00')}|62020007`,
      '50020007|70020007',
    ],
    ['MQTT-3.7.2-1: PUBREL of an unknown packet id with PUBCOMP 0x92', {}, '62020009', '7003000992'],
    [
      'MQTT-3.8.4-1, MQTT-3.8.4-2, MQTT-3.8.4-6, MQTT-3.8.4-7, MQTT-3.9.3-1: SUBSCRIBE with a code for each filter',
      {},
      packet('82', '0007', '00', string('a'), '01', string('b'), '02'),
      '90050007000102',
    ],
    ['before MQTT 5 without properties', { level: 4 }, packet('82', '0007', string('a'), '01'), '9003000701'],
    [
      'MQTT-3.10.4-4, MQTT-3.10.4-5, MQTT-3.10.4-6, MQTT-3.11.3-1, MQTT-3.11.3-2: UNSUBSCRIBE with a code for each filter',
      {},
      packet('a2', '0007', '00', string('a'), string('b')),
      'b0050007000011',
    ],
    ['before MQTT 5 without codes', { level: 4 }, packet('a2', '0007', string('a')), 'b0020007'],
    [
      'MQTT-2.2.1-6: SUBACK and UNSUBACK have the id that they answer',
      {},
      `${packet('82', '0102', '00', string('a'), '01')}|${packet('a2', '0103', '00', string('a'))}`,
      '900401020001|b00401030000',
    ],
    ['MQTT-3.6.2-1: PUBREC of an unknown packet id with PUBREL 0x92', {}, '50020009', '6203000992'],
    ['MQTT 3.1: SUBSCRIBE with DUP', { level: 3 }, packet('8a', '0007', string('a'), '01'), '9003000701'],
  ])('%s', async (_what, setting, bytes, expected) => {
    const opened = open(setting);
    await feed(opened, bytes);
    expect(opened.out()).toBe(expected);
  });

  it.each([
    ['MQTT-4.6.0-2: PUBACK', ['0003', '0001', '0002'].map((id) => packet('32', string('a'), id, '00')), '4002'],
    ['MQTT-4.6.0-3: PUBREC', ['0003', '0001', '0002'].map((id) => packet('34', string('a'), id, '00')), '5002'],
    ['MQTT-4.6.0-4: PUBREL', ['50020003', '50020001', '50020002'], '6202'],
  ])('%s comes in the order of what it answers', async (_what, packets, head) => {
    const opened = open();
    for (const origin of ['one', 'two', 'three']) opened.connection.begin({ qos: 2, origin });
    await Promise.all(packets.map((each) => opened.connection.handle(bytesOf(each))));
    expect(opened.out()).toBe(['0003', '0001', '0002'].map((id) => head + id).join('|'));
  });

  it('MQTT-4.3.2-5: the packet id of a message that is acknowledged names a new one, whatever its DUP flag', async () => {
    const opened = open();
    const publish = (first: string, text: string) => packet(first, string('a'), '0007', '00', hexOf(text));
    await feed(opened, `${publish('32', 'one')}|${publish('3a', 'two')}`);
    expect(opened.calls.map((call) => (call as string[])[2])).toEqual(['one', 'two']);
    expect(opened.out()).toBe('40020007|40020007');
  });

  it('MQTT-3.1.2-24: an answer that is too large for the client closes the connection', async () => {
    const opened = open({ max_packet_bytes: 10 });
    const filters = (count: number) => `${string('a')}00`.repeat(count);
    await feed(opened, `${packet('82', '0001', '00', filters(5))}|${packet('82', '0002', '00', filters(6))}`);
    expect(opened.out()).toBe('90080001000000000000');
    expect(opened.calls.at(-1)).toEqual(['fail', '95', 'the client takes no packet so large']);
  });

  it('3.3.2.3.4: a topic alias stands for the topic it came with last', async () => {
    const opened = open();
    const [named, renamed, aliased] = [
      packet('30', string('a'), '03230002', hexOf('1')),
      packet('30', string('b'), '03230002', hexOf('2')),
      packet('30', '0000', '03230002', hexOf('3')),
    ];
    await feed(opened, [named, aliased, renamed, aliased].join('|'));
    expect(opened.calls.map((call) => (call as string[])[1])).toEqual(['a', 'a', 'b', 'b']);
  });

  it('MQTT-3.3.2-12: every topic alias from 1 to 16 is taken', async () => {
    const opened = open();
    const aliases = Array.from({ length: 16 }, (_, index) => `0323${(index + 1).toString(16).padStart(4, '0')}`);
    await feed(opened, aliases.map((alias, index) => packet('30', string(`t${index}`), alias)).join('|'));
    await feed(opened, aliases.map((alias) => packet('30', '0000', alias)).join('|'));
    const topics = aliases.map((_alias, index) => `t${index}`);
    expect(opened.calls.map((call) => (call as string[])[1])).toEqual([...topics, ...topics]);
  });

  it('MQTT-3.3.2-7: a topic alias ends with its connection', async () => {
    const [first, second] = [open(), open()];
    await feed(first, packet('30', string('a'), '03230002'));
    await feed(second, packet('30', '0000', '03230002'));
    expect(second.calls).toEqual(failsWith('82', 'unknown topic alias'));
  });

  it.each([
    ['MQTT-3.3.2-4: a payload format', ['0101']],
    ['MQTT-3.3.2-15: a response topic', [`08${string('answer')}`]],
    ['MQTT-3.3.2-16: correlation data', ['09000200ff']],
    ['MQTT-3.3.2-17: a user property', [`26${string('')}${string('')}`]],
    [
      'MQTT-3.3.2-18: user properties in their order',
      ['b2', 'a1', 'b0'].map((name) => `26${string(name)}${string('')}`),
    ],
    ['MQTT-3.3.2-20: a content type', [`03${string('t')}`]],
    ['all of them', [`03${string('t')}`, '0101', `26${string('a')}${string('1')}`, '09000200ff', `08${string('b')}`]],
  ])('%s is passed on as it was sent', async (_what, forwarded) => {
    const opened = open();
    await feed(opened, packet('30', string('a'), packet('', ['0200000009', ...forwarded].join(''))));
    expect(opened.calls).toEqual([['publish', 'a', '', 0, forwarded.join('')]]);
  });

  it('MQTT-1.5.4-3: U+FEFF is a character like any other', async () => {
    const opened = open();
    await feed(opened, packet('30', '0004efbbbf61', '00'));
    expect(opened.calls).toEqual([['publish', '\ufeffa', '', 0, '']]);
  });

  it('MQTT-3.14.4: DISCONNECT with a reason and a session expiry', async () => {
    const opened = open();
    await feed(opened, 'e000|e00104|e007000511000000ff');
    expect(opened.calls).toEqual([
      ['disconnect', 0, -1],
      ['disconnect', 4, -1],
      ['disconnect', 0, 255],
    ]);
  });
});

describe('messages to a client', () => {
  const message = { topic: 'a', payload: Buffer.from('x'), qos: 0, retain: false, dup: false, packet_id: 0 } as const;

  it.each([
    ['MQTT-2.2.1-2, MQTT-4.3.1-1: at QoS 0 without packet id and DUP', {}, packet('30', string('a'), '00', '78')],
    ['MQTT-4.3.2-2: at QoS 1', { qos: 1, packet_id: 258 }, packet('32', string('a'), '0102', '00', '78')],
    ['MQTT-4.3.3-2: at QoS 2', { qos: 2, packet_id: 258 }, packet('34', string('a'), '0102', '00', '78')],
    [
      'MQTT-2.2.2-1: without properties, with a length of 0',
      { properties: undefined },
      packet('30', string('a'), '00', '78'),
    ],
    [
      'MQTT-3.3.1-2: with DUP and RETAIN where they are set',
      { qos: 1, packet_id: 258, dup: true, retain: true },
      packet('3b', string('a'), '0102', '00', '78'),
    ],
  ] as const)('%s', (_what, fields, expected) => {
    const opened = open();
    opened.connection.send({ ...message, ...fields });
    expect(opened.out()).toBe(expected);
  });

  it('carry properties, expiry and subscription identifiers to a client of MQTT 5 only', () => {
    const options = { properties: bytesOf('0101'), expiry_s: 9, subscription_ids: [1, 300] };
    const [five, four] = [open(), open({ level: 4 })];
    five.connection.send({ ...message, ...options });
    four.connection.send({ ...message, ...options });
    expect(five.out()).toBe(packet('30', string('a'), '0c', '0200000009', '0b01', '0bac02', '0101', '78'));
    expect(four.out()).toBe(packet('30', string('a'), '78'));
  });

  it.each([1, 2] as const)(
    'MQTT-2.2.1-4, MQTT-4.3.2-1, MQTT-4.3.3-1: at QoS %i under packet ids that are free, from 1 to 65535',
    (qos) => {
      const { connection } = open();
      const begin = (origin: string, former?: number) => connection.begin({ qos, origin }, former);
      expect([begin('one'), begin('two', 1), begin('three', 7)]).toEqual([1, 2, 7]);
      const others = Array.from({ length: 65_532 }, () => begin('another'));
      expect([new Set(others).size, Math.min(...others), Math.max(...others)]).toEqual([65_532, 3, 65_535]);
      expect(others.includes(7)).toBe(false);
    },
  );

  it('MQTT-2.2.1-4, MQTT-4.4.0-1: the packet ids of an earlier connection are kept for its messages', async () => {
    const opened = open();
    const { connection } = opened;
    const begin = (origin: string, former?: number) => connection.begin({ qos: 2, origin }, former);
    connection.reserve([1, 3]);
    expect([begin('new'), begin('former', 1), begin('newer')]).toEqual([2, 1, 4]);
    connection.sendRelease(3, 'released');
    await feed(opened, '70020003');
    expect(opened.calls).toEqual([['acknowledged', 'released']]);
    expect([begin('next'), connection.begin({ qos: 2, origin: 'again' }, 3)]).toEqual([5, 3]);
  });

  it('MQTT-4.9.0-1, MQTT-4.9.0-2, MQTT-4.3.2-3: there is room until the receive maximum is not acknowledged', async () => {
    const opened = open({ receive_maximum: 2 });
    const { connection } = opened;
    const begin = (origin: string) => connection.begin({ qos: 1, origin });
    expect([begin('one'), connection.hasRoom(), begin('two'), connection.hasRoom()]).toEqual([1, true, 2, false]);
    await feed(opened, '40020001|40020001');
    expect([connection.hasRoom(), opened.calls]).toEqual([true, [['acknowledged', 'one']]]);
  });

  it('MQTT-3.3.4-10, MQTT-4.9.0-3: without room all other packets are answered', async () => {
    const opened = open({ receive_maximum: 1 });
    opened.connection.begin({ qos: 1, origin: 'one' });
    const subscribe = packet('82', '0007', '00', string('a'), '01');
    await feed(opened, `c000|${subscribe}|${packet('32', string('a'), '0007', '00')}`);
    expect([opened.connection.hasRoom(), opened.out()]).toEqual([false, 'd000|900400070001|40020007']);
  });

  it('MQTT-4.3.3-3, MQTT-4.3.3-5: at QoS 2 there is room only after PUBCOMP', async () => {
    const opened = open({ receive_maximum: 1 });
    opened.connection.begin({ qos: 2, origin: 'one' });
    const rooms = [opened.connection.hasRoom()];
    for (const each of ['50020001', '70020001']) {
      await feed(opened, each);
      rooms.push(opened.connection.hasRoom());
    }
    expect(rooms).toEqual([false, false, true]);
  });

  it.each([
    ['PUBACK', 1, '4003000180'],
    ['PUBREC', 2, '5003000197'],
  ] as const)('MQTT-4.4.0-2: %s with an error acknowledges a message', async (_type, qos, refusal) => {
    const opened = open();
    opened.connection.begin({ qos, origin: 'one' });
    await feed(opened, refusal);
    expect([opened.out(), opened.calls]).toEqual(['', [['acknowledged', 'one']]]);
  });

  it('MQTT-4.3.3-4: at QoS 2 PUBREC is answered with PUBREL, PUBCOMP frees the id; a refusal frees it, too', async () => {
    const opened = open();
    for (const origin of ['one', 'two']) opened.connection.begin({ qos: 2, origin });
    await feed(opened, '50020001|50020001|70020001|5003000297');
    expect(opened.out()).toBe('62020001|62020001');
    expect(opened.calls).toEqual([
      ['received', 1],
      ['received', 1],
      ['acknowledged', 'one'],
      ['acknowledged', 'two'],
    ]);
  });

  it('MQTT-3.1.2-26, MQTT-3.1.2-27, MQTT-3.3.2-11: no more topic aliases are sent than it allows, and none without', () => {
    const [single, none] = [open({ topic_alias_maximum: 1 }), open()];
    for (const topic of ['a', 'a', 'b']) single.connection.send({ ...message, topic });
    none.connection.send(message);
    const aliased = (topic: string) => packet('30', string(topic), '03', '230001', '78');
    expect(single.out()).toBe([aliased('a'), aliased(''), packet('30', string('b'), '00', '78')].join('|'));
    expect(none.out()).toBe(packet('30', string('a'), '00', '78'));
  });

  it('MQTT-3.1.2-24, MQTT-3.1.2-25: one over the maximum packet size is left out as if it were acknowledged', () => {
    const opened = open({ max_packet_bytes: 10 });
    const packet_id = opened.connection.begin({ qos: 1, origin: 'large' });
    opened.connection.send({ ...message, qos: 1, packet_id, payload: Buffer.alloc(10) });
    expect([opened.out(), opened.calls]).toEqual(['', [['acknowledged', 'large']]]);
  });
});

describe('CONNECT', () => {
  const connect = (flags: string, ...rest: string[]) => packet('10', string('MQTT'), '05', flags, '003c', ...rest);

  it.each([
    ['MQTT-3.1.2-3: the reserved flag', connect('03', '00', string('x')), 0x81],
    ['MQTT-3.1.2-11: a will QoS without a will', connect('0a', '00', string('x')), 0x81],
    ['MQTT-3.1.2-12: will QoS 3', connect('1e', '00', string('x')), 0x81],
    ['MQTT-3.1.2-13: will retain without a will', connect('22', '00', string('x')), 0x81],
    ['MQTT-3.1.2-9: a will that is not there', connect('06', '00', string('x')), 0x81],
    ['MQTT-3.1.2-9: a will without a payload', connect('06', '00', string('x'), '00', string('w')), 0x81],
    ['MQTT-3.1.2-16: a username without its flag', connect('42', '00', string('x'), string('y'), string('z')), 0x81],
    ['MQTT-3.1.2-17: a username that is not there', connect('82', '00', string('x')), 0x81],
    ['MQTT-3.1.2-18: a password without its flag', connect('82', '00', string('x'), string('y'), string('z')), 0x81],
    ['MQTT-3.1.2-19: a password that is not there', connect('c2', '00', string('x'), string('y')), 0x81],
    ['MQTT-3.1.3-3: no client id', connect('02', '00'), 0x81],
    ['MQTT-3.1.3-4: a client id in ill-formed UTF-8', connect('02', '00', '0001ff'), 0x81],
    ['MQTT-3.1.3-11: a will topic in it', connect('06', '00', string('x'), '00', '0001ff', string('bye')), 0x81],
    ['MQTT-3.1.3-12: a username in it', connect('82', '00', string('x'), '0001ff'), 0x81],
    ['3.1.3: more than its flags say', connect('02', '00', string('x'), string('y')), 0x81],
    ['3.1.2.11.3: receive maximum 0', connect('02', '03210000', string('x')), 0x82],
    ['3.1.2.11.4: maximum packet size 0', connect('02', '052700000000', string('x')), 0x82],
    ['3.1.2.11.2: a session expiry given twice', connect('02', '0a11000000011100000002', string('x')), 0x82],
    ['3.1.3.2.2: a will delay outside of the will', connect('02', '051800000001', string('x')), 0x82],
  ])('is refused with %s', (_what, bytes, reason) => {
    let failed: unknown;
    try {
      parsePacket(bytesOf(bytes), 5);
    } catch (error) {
      failed = error instanceof PacketError ? error.reason : error;
    }
    expect(failed).toBe(reason);
  });

  it('MQTT-3.1.3-1: is read with its properties and its will', () => {
    const will = `${packet('', '18000000050200000009', `26${string('k')}${string('v')}`)}${string('w')}${string('bye')}`;
    const bytes = connect('ee', '0c11000000ff21000a1700', string('id'), will, string('user'), string('secret')).replace(
      '0c11',
      '0a11',
    );
    expect(parsePacket(bytesOf(bytes), 5)).toMatchObject({
      level: 5,
      clean: true,
      keep_alive_s: 60,
      client_id: 'id',
      username: 'user',
      password: Buffer.from('secret'),
      properties: { session_expiry_s: 255, receive_maximum: 10, wants_problem_information: 0 },
      will: {
        topic: 'w',
        qos: 1,
        retain: true,
        payload: Buffer.from('bye'),
        properties: { will_delay_s: 5, message_expiry_s: 9, forwarded: bytesOf(`26${string('k')}${string('v')}`) },
      },
    });
    expect(readProtocol(bytesOf(bytes))).toEqual({ name: 'MQTT', level: 5 });
  });

  it('MQTT-3.2.2-8: is refused with reason codes of CONNACK only', () => {
    const codes = new Set(Object.values(refusals).map(([, code]) => code));
    expect([...codes].sort()).toEqual([0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8c, 0x90]);
  });

  it('MQTT-3.2.2-1, MQTT-3.14.2-2: is answered in the form of its version, and DISCONNECT is a reason only', () => {
    const properties = { receive_maximum: 100, max_packet_bytes: 524_288, topic_alias_maximum: 16 };
    const flags = '250128012901' + '2a01';
    expect(encodeConnack(true).toString('hex')).toBe('20020100');
    expect(encodeConnack(false, properties).toString('hex')).toBe(
      packet('20', '0000', '13', '210064', '2700080000', '220010', flags),
    );
    expect(encodeConnack(false, { ...properties, assigned_client_id: 'x', session_expiry_s: 5 }).toString('hex')).toBe(
      packet('20', '0000', '1c', '210064', '2700080000', '220010', flags, `12${string('x')}`, '1100000005'),
    );
    expect(
      [encodeRefusal(0x86, 5), encodeRefusal(4, 4), encodeDisconnect(0x8e)].map((bytes) => bytes.toString('hex')),
    ).toEqual(['2003008600', '20020004', 'e0018e']);
  });
});

it('frames: packets come whole whatever the pieces, and none after one that is too large', () => {
  const bytes = bytesOf(['c000', packet('30', string('a'), '00', hexOf('x'.repeat(200))), 'c000'].join(''));
  for (const size of [1, 2, 3, 100, 1000]) {
    const split = createFrameReader();
    const packets: Buffer[] = [];
    for (let at = 0; at < bytes.length; at += size) packets.push(...split(bytes.subarray(at, at + size)).packets);
    expect(packets.map(({ length }) => length)).toEqual([2, 207, 2]);
  }
  expect(createFrameReader()(bytesOf('c000fdffff1f'))).toMatchObject({
    packets: [bytesOf('c000')],
    error: 'too_large',
  });
  expect(createFrameReader()(bytesOf('c000ffffffffff'))).toMatchObject({ error: 'malformed' });
});
