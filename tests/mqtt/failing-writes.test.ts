import { duplexPair } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import type { mongo } from 'mongoose';
import type { Collection, StoredDocument } from '../../src/db/database.js';
import { AppError } from '../../src/errors.js';
import { mqttcredentials } from '../../src/resources/index.js';
import { encodeConnect, encodePacket, encodeString, type MqttService, type Raw, startMqtt } from '../support/mqtt.js';
import { waitUntil } from '../support/process.js';
import { pathOf } from '../support/service.js';

/** Writes fail while others of the same client are in progress: nothing may reject before it has a handler. */
declare const onUnhandledRejection: (listener: (reason: unknown) => void) => void;
const unhandled: unknown[] = [];
onUnhandledRejection((reason) => unhandled.push(reason));
let mqtt: MqttService;
let acme: Awaited<ReturnType<MqttService['account']>>;
const failing = new Set<string>();
let failures = 0;
/** Outcomes of the next writes of packet ids. */
const unconfirmed: ('written' | 'confirmed' | 'lost')[] = [];
let storing: Promise<void> | undefined;
/** Credentials, or what is queued, are found once `until` resolves. */
let finding: { plural: string; until: Promise<void> } | undefined;

beforeAll(async () => {
  mqtt = await startMqtt(({ db, record }) => ({
    database: {
      ...db,
      collection<Stored extends mongo.Document = StoredDocument>(plural: string) {
        if (failing.has(plural)) {
          failures++;
          throw new AppError('database');
        }
        const real = db.collection<Stored>(plural);
        if (plural === 'mqtt_received' && unconfirmed.length > 0) return loseReplies(real);
        return finding?.plural === plural ? holdBack(real, finding.until) : real;
      },
    },
    async record(job) {
      await storing;
      await record(job);
    },
  }));
  acme = await mqtt.account('acme');
});
afterEach(() => {
  failing.clear();
  expect(unhandled).toEqual([]);
});
afterAll(() => mqtt.stop());

/** A collection of which nothing is found before `until` resolves; of a queue, nothing in order. */
function holdBack<Real extends { find(...args: never[]): unknown }>(real: Real, until: Promise<void>): Real {
  const find = (...args: never[]) => {
    if (finding?.plural === 'mqtt_queue' && !('sort' in (args[1] ?? {}))) return real.find(...args);
    return { toArray: () => until.then(() => (real.find(...args) as { toArray(): Promise<unknown> }).toArray()) };
  };
  return Object.create(real, { find: { value: find } });
}

/** A collection whose writes have the next outcomes. */
function loseReplies<Stored extends mongo.Document>(real: Collection<Stored>): Collection<Stored> {
  const bulkWrite = async (...args: Parameters<Collection<Stored>['bulkWrite']>) => {
    const outcome = unconfirmed.shift() ?? 'confirmed';
    if (outcome !== 'lost') await real.bulkWrite(...args);
    if (outcome !== 'confirmed') throw new AppError('database');
  };
  return Object.create(real, { bulkWrite: { value: bulkWrite } });
}

const id = (packet_id: number) => Buffer.from([packet_id >> 8, packet_id & 255]);
const encodePublish = (topic: string, qos: 1 | 2, packet_id: number, flags = 0) =>
  encodePacket(0x30 | (qos << 1) | flags, encodeString(topic), id(packet_id), Buffer.from('{"data":{"n":1}}'));

async function connect(username: string, clientId: string): Promise<Raw> {
  const raw = await mqtt.raw();
  raw.socket.write(encodeConnect({ username, clientId, clean: false }));
  await raw.bytes(4);
  return raw;
}

it('a command that is sent before the queue is read does not take the packet id of a message in it', async () => {
  const device = await acme.device(['twice']);
  const filters = ['twice', `${device.id}/commands`].flatMap((filter) => [encodeString(filter), Buffer.from([2])]);
  const idAfter = (raw: Raw, topic: string) =>
    raw.received().toString('hex').split(encodeString(topic).toString('hex'))[1]?.slice(0, 4);
  const first = await connect(device.username, 'twice');
  first.socket.write(encodePacket(0x82, id(9), ...filters));
  await first.bytes(10);
  const sender = await mqtt.connect(device.username, { clientId: 'sender' });
  await sender.publish('twice', 'x', { qos: 2 });
  await waitUntil(() => idAfter(first, 'twice') === '0001');
  first.socket.destroy();
  await acme.api.post(pathOf('devices', device.id, 'commands'), { name: 'reboot' });
  let find: () => void = () => undefined;
  const until = new Promise<void>((resolve) => {
    find = resolve;
  });
  finding = { plural: 'mqtt_queue', until };
  const again = await connect(device.username, 'twice');
  await waitUntil(() => idAfter(again, `${device.id}/commands`) !== undefined);
  finding = undefined;
  find();
  await waitUntil(() => idAfter(again, 'twice') !== undefined);
  expect([idAfter(again, `${device.id}/commands`), idAfter(again, 'twice')]).toEqual(['0002', '0001']);
});

it('closes a connection that has sent 101 publishes of QoS 2 at once, after it has stored 100', async () => {
  const device = await acme.device();
  const raw = await connect(device.username, 'burst');
  const ids = Array.from({ length: 101 }, (_, index) => index + 1);
  raw.socket.write(Buffer.concat(ids.map((packet_id) => encodePublish(`${device.id}/streams`, 2, packet_id))));
  await raw.closed;
  expect(await mqtt.stored(device.id)).toHaveLength(100);
  expect(mqtt.logged.join()).toContain('more than 100 messages of QoS 2 wait for PUBREL');
});

it('closes a connection whose QoS 2 fails while its QoS 1 is being stored, and stores both when they come again', async () => {
  const device = await acme.device();
  const both = [1, 2].map((qos) => encodePublish(`${device.id}/streams`, qos as 1 | 2, qos));
  let store: () => void = () => undefined;
  storing = new Promise((resolve) => {
    store = resolve;
  });
  const first = await connect(device.username, 'both');
  failing.add('mqtt_received');
  failures = 0;
  first.socket.write(Buffer.concat(both));
  await waitUntil(() => failures > 0);
  store();
  await first.closed;
  failing.clear();
  const second = await connect(device.username, 'both');
  second.socket.write(Buffer.concat(both));
  expect((await second.bytes(12)).subarray(4)).toEqual(
    Buffer.concat([encodePacket(0x40, id(1)), encodePacket(0x50, id(2))]),
  );
  expect(await mqtt.stored(device.id)).toHaveLength(3);
  second.socket.destroy();
});

it.each(['written', 'lost'] as const)(
  'hands over a message of QoS 2 once whose receipt is %s without a reply, and which comes again',
  async (outcome) => {
    const device = await acme.device(['seen/#']);
    const lasting = await mqtt.connect(device.username, { clientId: `stays ${outcome}`, clean: false });
    const other = await mqtt.connect(device.username, { clientId: `other ${outcome}` });
    for (const each of [lasting, other]) await each.subscribe('seen/#', 2);
    const publish = encodePublish('seen/x', 2, 1);
    const first = await connect(device.username, `unsure ${outcome}`);
    unconfirmed.push('confirmed', outcome);
    first.socket.write(publish);
    await first.closed;
    expect(unconfirmed).toEqual([]);
    const second = await connect(device.username, `unsure ${outcome}`);
    second.socket.write(publish);
    expect((await second.bytes(8)).subarray(4)).toEqual(encodePacket(0x50, id(1)));
    await other.publish('seen/y', 'last', { qos: 2 });
    for (const each of [lasting, other])
      expect((await each.received(2)).map(({ topic }) => topic)).toEqual(['seen/x', 'seen/y']);
    await lasting.end();
    const again = await mqtt.connect(device.username, { clientId: `stays ${outcome}`, clean: false });
    await other.publish('seen/z', 'last', { qos: 2 });
    expect((await again.received(1)).map(({ topic }) => topic)).toEqual(['seen/z']);
    second.socket.destroy();
    await Promise.all([again.end(), other.end()]);
  },
);

it('closes a connection whose PUBREL is not recorded, and answers it when it comes again', async () => {
  const device = await acme.device(['seen/#']);
  const [received, release] = [encodePacket(0x50, id(1)), encodePacket(0x62, id(1))];
  const first = await connect(device.username, 'release');
  first.socket.write(encodePublish('seen/x', 2, 1));
  expect((await first.bytes(8)).subarray(4)).toEqual(received);
  failing.add('mqtt_received');
  first.socket.write(release);
  await first.closed;
  failing.clear();
  const second = await connect(device.username, 'release');
  second.socket.write(release);
  expect((await second.bytes(8)).subarray(4)).toEqual(encodePacket(0x70, id(1)));
  second.socket.destroy();
});

it('closes a connection whose PUBREC is not recorded, and sends the message again', async () => {
  const device = await acme.device(['seen/#']);
  const publisher = await mqtt.connect(device.username, { clientId: 'to a lasting one' });
  const first = await connect(device.username, 'receive');
  first.socket.write(encodePacket(0x82, id(1), encodeString('seen/#'), Buffer.from([2])));
  await first.bytes(9);
  await publisher.publish('seen/x', 'text', { qos: 2 });
  // PUBLISH: its header, topic, packet id and payload
  const sent = (await first.bytes(9 + 16)).subarray(9);
  const packet_id = sent.subarray(10, 12);
  failing.add('mqtt_queue');
  first.socket.write(encodePacket(0x50, packet_id));
  await first.closed;
  failing.clear();
  const second = await connect(device.username, 'receive');
  const again = (await second.bytes(4 + 16)).subarray(4);
  expect([again[0], again.subarray(1)]).toEqual([(sent[0] ?? 0) | 0x08, sent.subarray(1)]);
  second.socket.write(encodePacket(0x50, packet_id));
  expect((await second.bytes(24)).subarray(20)).toEqual(encodePacket(0x62, packet_id));
  second.socket.destroy();
  await publisher.end();
});

it('closes a connection whose retained message is not stored, though a session waits for it, and publishes no such will', async () => {
  const device = await acme.device(['seen/#']);
  const lasting = await connect(device.username, 'lasting');
  lasting.socket.write(encodePacket(0x82, id(1), encodeString('seen/#'), Buffer.from([1])));
  await lasting.bytes(9);
  lasting.socket.destroy();
  const publisher = await connect(device.username, 'publisher');
  const will = { topic: 'seen/will', payload: Buffer.from('gone'), qos: 1, retain: true } as const;
  const leaving = await mqtt.connect(device.username, { clientId: 'leaving', will });
  failing.add('mqtt_retained');
  publisher.socket.write(encodePublish('seen/online', 1, 1, 0x01));
  await publisher.closed;
  expect(publisher.received()).toHaveLength(4);
  const drops = mqtt.drops.get('database') ?? 0;
  leaving.client.stream.destroy();
  await waitUntil(() => (mqtt.drops.get('database') ?? 0) > drops);
  failing.clear();
  const reader = await mqtt.connect(device.username, { clientId: 'reader' });
  await reader.publish('seen/last', 'x', { retain: true });
  await reader.subscribe('seen/+');
  expect((await reader.received(1)).map(({ topic }) => topic)).toEqual(['seen/last']);
  await reader.end();
});

it('acknowledges what is being stored when it stops, and takes nothing more', async () => {
  let store: () => void = () => undefined;
  let isStoring = false;
  const stored = new Promise<void>((resolve) => {
    store = resolve;
  });
  const stopping = await startMqtt(({ record }) => ({
    async record(job) {
      isStoring = true;
      await stored;
      await record(job);
    },
  }));
  const device = await (await stopping.account('acme')).device();
  const raw = await stopping.raw();
  raw.socket.write(encodeConnect({ username: device.username, clientId: 'sends on' }));
  await raw.bytes(4);
  raw.socket.write(encodePublish(`${device.id}/streams`, 1, 1));
  await waitUntil(() => isStoring);
  const closed = stopping.broker.close();
  await new Promise((resolve) => raw.socket.write(encodePublish(`${device.id}/streams`, 1, 2), resolve));
  for (let turns = 0; turns < 100; turns++) await nextTurn();
  store();
  await closed;
  await raw.closed;
  expect(raw.received().subarray(4)).toEqual(encodePacket(0x40, id(1)));
  expect(await stopping.stored(device.id)).toHaveLength(1);
  await stopping.stop();
});

describe('a client of MQTT 5 learns', () => {
  const login = (username: string, clientId: string) => encodeConnect({ username, clientId, level: 5 });

  it('in CONNACK that the database does not answer, in DISCONNECT that a message was not stored', async () => {
    const { username } = await acme.device(['seen/#']);
    failing.add(mqttcredentials.plural);
    const refused = await mqtt.raw();
    refused.socket.write(login(username, 'refused'));
    await refused.closed;
    expect(refused.received().toString('hex')).toBe('2003008800');
    failing.clear();
    const raw = await mqtt.raw();
    raw.socket.write(login(username, 'busy'));
    const { length } = await raw.bytes(24);
    failing.add('mqtt_retained');
    raw.socket.write(encodePacket(0x33, encodeString('seen/x'), id(1), Buffer.from([0]), Buffer.from('x')));
    await raw.closed;
    expect(raw.received().toString('hex', length)).toBe('e00189');
  });

  it('in CONNACK that too many logins are waiting: 32 are checked, 100 more of a username wait', async () => {
    const { username } = await acme.device();
    let find: () => void = () => undefined;
    const until = new Promise<void>((resolve) => {
      find = resolve;
    });
    finding = { plural: mqttcredentials.plural, until };
    const raws = await Promise.all(Array.from({ length: 135 }, () => mqtt.raw()));
    for (const [index, { socket }] of raws.entries()) socket.write(login(username, `storm-${index}`));
    const answers = () => raws.map(({ received }) => received().toString('hex')).filter((answer) => answer !== '');
    await waitUntil(() => answers().length === 3);
    expect(answers()).toEqual(Array(3).fill('2003008900'));
    finding = undefined;
    find();
    await waitUntil(() => answers().length === raws.length);
    expect(answers().filter((answer) => answer.startsWith('2016000013'))).toHaveLength(132);
    for (const { socket } of raws) socket.destroy();
  });

  it('in DISCONNECT that it does not read', async () => {
    const { username } = await acme.device(['much/#']);
    const [client, served] = duplexPair();
    mqtt.broker.handle(served, '127.0.0.1');
    client.write(login(username, 'full'));
    client.write(encodePacket(0x82, id(1), Buffer.from([0]), encodeString('much/#'), Buffer.from([0])));
    const sender = await mqtt.connect(username, { clientId: 'sends much' });
    let answers = '';
    await waitUntil(() => {
      answers += client.read()?.toString('hex') ?? '';
      return answers.endsWith('900400010000');
    });
    for (let n = 0; n < 4; n++) await sender.publish('much/x', 'x'.repeat(400_000));
    await waitUntil(() => mqtt.logged.join().includes('it does not read'));
    const chunks: Buffer[] = await client.toArray();
    expect(Buffer.concat(chunks).toString('hex').slice(-6)).toBe('e00197');
    await sender.end();
  });
});
