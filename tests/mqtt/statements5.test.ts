import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { WebSocket } from 'ws';
import { type MqttService, password, type Raw, startMqtt } from '../support/mqtt.js';
import { bytesOf, hexOf, packet, string } from '../support/mqtt-hex.js';

/**
 * The normative statements of MQTT 5 about sessions and delivery, by their numbers, as conversations: what a client sends,
 * and all that it gets. A message that follows shows that nothing came before it.
 */
let mqtt: MqttService;

beforeAll(async () => {
  mqtt = await startMqtt();
  await (await mqtt.account('acme')).device(['#']);
});
afterAll(() => mqtt.stop());

const username = 'user-acme-1';

interface Connect {
  clean?: boolean;
  expiry_s?: number;
  properties?: string;
  /** Flags of the will, and its fields. */
  will?: readonly [flags: number, fields: string];
  secret?: string;
}

const uint16 = (value: number) => value.toString(16).padStart(4, '0');
const uint32 = (value: number) => value.toString(16).padStart(8, '0');

function connect(client_id: string, options: Connect = {}): string {
  const { clean = false, expiry_s, properties = '', will = [0, ''], secret = password } = options;
  const flags = (0xc0 | (clean ? 2 : 0) | will[0]).toString(16);
  const expiry = expiry_s === undefined ? '' : `11${uint32(expiry_s)}`;
  const login = [string(client_id), will[1], string(username), string(secret)];
  return packet('10', string('MQTT'), '05', flags, '0e10', packet('', expiry, properties), ...login);
}

const accepted = ['13', '210064', '2700080000', '220010', '250128012901', '2a01'];
const connack = packet('20', '0000', ...accepted);
const resumed = packet('20', '0100', ...accepted);
const refused = (code: string) => `200300${code}00`;

/** One filter with its options. */
const subscribe = (filter: string, options: string, properties = '') =>
  packet('82', '0001', packet('', properties), string(filter), options);
const suback = (...codes: string[]) => packet('90', '0001', '00', ...codes);
const unsubscribe = (filter: string) => packet('a2', '0001', '00', string(filter));
const unsuback = (code: string) => packet('b0', '0001', '00', code);
const message = (first: string, topic: string, text: string, properties = '') =>
  packet(first, string(topic), packet('', properties), hexOf(text));
/** A message of QoS 1 or 2. */
const numbered = (first: string, topic: string, id: number, text: string, properties = '') =>
  packet(first, string(topic), uint16(id), packet('', properties), hexOf(text));
const disconnect = 'e000';

/** `dies` ends the connection without DISCONNECT; after `closed` the service has ended it. A number advances the clock by seconds. */
type Step = readonly [client: string, sends: string, ...gets: string[]] | number;

/** Plays a conversation; a client that is not connected connects. */
async function play(steps: readonly Step[]): Promise<void> {
  const clients = new Map<string, { raw: Raw; expected: string }>();
  for (const [index, step] of steps.entries()) {
    if (typeof step === 'number') {
      mqtt.service.advance(step);
      continue;
    }
    const [name, sends, ...gets] = step;
    const client = clients.get(name) ?? { raw: await mqtt.raw(), expected: '' };
    clients.set(name, client);
    if (sends === 'dies') client.raw.socket.destroy();
    else client.raw.socket.write(bytesOf(sends));
    client.expected += gets.filter((part) => part !== 'closed').join('');
    const received = await client.raw.bytes(client.expected.length / 2);
    const isOver = sends === 'dies' || gets.at(-1) === 'closed';
    if (isOver) {
      await client.raw.closed;
      clients.delete(name);
    }
    const bytes = isOver ? client.raw.received() : received;
    expect([index, name, bytes.toString('hex')]).toEqual([index, name, client.expected]);
  }
  for (const { raw } of clients.values()) raw.socket.destroy();
}

const lasting = { expiry_s: 100 };

describe('connections and sessions', () => {
  it.each<[string, Step[]]>([
    [
      'MQTT-3.1.4-5, MQTT-3.2.0-1, MQTT-3.1.2-28, MQTT-4.12.0-6: CONNACK comes first, without what was not asked for',
      [['a', `${connect('first', { properties: '1900' })}c000`, connack, 'd000']],
    ],
    [
      'MQTT-3.2.0-2, MQTT-4.13.1-1: a second CONNECT gets no CONNACK, but ends the connection',
      [
        ['a', connect('second'), connack],
        ['a', connect('second'), 'e00182', 'closed'],
      ],
    ],
    [
      'MQTT-3.1.2-4, MQTT-3.1.4-4, MQTT-3.2.2-2: clean start discards the session',
      [
        ['a', connect('clean', lasting), connack],
        ['a', subscribe('clean', '01'), suback('01')],
        ['a', disconnect, 'closed'],
        ['a', connect('clean', { ...lasting, clean: true }), connack],
        ['a', numbered('32', 'clean', 1, 'x'), '4003000110'],
      ],
    ],
    [
      'MQTT-3.1.2-5, MQTT-3.1.2-6, MQTT-3.1.2-23, MQTT-3.1.3-2, MQTT-3.2.2-3, MQTT-4.5.0-1: a session is made and resumed',
      [
        ['a', connect('resumes', lasting), connack],
        ['a', subscribe('resumes', '01'), suback('01')],
        ['a', disconnect, 'closed'],
        ['b', connect('another', lasting), connack],
        ['b', numbered('32', 'resumes', 1, 'x'), '40020001'],
        ['a', connect('resumes', lasting), resumed, numbered('32', 'resumes', 1, 'x')],
      ],
    ],
    [
      'MQTT-4.1.0-1, MQTT-4.1.0-2: a session without expiry lasts as long as its connection',
      [
        ['a', connect('ends'), connack],
        ['a', subscribe('ends', '01'), suback('01')],
        ['a', numbered('32', 'ends', 1, 'x'), numbered('32', 'ends', 1, 'x'), '40020001'],
        ['a', disconnect, 'closed'],
        ['a', connect('ends'), connack],
      ],
    ],
    [
      'MQTT-3.1.4-3, MQTT-3.14.2-1, MQTT-3.14.4-1, MQTT-3.14.4-2: a session that is taken over',
      [
        ['a', connect('taken'), connack],
        ['b', connect('taken'), connack],
        ['a', '', 'e0018e', 'closed'],
        ['b', 'c000', 'd000'],
      ],
    ],
    [
      'MQTT-3.1.4-2, MQTT-3.1.4-6, MQTT-3.2.2-6, MQTT-3.2.2-7, MQTT-3.14.0-1, MQTT-4.13.2-1: a login that is refused',
      [
        ['a', connect('refused', lasting), connack],
        ['a', disconnect, 'closed'],
        ['b', connect('watches'), connack],
        ['b', subscribe('refused', '00'), suback('00')],
        ['a', connect('refused', { ...lasting, secret: 'x' }) + message('30', 'refused', 'x'), refused('86'), 'closed'],
        ['b', message('30', 'refused', 'mark'), message('30', 'refused', 'mark')],
      ],
    ],
    [
      'MQTT-3.1.4-1: a CONNECT of another form',
      [['a', packet('10', string('MQTT'), '05', '03', '0e10', '00', string('x')), 'closed']],
    ],
    [
      'MQTT-3.1.3-5: client ids of 1 to 23 letters and digits',
      ['0123456789abcdefghijklm', 'nopqrstuvwxyzABCDEFGHIJ', 'KLMNOPQRSTUVWXYZ', 'x'].map(
        (id): Step => [id, connect(id), connack],
      ),
    ],
    ['MQTT-3.1.3-8: a client id that is too long', [['a', connect('x'.repeat(257)), refused('85'), 'closed']]],
    [
      'MQTT-4.12.0-1: an authentication method, and data without one',
      [
        ['a', connect('method', { properties: `15${string('GS2')}` }), refused('8c'), 'closed'],
        ['b', connect('data', { properties: '16000178' }), 'closed'],
      ],
    ],
    [
      'MQTT-3.1.2-24: a client that takes no packet as large as CONNACK',
      [
        ['a', connect('small', { properties: '2700000018' }), connack],
        ['b', connect('smaller', { properties: '2700000017' }), 'closed'],
      ],
    ],
  ])('%s', (_what, steps) => play(steps));
});

describe('wills', () => {
  const order = ['b', 'a', 'b'].map((name) => `26${string(name)}${string('')}`).join('');
  const will = (topic: string, properties = '') => packet('', properties) + string(topic) + string('bye');

  it.each<[string, Step[]]>([
    [
      'MQTT-3.1.2-7, MQTT-3.1.2-8, MQTT-3.1.2-10, MQTT-3.1.2-14, MQTT-3.1.3-10: a will is published once, and not retained',
      [
        ['b', connect('watches'), connack],
        ['b', subscribe('will', '00'), suback('00')],
        ['a', connect('dies', { ...lasting, will: [0x04, will('will', order)] }), connack],
        ['a', 'dies'],
        ['b', '', message('30', 'will', 'bye', order)],
        ['a', connect('dies', lasting), resumed],
        ['a', 'dies'],
        ['a', connect('dies', lasting), resumed],
        ['b', subscribe('will', '00'), suback('00')],
        ['b', message('30', 'will', 'mark'), message('30', 'will', 'mark')],
      ],
    ],
    [
      'MQTT-3.1.2-15: a will is retained',
      [
        ['b', connect('watches'), connack],
        ['b', subscribe('retained-will', '00'), suback('00')],
        ['a', connect('dies-too', { will: [0x24, will('retained-will')] }), connack],
        ['a', 'dies'],
        ['b', '', message('30', 'retained-will', 'bye')],
        ['b', subscribe('retained-will', '00'), suback('00'), message('31', 'retained-will', 'bye')],
      ],
    ],
    [
      'MQTT-3.14.4-3: DISCONNECT with reason 0 discards it',
      [
        ['b', connect('watches'), connack],
        ['b', subscribe('no-will', '00'), suback('00')],
        ['a', connect('leaves', { will: [0x04, will('no-will')] }), connack],
        ['a', disconnect, 'closed'],
        ['a', connect('leaves'), connack],
        ['b', message('30', 'no-will', 'mark'), message('30', 'no-will', 'mark')],
      ],
    ],
  ])('%s', (_what, steps) => play(steps));
});

describe('retained messages', () => {
  it.each<[string, Step[]]>([
    [
      'MQTT-3.3.1-5, MQTT-3.3.1-8: the last one with RETAIN replaces that before',
      [
        ['a', connect('retains'), connack],
        ['a', numbered('33', 'kept', 1, 'one'), '4003000110'],
        ['a', numbered('33', 'kept', 2, 'two'), '4003000210'],
        ['a', numbered('32', 'kept', 3, 'three'), '4003000310'],
        ['a', subscribe('kept', '00'), suback('00'), message('31', 'kept', 'two')],
      ],
    ],
    [
      'MQTT-3.3.1-6, MQTT-3.3.1-7: an empty one is delivered, removes it, and is not kept',
      [
        ['a', connect('removes'), connack],
        ['a', numbered('33', 'removed', 1, 'one'), '4003000110'],
        ['a', subscribe('removed', '00'), suback('00'), message('31', 'removed', 'one')],
        ['a', numbered('33', 'removed', 2, ''), message('30', 'removed', ''), '40020002'],
        ['a', subscribe('removed', '00'), suback('00')],
        ['a', message('30', 'removed', 'mark'), message('30', 'removed', 'mark')],
      ],
    ],
    [
      'MQTT-3.3.1-9, MQTT-3.8.4-4: with retain handling 0 they come with every SUBSCRIBE',
      [
        ['a', connect('always'), connack],
        ['a', numbered('33', 'always', 1, 'x'), '4003000110'],
        ['a', subscribe('always', '00'), suback('00'), message('31', 'always', 'x')],
        ['a', subscribe('always', '00'), suback('00'), message('31', 'always', 'x')],
      ],
    ],
    [
      'MQTT-3.3.1-10: with retain handling 1 they come with a new subscription',
      [
        ['a', connect('once'), connack],
        ['a', numbered('33', 'once', 1, 'x'), '4003000110'],
        ['a', subscribe('once', '10'), suback('00'), message('31', 'once', 'x')],
        ['a', subscribe('once', '10'), suback('00')],
        ['a', message('30', 'once', 'mark'), message('30', 'once', 'mark')],
      ],
    ],
    [
      'MQTT-3.3.1-11: with retain handling 2 they do not come',
      [
        ['a', connect('never'), connack],
        ['a', numbered('33', 'never', 1, 'x'), '4003000110'],
        ['a', subscribe('never', '20'), suback('00')],
        ['a', message('30', 'never', 'mark'), message('30', 'never', 'mark')],
      ],
    ],
    [
      'MQTT-3.3.1-12, MQTT-3.3.1-13: RETAIN is 0 without retain as published, and as it was sent with it',
      [
        ['a', connect('plain'), connack],
        ['a', subscribe('published', '00'), suback('00')],
        ['b', connect('keeps'), connack],
        ['b', subscribe('published', '08'), suback('00')],
        ['b', message('31', 'published', 'x'), message('31', 'published', 'x')],
        ['b', message('30', 'published', 'y'), message('30', 'published', 'y')],
        ['a', '', message('30', 'published', 'x'), message('30', 'published', 'y')],
      ],
    ],
  ])('%s', (_what, steps) => play(steps));
});

describe('subscriptions', () => {
  it.each<[string, Step[]]>([
    [
      'MQTT-3.3.2-3: topics that match the filter come, and no others',
      [
        ['a', connect('matches'), connack],
        ['a', subscribe('m/+/x', '00'), suback('00')],
        ['a', message('30', 'm/1/y', '1') + message('30', 'm/1/x/z', '2') + message('30', 'm/x', '3')],
        ['a', message('30', 'm/1/x', '4'), message('30', 'm/1/x', '4')],
      ],
    ],
    [
      'MQTT-4.7.3-4: topics are compared as they are',
      [
        ['a', connect('compares'), connack],
        ['a', subscribe('n/e\u0301', '00'), suback('00')],
        ['a', message('30', 'n/\u00e9', '1') + message('30', 'N/e\u0301', '2') + message('30', 'n//e\u0301', '3')],
        ['a', message('30', 'n/e\u0301', '4'), message('30', 'n/e\u0301', '4')],
      ],
    ],
    [
      'MQTT-4.7.2-1: a wildcard does not match $, and no client publishes there',
      [
        ['a', connect('all'), connack],
        ['a', subscribe('#', '20'), suback('00')],
        ['a', numbered('32', '$SYS/x', 1, 'x'), '4003000187'],
        ['a', message('30', 'x', 'mark'), message('30', 'x', 'mark')],
      ],
    ],
    [
      'MQTT-3.3.4-2, MQTT-3.3.4-3, MQTT-3.3.4-4: overlapping filters bring a message once, at the highest QoS, with all identifiers',
      [
        ['a', connect('overlaps'), connack],
        ['a', subscribe('over/#', '01', '0b01'), suback('01')],
        ['a', subscribe('over/x', '00', '0b02'), suback('00')],
        ['a', subscribe('over/+', '00'), suback('00')],
        ['b', connect('sends'), connack],
        ['b', numbered('32', 'over/x', 1, 'x'), '40020001'],
        ['a', '', numbered('32', 'over/x', 1, 'x', '0b010b02')],
      ],
    ],
    [
      'MQTT-3.8.3-3: no local',
      [
        ['a', connect('local'), connack],
        ['a', subscribe('local', '04'), suback('00')],
        ['a', numbered('32', 'local', 1, 'own'), '4003000110'],
        ['b', connect('other'), connack],
        ['b', numbered('32', 'local', 1, 'other'), '40020001'],
        ['a', '', message('30', 'local', 'other')],
      ],
    ],
    [
      'MQTT-3.8.4-3, MQTT-3.8.4-5, MQTT-3.8.4-8: filters count one after the other, the last QoS of each',
      [
        ['a', connect('replaces'), connack],
        [
          'a',
          packet('82', '0001', '00', `${string('r')}02`, `${string('s')}00`, `${string('r')}01`, `${string('s')}01`),
          suback('02', '00', '01', '01'),
        ],
        ['b', connect('sends'), connack],
        ['b', numbered('34', 'r', 1, '2'), '50020001'],
        ['b', message('30', 's', '0')],
        ['a', '', numbered('32', 'r', 1, '2'), message('30', 's', '0')],
      ],
    ],
    [
      'MQTT-3.9.3-2: SUBACK has reason codes of SUBACK only',
      [
        ['a', connect('codes'), connack],
        [
          'a',
          packet('82', '0001', '00', ...['c', '$SYS/c', 'c/#/c'].map((filter) => `${string(filter)}02`)),
          suback('02', '87', '8f'),
        ],
      ],
    ],
    [
      'MQTT-3.10.4-1, MQTT-3.10.4-2: UNSUBSCRIBE ends the filter that is equal, and no other',
      [
        ['a', connect('leaves'), connack],
        ['a', subscribe('u/+', '00'), suback('00')],
        ['a', unsubscribe('u/#'), unsuback('11')],
        ['a', message('30', 'u/x', '1'), message('30', 'u/x', '1')],
        ['a', unsubscribe('u/+'), unsuback('00')],
        ['a', numbered('32', 'u/x', 1, '2'), '4003000110'],
      ],
    ],
    [
      'MQTT-3.10.4-3: a message of QoS 2 that was sent is completed after UNSUBSCRIBE',
      [
        ['a', connect('completes'), connack],
        ['a', subscribe('completes', '02'), suback('02')],
        ['b', connect('sends'), connack],
        ['b', numbered('34', 'completes', 1, 'x'), '50020001'],
        ['a', '', numbered('34', 'completes', 1, 'x')],
        ['a', unsubscribe('completes'), unsuback('00')],
        ['a', '50020001', '62020001'],
      ],
    ],
  ])('%s', (_what, steps) => play(steps));
});

describe('delivery', () => {
  it.each<[string, Step[]]>([
    [
      'MQTT-3.3.1-3: DUP is not passed on',
      [
        ['a', connect('dup'), connack],
        ['a', subscribe('dup', '01'), suback('01')],
        ['a', numbered('3a', 'dup', 7, 'x'), numbered('32', 'dup', 1, 'x'), '40020007'],
      ],
    ],
    [
      'MQTT-3.3.1-1, MQTT-4.4.0-1, MQTT-4.6.0-1: what is not acknowledged comes again in its order, under its id, with DUP',
      [
        ['a', connect('again', lasting), connack],
        ['a', subscribe('again', '01'), suback('01')],
        ['b', connect('sends'), connack],
        ['b', numbered('32', 'again', 1, 'one'), '40020001'],
        ['b', numbered('32', 'again', 2, 'two'), '40020002'],
        ['a', '', numbered('32', 'again', 1, 'one'), numbered('32', 'again', 2, 'two')],
        ['a', disconnect, 'closed'],
        ['a', connect('again', lasting), resumed, numbered('3a', 'again', 1, 'one'), numbered('3a', 'again', 2, 'two')],
      ],
    ],
    [
      'MQTT-4.3.3-6: after PUBREC only PUBREL comes again',
      [
        ['a', connect('released', lasting), connack],
        ['a', subscribe('released', '02'), suback('02')],
        ['b', connect('sends'), connack],
        ['b', numbered('34', 'released', 1, 'x'), '50020001'],
        ['a', '', numbered('34', 'released', 1, 'x')],
        ['a', '50020001', '62020001'],
        ['a', disconnect, 'closed'],
        ['a', connect('released', lasting), resumed, '62020001'],
        ['a', '70020001'],
        ['a', disconnect, 'closed'],
        ['a', connect('released', lasting), resumed],
        ['b', numbered('32', 'released', 2, 'mark'), '40020002'],
        ['a', '', numbered('32', 'released', 1, 'mark')],
      ],
    ],
    [
      'MQTT-4.3.3-7: a message of QoS 2 that was sent does not expire',
      [
        ['a', connect('expires', { expiry_s: 1000 }), connack],
        ['a', subscribe('expires', '02'), suback('02')],
        ['b', connect('sends'), connack],
        ['b', numbered('34', 'expires', 1, 'x', '020000000a'), '50020001'],
        ['a', '', numbered('34', 'expires', 1, 'x', '020000000a')],
        ['a', disconnect, 'closed'],
        20,
        ['a', connect('expires', { expiry_s: 1000 }), resumed, numbered('3c', 'expires', 1, 'x', '0200000000')],
      ],
    ],
    [
      'MQTT-4.3.3-13: PUBREL of a message that has expired is answered',
      [
        ['a', connect('late'), connack],
        ['a', numbered('34', 'late', 7, 'x', '0200000001'), '5003000710'],
        20,
        ['a', '62020007', '70020007'],
      ],
    ],
    [
      'MQTT-4.3.3-10, MQTT-4.3.3-12: a packet id of QoS 2 names one message until PUBCOMP',
      [
        ['a', connect('two'), connack],
        ['a', subscribe('two', '00'), suback('00')],
        ['a', numbered('34', 'two', 7, 'x'), message('30', 'two', 'x'), '50020007'],
        ['a', numbered('3c', 'two', 7, 'x'), '50020007'],
        ['a', '62020007', '70020007'],
        ['a', numbered('34', 'two', 7, 'y'), message('30', 'two', 'y'), '50020007'],
      ],
    ],
  ])('%s', (_what, steps) => play(steps));
});

describe('shared subscriptions', () => {
  it.each<[string, Step[]]>([
    [
      'MQTT-4.8.2-3: have the QoS that was granted',
      [
        ['a', connect('member'), connack],
        ['a', subscribe('$share/g/granted', '00'), suback('00')],
        ['b', connect('sends'), connack],
        ['b', numbered('32', 'granted', 1, 'x'), '40020001'],
        ['a', '', message('30', 'granted', 'x')],
      ],
    ],
    [
      'MQTT-4.8.2-4: complete a message of QoS 2 when the member comes back',
      [
        ['a', connect('comes-back', lasting), connack],
        ['a', subscribe('$share/g/back', '02'), suback('02')],
        ['b', connect('sends'), connack],
        ['b', numbered('34', 'back', 1, 'x'), '50020001'],
        ['a', '', numbered('34', 'back', 1, 'x')],
        ['b', subscribe('$share/g/back', '02'), suback('02')],
        ['a', disconnect, 'closed'],
        ['a', connect('comes-back', lasting), resumed, numbered('3c', 'back', 1, 'x')],
        ['b', numbered('32', 'back', 2, 'y'), numbered('32', 'back', 1, 'y'), '40020002'],
      ],
    ],
    [
      'MQTT-4.8.2-6: a message that a member refuses goes to no other',
      [
        ['a', connect('refuses'), connack],
        ['a', subscribe('$share/g/refuses', '01'), suback('01')],
        ['b', connect('sends'), connack],
        ['b', numbered('32', 'refuses', 1, 'x'), '40020001'],
        ['a', '', numbered('32', 'refuses', 1, 'x')],
        ['b', subscribe('$share/g/refuses', '01'), suback('01')],
        ['a', `4003000180${disconnect}`, 'closed'],
        ['a', connect('refuses'), connack],
        ['b', numbered('32', 'refuses', 2, 'y'), numbered('32', 'refuses', 1, 'y'), '40020002'],
      ],
    ],
  ])('%s', (_what, steps) => play(steps));
});

it('MQTT-6.0.0-2: WebSocket frames hold parts of packets', async () => {
  const socket = new WebSocket(mqtt.ws, ['mqtt']);
  await new Promise((resolve) => socket.once('open', resolve));
  const received: Buffer[] = [];
  const answered = new Promise<void>((resolve) => {
    socket.on('message', (data) => {
      received.push(data as Buffer);
      if (Buffer.concat(received).toString('hex').endsWith('d000')) resolve();
    });
  });
  const bytes = bytesOf(`${connect('frames')}c000`);
  for (const part of [bytes.subarray(0, 5), bytes.subarray(5, -1), bytes.subarray(-1)]) socket.send(part);
  await answered;
  expect(Buffer.concat(received).toString('hex')).toBe(`${connack}d000`);
  socket.terminate();
});
