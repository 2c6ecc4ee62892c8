import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { IClientOptions, IPublishPacket } from 'mqtt';
import {
  type Connected,
  encodePacket,
  encodeString,
  type GivenDevice,
  type MqttService,
  password,
  startMqtt,
} from '../support/mqtt.js';
import { waitUntil } from '../support/process.js';
import { pathOf } from '../support/service.js';

let mqtt: MqttService;
let acme: Awaited<ReturnType<MqttService['account']>>;
let device: GivenDevice;
let names = 0;

beforeAll(async () => {
  mqtt = await startMqtt();
  acme = await mqtt.account('acme');
  device = await acme.device(['plain/#', '+/commands', '+/state/desired', 'x@acme/#']);
});
afterAll(() => mqtt.stop());

const connect5 = (options: IClientOptions = {}) =>
  mqtt.connect(device.username, { protocolVersion: 5, clientId: `five-${++names}`, ...options });
const connect4 = () => mqtt.connect(device.username, { clientId: `four-${++names}` });

/** Notes the packets of all messages, with their properties. */
function record({ client }: Connected): IPublishPacket[] {
  const packets: IPublishPacket[] = [];
  client.on('message', (_topic, _payload, packet) => packets.push(packet));
  return packets;
}

const properties = {
  payloadFormatIndicator: true,
  contentType: 'text/plain',
  responseTopic: 'plain/answer',
  correlationData: Buffer.from([0, 255]),
  userProperties: { b: ['2', '1'], a: '3' },
};

it('tells what the broker has, and a client id for an empty one (MQTT-3.1.3-6, MQTT-3.1.3-7, MQTT-3.2.2-16)', async () => {
  const { socket, bytes } = await mqtt.raw();
  const login = [encodeString(''), encodeString(device.username), encodeString(password)];
  const expiry = Buffer.from([5, 0x11, 0, 39, 141, 1]);
  socket.write(encodePacket(0x10, encodeString('MQTT'), Buffer.from([5, 0xc2, 0, 60]), expiry, ...login));
  const connack = await bytes(68);
  expect(connack.toString('hex', 0, 27)).toBe('204200003f21006427000800002200102501280129012a01120024');
  expect(connack.toString('utf8', 27, 63)).toMatch(/^[0-9a-f-]{36}$/);
  // 30 days instead of a second more
  expect(connack.toString('hex', 63)).toBe('1100278d00');
  socket.destroy();
});

describe('properties of a message', () => {
  it('reach subscribers of version 5 live, retained, queued and as a will; others get the message', async () => {
    const topic = `plain/props-${++names}`;
    const [five, four] = [await connect5(), await connect4()];
    const away = { clientId: `away-${names}`, clean: false, properties: { sessionExpiryInterval: 1000 } };
    const packets = record(five);
    const sleeper = await connect5(away);
    for (const client of [five, four, sleeper]) await client.subscribe(topic, 1);
    await sleeper.end();
    const sender = await connect5();
    await sender.client.publishAsync(topic, 'message', { qos: 1, retain: true, properties });
    await five.received(1);
    expect(packets[0]?.properties).toMatchObject(properties);
    expect(await four.received(1)).toMatchObject([{ text: 'message' }]);
    const late = await connect5();
    const lateRecords = record(late);
    await late.subscribe(topic, 1);
    await late.received(1);
    expect(lateRecords[0]).toMatchObject({ retain: true, properties });
    const back = await connect5(away);
    const backRecords = record(back);
    await back.received(1);
    expect(backRecords[0]).toMatchObject({ retain: false, properties });
    const will = { topic, payload: Buffer.from('gone'), qos: 1 as const, retain: false, properties };
    const dying = await connect5({ will });
    dying.client.stream.destroy();
    await five.received(2);
    expect(packets[1]).toMatchObject({ properties });
    expect(packets[1]?.payload.toString()).toBe('gone');
    for (const client of [five, four, late, back, sender]) await client.end();
  });

  it('include what is left of the message expiry, after which it is not delivered (MQTT-3.3.2-5, MQTT-3.3.2-6)', async () => {
    const topic = `plain/expiry-${++names}`;
    const away = { clientId: `expiring-${names}`, clean: false, properties: { sessionExpiryInterval: 1000 } };
    const sleeper = await connect5(away);
    await sleeper.subscribe(topic, 1);
    await sleeper.end();
    const sender = await connect5();
    const publish = (text: string, messageExpiryInterval: number) =>
      sender.client.publishAsync(topic, text, { qos: 1, retain: true, properties: { messageExpiryInterval } });
    await publish('long', 1000);
    await publish('short', 10);
    mqtt.service.advance(100);
    const back = await connect5(away);
    const packets = record(back);
    await sender.client.publishAsync(topic, 'last', { qos: 1 });
    await back.received(2);
    expect(packets.map(({ payload }) => payload.toString())).toEqual(['long', 'last']);
    expect(packets[0]?.properties?.messageExpiryInterval).toBe(900);
    const late = await connect5();
    await late.subscribe(topic, 1);
    await late.subscribe('plain/mark', 1);
    await sender.publish('plain/mark', 'mark');
    expect((await late.received(1)).map(({ text }) => text)).toEqual(['mark']);
    for (const client of [back, sender, late]) await client.end();
  });
});

describe('reason codes', () => {
  /** Notes the reason codes of what the broker sends. */
  function recordCodes({ client }: Connected): unknown[] {
    const codes: unknown[] = [];
    client.on('packetreceive', (packet) => {
      if (packet.cmd === 'puback' || packet.cmd === 'pubrec') codes.push(packet.reasonCode ?? 0);
      if (packet.cmd === 'suback' || packet.cmd === 'unsuback') codes.push(packet.granted);
    });
    return codes;
  }

  it('of PUBACK and PUBREC say why a message is dropped', async () => {
    const connected = await connect5();
    const codes = recordCodes(connected);
    const { client } = connected;
    for (const qos of [1, 2] as const) {
      await client.publishAsync('other/topic', 'x', { qos }).catch(() => undefined);
      await client.publishAsync(`${device.id}/streams`, '{"data":1}', { qos }).catch(() => undefined);
      await client.publishAsync(`${device.id}/streams`, '{"data":{"a":1}}', { qos });
      await client.publishAsync(`plain/nobody-${++names}`, 'x', { qos });
    }
    expect(codes).toEqual([0x87, 0x99, 0, 0x10, 0x87, 0x99, 0, 0x10]);
    await connected.end();
  });

  it('come with the details of a stream that does not validate, at most 400 bytes, where the client wants them', async () => {
    const long = JSON.stringify([{ data: 1, [`x${'é'.repeat(400)}`]: 1 }]);
    const reasonsOf = async (requestProblemInformation: boolean) => {
      const { client, end } = await connect5({ properties: { requestProblemInformation } });
      const texts: unknown[] = [];
      client.on('packetreceive', (packet) => {
        if (packet.cmd === 'puback') texts.push(packet.properties?.reasonString);
      });
      for (const payload of ['{"data":1,"protocol":5}', long])
        await client.publishAsync(`${device.id}/streams`, payload, { qos: 1 }).catch(() => undefined);
      await end();
      return texts;
    };
    const [both, cut] = await reasonsOf(true);
    expect(JSON.parse(both as string)).toEqual({ data: 'must be an object', protocol: 'must be a text' });
    expect(cut).toMatch(/^\{"0\.xé+$/);
    // the next character takes two bytes
    expect(Buffer.byteLength(cut as string)).toBe(399);
    expect(await reasonsOf(false)).toEqual([undefined, undefined]);
  });

  it('come with the details of a report or a result that does not validate', async () => {
    const client = await connect5();
    const { name, id } = (await acme.api.post(pathOf('devices', device.id, 'commands'), { name: 'blink' })).body
      .details;
    expect([name, typeof id]).toEqual([undefined, 'string']);
    const texts: unknown[] = [];
    client.client.on('packetreceive', (packet) => {
      if (packet.cmd === 'puback') texts.push(JSON.parse(packet.properties?.reasonString ?? 'null'));
    });
    const publish = (topic: string, message: object) =>
      client.client.publishAsync(`${device.id}/${topic}`, JSON.stringify(message), { qos: 1 }).catch(() => undefined);
    await publish('state/reported', { a: 'x'.repeat(33_000) });
    await publish('commands/result', { id, status: 'bogus', other: 1 });
    await publish('commands/result', { status: 'done' });
    await publish('commands/result', { id: 'nope', status: 'done' });
    await publish('commands/result', { id, status: 'done' });
    await publish('commands/result', { id, status: 'failed' });
    expect(texts).toEqual([
      { reported: 'must not be larger than 32 KiB' },
      { status: 'must be one of done, failed', other: 'unknown field' },
      { id: 'is required' },
      { id: 'does not exist' },
      null,
      { status: 'is done' },
    ]);
    await client.end();
  });

  it('free the packet id of a refused message of QoS 2 (MQTT-4.3.3-9)', async () => {
    const { socket, bytes } = await mqtt.raw();
    const login = [encodeString('reuses'), encodeString(device.username), encodeString(password)];
    socket.write(encodePacket(0x10, encodeString('MQTT'), Buffer.from([5, 0xc2, 0, 60, 0]), ...login));
    const { length } = await bytes(24);
    const publish = (payload: string) =>
      encodePacket(0x34, encodeString(`${device.id}/streams`), Buffer.from([0, 9, 0]), Buffer.from(payload));
    socket.write(publish('x'));
    const { length: refused } = await bytes(length + 10);
    socket.write(publish('{"data":{"reused":1}}'));
    expect((await bytes(refused + 4)).toString('hex', refused)).toBe('50020009');
    expect(await mqtt.stored(device.id)).toContainEqual({ reused: 1 });
    socket.destroy();
  });

  it('say that a message is not retained, unless it is a stream', async () => {
    const filler = await connect5();
    const fill = recordCodes(filler);
    const payload = 'x'.repeat(500_000);
    for (let n = 0; n < 34; n++)
      await filler.client.publishAsync(`plain/fill/${n}`, payload, { qos: 1, retain: true }).catch(() => undefined);
    expect(fill.slice(-1)).toEqual([0x97]);
    expect(fill.slice(0, 32).every((code) => code === 0x10)).toBe(true);
    const stream = JSON.stringify({ data: { text: 'y'.repeat(60_000) } });
    for (let n = 0; n < 10; n++)
      await filler.client.publishAsync(`${device.id}/streams`, stream, { qos: 1, retain: true });
    expect(fill.slice(34)).toEqual(Array(10).fill(0));
    expect(mqtt.drops.get('retained_full')).toBeGreaterThan(0);
    for (let n = 0; n < 34; n++) await filler.publish(`plain/fill/${n}`, '', { retain: true });
    await filler.end();
  });

  it.each(['no such user', ''])('of CONNACK: username %j', async (username) => {
    expect(await mqtt.refusal(username, { protocolVersion: 5, clientId: `five-${++names}` })).toBe(0x86);
  });

  it('of CONNACK: an authentication method, a will with a wildcard', async () => {
    const options = { protocolVersion: 5, clientId: `five-${++names}` } as const;
    const authenticating = { ...options, properties: { authenticationMethod: 'GS2' } };
    expect(await mqtt.refusal(device.username, authenticating)).toBe(0x8c);
    expect((await connect4()).client.connected).toBe(true);
  });

  it('of SUBACK and UNSUBACK', async () => {
    const connected = await connect5();
    const codes = recordCodes(connected);
    await connected.subscribe(['plain/a', 'other/a', '$share/group/plain/+', '$share/group/other/+']);
    await connected.client.unsubscribeAsync(['plain/a', 'plain/b']).catch(() => undefined);
    expect(codes).toEqual([
      [1, 0x87, 1, 0x87],
      [0, 0x11],
    ]);
    await connected.end();
  });

  it.each([
    ['$share/g1', 0x8f],
    ['$share//r/s', 0x8f],
    ['$share/g1/', 0x8f],
    ['$share/', 0x8f],
    ['$share/g+/plain/a', 0x8f],
    ['$share/g1/plain/a#', 0x8f],
    ['plain/a#', 0x8f],
    ['plain/#/a', 0x8f],
    ['plain/a+', 0x8f],
    ['plain/+/a', 1],
    ['$share/g1/x@acme/commands', 0x87],
    ['$share/g1/+/state/desired', 0x87],
    ['$share/g1/x@acme/streams', 1],
  ])(
    'of SUBACK: %s is answered with %i (MQTT-4.7.1-1, MQTT-4.7.1-2, MQTT-4.8.2-1, MQTT-4.8.2-2)',
    async (filter, code) => {
      const { socket, bytes } = await mqtt.raw();
      const login = [encodeString(`five-${++names}`), encodeString(device.username), encodeString(password)];
      socket.write(encodePacket(0x10, encodeString('MQTT'), Buffer.from([5, 0xc2, 0, 60, 0]), ...login));
      const { length } = await bytes(24);
      socket.write(encodePacket(0x82, Buffer.from([0, 1, 0]), encodeString(filter), Buffer.from([1])));
      expect((await bytes(length + 6)).at(-1)).toBe(code);
      socket.destroy();
    },
  );

  describe('of DISCONNECT', () => {
    /** Connects a client of its own device and notes why the broker ends the connection. */
    async function connectEnding() {
      const own = await acme.device();
      const connected = await mqtt.connect(own.username, { protocolVersion: 5, clientId: `ends-${++names}` });
      const codes: unknown[] = [];
      connected.client.on('disconnect', ({ reasonCode }) => codes.push(reasonCode));
      return { own, connected, codes, clientId: `ends-${names}` };
    }

    it('taken over', async () => {
      const { own, codes, clientId } = await connectEnding();
      const second = await mqtt.connect(own.username, { protocolVersion: 5, clientId });
      await waitUntil(() => codes.length === 1);
      expect(codes).toEqual([0x8e]);
      await second.end();
    });

    it('ended by the interface', async () => {
      const { codes, clientId } = await connectEnding();
      const path = `/mqtt/connections/${clientId}/`;
      await waitUntil(async () => (await acme.api.delete(path)).status === 200);
      await waitUntil(async () => {
        await mqtt.broker.recheck();
        return codes.length === 1;
      });
      expect(codes).toEqual([0x98]);
    });

    it('rights were taken away', async () => {
      const { own, codes } = await connectEnding();
      await acme.api.put(own.credentials, { username: own.username, password: 'another horse' });
      await mqtt.broker.recheck();
      await waitUntil(() => codes.length === 1);
      expect(codes).toEqual([0x87]);
    });

    it('silence for longer than one and a half keep alives, and packets against the protocol', async () => {
      const login = [encodeString('silent'), encodeString(device.username), encodeString(password)];
      const connect = encodePacket(0x10, encodeString('MQTT'), Buffer.from([5, 0xc2, 0, 1, 0]), ...login);
      const aliased = (alias: number) =>
        encodePacket(0x30, encodeString('plain/x'), Buffer.from([3, 0x23, 0, alias]), Buffer.from('x'));
      for (const [packet, reason] of [
        [Buffer.alloc(0), '8d'],
        [aliased(17), '94'],
        [encodePacket(0x30, encodeString('')), '81'],
        [encodePacket(0x82, Buffer.from([0, 1, 0])), '82'],
        [Buffer.from([0x30, 0x81, 0x80, 0x40]), '95'],
      ] as const) {
        const { socket, bytes, closed } = await mqtt.raw();
        socket.write(Buffer.concat([connect, packet]));
        await closed;
        expect((await bytes(3)).toString('hex').slice(-6)).toBe(`e001${reason}`);
      }
    });
  });
});

it('gives a command a response topic and correlation data, with which a result needs no id', async () => {
  const client = await connect5();
  const packets = record(client);
  const path = pathOf('devices', device.id, 'commands');
  await client.subscribe(`${device.id}/commands`, 1);
  const { id } = (await acme.api.post(path, { name: 'identify' })).body.details;
  await client.received(1);
  const { responseTopic = '', correlationData } = packets[0]?.properties ?? {};
  expect([responseTopic, correlationData?.toString()]).toEqual([`${device.id}/commands/result`, id]);
  const answer = { qos: 1, properties: { correlationData: Buffer.from(id) } } as const;
  await client.client.publishAsync(responseTopic, '{"status":"done"}', answer);
  expect((await acme.api.get(`${path}${id}/`)).body.status).toBe('done');
  await client.end();
});

describe('subscription options', () => {
  it('no local, retain as published, retain handling and identifiers', async () => {
    const base = `plain/options-${++names}`;
    const sender = await connect5();
    await sender.publish(`${base}/x`, 'old', { retain: true });
    const client = await connect5();
    const packets = record(client);
    const options = { qos: 1, nl: true, rap: true, rh: 2 } as const;
    await client.client.subscribeAsync(`${base}/#`, { ...options, properties: { subscriptionIdentifier: 7 } });
    await client.client.subscribeAsync(`${base}/+`, { ...options, properties: { subscriptionIdentifier: 300 } });
    await client.publish(`${base}/x`, 'own');
    await sender.publish(`${base}/x`, 'new', { retain: true });
    await client.received(1);
    expect(packets.map(({ payload, retain }) => [payload.toString(), retain])).toEqual([['new', true]]);
    expect(packets[0]?.properties?.subscriptionIdentifier).toEqual([7, 300]);
    for (const each of [client, sender]) await each.end();
  });

  it.each([0, 1, 2] as const)('identifiers of shared subscriptions at QoS %i', async (qos) => {
    const topic = `plain/identified-${++names}`;
    const client = await connect5();
    const packets = record(client);
    const subscribe = (filter: string, subscriptionIdentifier: number) =>
      client.client.subscribeAsync(filter, { qos, properties: { subscriptionIdentifier } });
    await subscribe(`$share/group/${topic}`, 43);
    await client.publish(topic, 'shared', { qos });
    await client.received(1);
    await subscribe(topic, 44);
    await client.publish(topic, 'both', { qos });
    await client.received(2);
    expect(packets.map((packet) => packet.properties?.subscriptionIdentifier)).toEqual([43, [44, 43]]);
    await client.end();
  });
});

it('sends no more than the receive maximum, and no packet over the maximum size (MQTT-3.3.4-9)', async () => {
  const topic = `plain/flow-${++names}`;
  const client = await connect5({ properties: { receiveMaximum: 2, maximumPacketSize: 200 } });
  let [unacknowledged, max_seen] = [0, 0];
  client.client.handleMessage = (_packet, done) => {
    max_seen = Math.max(max_seen, ++unacknowledged);
    setImmediate(() => {
      unacknowledged--;
      done();
    });
  };
  await client.subscribe(topic, 1);
  const sender = await connect5();
  await Promise.all(Array.from({ length: 50 }, (_, n) => sender.publish(topic, n === 20 ? 'x'.repeat(300) : `${n}`)));
  await client.received(49);
  expect(client.messages.map(({ text }) => text)).toEqual(
    Array.from({ length: 50 }, (_, n) => `${n}`).filter((text) => text !== '20'),
  );
  expect(max_seen).toBeLessThanOrEqual(2);
  for (const each of [client, sender]) await each.end();
});

it('keeps a session for its expiry interval, and ends it at once where DISCONNECT says 0', async () => {
  const clientId = `session-${++names}`;
  const connect = (sessionExpiryInterval: number) =>
    connect5({ clientId, clean: false, properties: { sessionExpiryInterval } });
  const first = await connect(1000);
  await first.subscribe('plain/session', 1);
  await first.end();
  const sender = await connect5();
  await sender.publish('plain/session', 'waits');
  const second = await connect(1000);
  expect(await second.received(1)).toMatchObject([{ text: 'waits' }]);
  await second.client.endAsync(false, { reasonCode: 0, properties: { sessionExpiryInterval: 0 } } as never);
  await sender.publish('plain/session', 'lost');
  const third = await connect(0);
  await third.subscribe('plain/mark', 1);
  await sender.publish('plain/mark', 'mark');
  expect((await third.received(1)).map(({ text }) => text)).toEqual(['mark']);
  for (const each of [third, sender]) await each.end();
});

it('shares a subscription: one member gets each message, and another what it has not acknowledged', async () => {
  const topic = `plain/shared-${++names}`;
  const [first, second, sender] = [await connect5(), await connect5(), await connect5()];
  for (const member of [first, second]) await member.subscribe(`$share/group/${topic}`, 1);
  for (let n = 0; n < 10; n++) await sender.publish(topic, `${n}`);
  await first.received(5);
  await second.received(5);
  const texts = [...first.messages, ...second.messages].map(({ text }) => Number(text));
  expect(texts.toSorted((one, other) => one - other)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  let isHeld = false;
  first.client.handleMessage = () => {
    isHeld = true;
  };
  await sender.publish(topic, 'one');
  await sender.publish(topic, 'two');
  await waitUntil(() => isHeld);
  first.client.stream.destroy();
  await second.received(7);
  expect(
    second.messages
      .slice(5)
      .map(({ text }) => text)
      .sort(),
  ).toEqual(['one', 'two']);
  for (const client of [second, sender]) await client.end();
});

/** A client that acknowledges nothing; `isHeld` once it has got something. */
async function connectHolding(filters: readonly string[]) {
  const held = await connect5();
  const holding = { ...held, isHeld: false };
  held.client.handleMessage = () => {
    holding.isHeld = true;
  };
  for (const filter of filters) await held.subscribe(filter, 1);
  return holding;
}

describe('what a member of a shared subscription has not acknowledged', () => {
  const marked = async (topic: string, sender: Connected, ...clients: Connected[]) => {
    await sender.publish(topic, 'mark');
    const hasMark = ({ messages }: Connected) => messages.some(({ text }) => text === 'mark');
    await waitUntil(() => clients.every(hasMark));
    return clients.map(({ messages }) => messages.map(({ text }) => text));
  };

  it('goes to its own group, also if the member has unsubscribed before it leaves', async () => {
    const topic = `plain/groups-${++names}`;
    const [other, next, sender] = [await connect5(), await connect5(), await connect5()];
    const first = await connectHolding([`$share/own/${topic}`]);
    await other.subscribe(`$share/other/${topic}`, 1);
    await sender.publish(topic, 'one');
    await waitUntil(() => first.isHeld);
    // it reads no answer
    first.client.unsubscribe(`$share/own/${topic}`);
    await next.subscribe(`$share/own/${topic}`, 1);
    first.client.stream.end();
    await next.received(1);
    expect(await marked(topic, sender, other, next)).toEqual([
      ['one', 'mark'],
      ['one', 'mark'],
    ]);
    for (const client of [other, next, sender]) await client.end();
  });

  it('goes to nobody after it has expired', async () => {
    const topic = `plain/expired-${++names}`;
    const [next, sender] = [await connect5(), await connect5()];
    const first = await connectHolding([`$share/own/${topic}`]);
    await sender.client.publishAsync(topic, 'expires', { qos: 1, properties: { messageExpiryInterval: 60 } });
    await waitUntil(() => first.isHeld);
    await sender.publish(topic, 'lasts');
    await next.subscribe(`$share/own/${topic}`, 1);
    mqtt.service.advance(61);
    first.client.stream.destroy();
    await next.received(1);
    expect(await marked(topic, sender, next)).toEqual([['lasts', 'mark']]);
    for (const client of [next, sender]) await client.end();
  });

  it('goes to another if it may not have it any more', async () => {
    const topic = `plain/rights-${++names}`;
    const { username, id } = await acme.device([topic]);
    const persistent = { protocolVersion: 5, clientId: `five-${++names}`, clean: false } as const;
    const connectLimited = () => mqtt.connect(username, { ...persistent, properties: { sessionExpiryInterval: 1000 } });
    const [limited, sender, next] = [await connectLimited(), await connect5(), await connect5()];
    await limited.subscribe(`$share/own/${topic}`, 1);
    await limited.end();
    await sender.publish(topic, 'queued');
    await next.subscribe(`$share/own/${topic}`, 1);
    expect((await acme.api.delete(pathOf('mqttdevices', id, 'topics'), { name: topic })).body.code).toBe(2004);
    const again = await connectLimited();
    await next.received(1);
    expect(await marked(topic, sender, next)).toEqual([['queued', 'mark']]);
    expect(again.messages).toEqual([]);
    for (const client of [again, next, sender]) await client.end();
  });
});

it('chooses no member of a shared subscription that may not have the topic any more', async () => {
  const topic = `plain/chosen-${++names}`;
  const { username, id } = await acme.device([topic]);
  const [limited, other, sender] = [
    await mqtt.connect(username, { protocolVersion: 5, clientId: `five-${++names}` }),
    await connect5(),
    await connect5(),
  ];
  for (const member of [limited, other]) await member.subscribe(`$share/own/${topic}`, 1);
  expect((await acme.api.delete(pathOf('mqttdevices', id, 'topics'), { name: topic })).body.code).toBe(2004);
  await mqtt.broker.recheck();
  for (let n = 0; n < 6; n++) await sender.publish(topic, `${n}`);
  await other.received(6);
  expect(other.messages.map(({ text }) => text)).toEqual(['0', '1', '2', '3', '4', '5']);
  expect(limited.messages).toEqual([]);
  for (const client of [limited, other, sender]) await client.end();
});

it('lets a will wait for its delay, and drops it if the client resumes its session (MQTT-3.1.3-9)', async () => {
  const topic = `plain/will-${++names}`;
  const watcher = await connect5();
  await watcher.subscribe(topic, 1);
  const leaveWith = async (text: string) => {
    const will = {
      topic,
      payload: Buffer.from(text),
      qos: 1 as const,
      retain: false,
      properties: { willDelayInterval: 60 },
    };
    const options = { clientId: text, clean: false, properties: { sessionExpiryInterval: 1000 }, will };
    const dying = await connect5(options);
    dying.client.stream.destroy();
    await waitUntil(async () => (await mqtt.service.db.collection('mqtt_wills').countDocuments({ instance: '' })) > 0);
    return options;
  };
  const resumed = await leaveWith('resumed');
  await (await connect5({ ...resumed, will: undefined } as IClientOptions)).end();
  await leaveWith('gone');
  await mqtt.broker.recheck();
  expect(watcher.messages).toEqual([]);
  mqtt.service.advance(61);
  await mqtt.broker.recheck();
  expect((await watcher.received(1)).map(({ text }) => text)).toEqual(['gone']);
  await watcher.end();
});

it.each([
  [0x00, ['mark']],
  [0x04, ['gone', 'mark']],
  [0x80, ['gone', 'mark']],
])('DISCONNECT with reason %i: only 0 drops the will (MQTT-3.1.2-8)', async (reasonCode, expected) => {
  const topic = `plain/will-${++names}`;
  const watcher = await connect5();
  await watcher.subscribe(topic, 1);
  const { client } = await connect5({ will: { topic, payload: Buffer.from('gone'), qos: 1, retain: false } });
  await client.endAsync(false, { reasonCode } as never);
  await watcher.publish(topic, 'mark');
  expect((await watcher.received(expected.length)).map(({ text }) => text).sort()).toEqual(expected);
  await watcher.end();
});

it.each([
  [true, ['gone', 'mark']],
  [false, ['mark']],
])('with clean start %p, a login that replaces the connection ends the delay of its will', async (clean, expected) => {
  const topic = `plain/will-${++names}`;
  const watcher = await connect5();
  await watcher.subscribe(topic, 1);
  const session = { clientId: `replaced-${names}`, properties: { sessionExpiryInterval: 1000 } };
  const properties = { willDelayInterval: 60 };
  const will = { topic, payload: Buffer.from('gone'), qos: 1 as const, retain: false, properties };
  await connect5({ ...session, clean: false, will });
  const second = await connect5({ ...session, clean });
  if (!clean) mqtt.service.advance(61);
  await mqtt.broker.recheck();
  await watcher.publish(topic, 'mark');
  expect((await watcher.received(expected.length)).map(({ text }) => text)).toEqual(expected);
  for (const client of [watcher, second]) await client.end();
});
