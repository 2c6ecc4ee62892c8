import { afterAll, beforeAll, beforeEach, expect, it } from '@jest/globals';
import {
  type Connected,
  encodeConnect,
  encodePacket,
  encodeString,
  type GivenDevice,
  type MqttService,
  startMqtt,
} from '../support/mqtt.js';
import { waitUntil } from '../support/process.js';
import { type Api, pathOf } from '../support/service.js';

/** The state and the commands of devices over MQTT (reference/mqtt.md#state-and-commands). */
let mqtt: MqttService;
let api: Api;
let account: Awaited<ReturnType<MqttService['account']>>;
let device: GivenDevice;
beforeAll(async () => {
  mqtt = await startMqtt();
  account = await mqtt.account('acme');
  ({ api } = account);
});
afterAll(() => mqtt.stop());
beforeEach(async () => {
  device = await account.device();
});

const desire = (patch: object) => api.patch(pathOf('devices', device.id, 'state'), patch);
const state = async () => (await api.get(pathOf('devices', device.id, 'state'))).body;
const commandsPath = (...rest: string[]) => pathOf('devices', device.id, 'commands', ...rest);
async function send(name: string, fields: object = {}): Promise<string> {
  return (await api.post(commandsPath(), { name, ...fields })).body.details.id;
}
const statusOf = async (id: string) => (await api.get(commandsPath(id))).body.status;
const topic = (ending: string) => `${device.id}/${ending}`;
const textsOf = ({ messages }: Connected) => messages.map(({ text }) => JSON.parse(text));
const namesOf = (client: Connected) => textsOf(client).map(({ name }) => name);

it('a device gets its desired state at once, and after every change', async () => {
  await desire({ a: 1 });
  const client = await mqtt.connect(device.username);
  expect(await client.subscribe(topic('state/desired'))).toEqual([1]);
  await client.received(1);
  expect(client.messages[0]).toMatchObject({ topic: topic('state/desired'), retain: true });
  await desire({ b: { c: 2 } });
  await client.received(2);
  expect(client.messages[1]).toMatchObject({ retain: false });
  await client.publish(topic('state/reported'), { a: 1 });
  await desire({ d: 3 });
  await client.received(3);
  expect(textsOf(client)).toEqual([
    { version: 1, desired: { a: 1 }, delta: { a: 1 } },
    { version: 2, desired: { a: 1, b: { c: 2 } }, delta: { a: 1, b: { c: 2 } } },
    { version: 3, desired: { a: 1, b: { c: 2 }, d: 3 }, delta: { b: { c: 2 }, d: 3 } },
  ]);
  await client.end();
  const again = await mqtt.connect(device.username);
  await again.subscribe(topic('state/desired'));
  await again.received(1);
  expect(textsOf(again)[0].version).toBe(3);
});

it.each(['state/desired', '#'])('retain handling and retain as published of %s', async (ending) => {
  const gateway = await account.device(['#']);
  const client = await mqtt.connect(gateway.username, { protocolVersion: 5 });
  const subscribe = (rh: 0 | 1 | 2, rap = false) => client.client.subscribeAsync(topic(ending), { qos: 1, rh, rap });
  await desire({ a: 1 });
  await subscribe(1);
  await client.received(1);
  for (const rh of [1, 2] as const) await subscribe(rh);
  await desire({ a: 2 });
  await client.received(2);
  await subscribe(0);
  await client.received(3);
  await subscribe(2, true);
  await desire({ a: 3 });
  await client.received(4);
  expect(textsOf(client).map(({ version }) => version)).toEqual([1, 2, 2, 3]);
  expect(client.messages.map(({ retain }) => retain)).toEqual([true, false, true, true]);
});

it('before the first change there is no desired state', async () => {
  const client = await mqtt.connect(device.username);
  await client.subscribe(topic('state/desired'));
  await client.publish(topic('state/reported'), { a: 1 });
  await desire({ a: 1 });
  await client.received(1);
  expect(textsOf(client)).toEqual([{ version: 1, desired: { a: 1 }, delta: {} }]);
});

it('a lasting session gets the state after its reconnect without another subscription', async () => {
  const options = { clientId: `c ${device.username}`, clean: false };
  const client = await mqtt.connect(device.username, options);
  await client.subscribe(topic('state/desired'));
  await client.end();
  await desire({ a: 1 });
  await desire({ a: 2 });
  const again = await mqtt.connect(device.username, options);
  await again.received(1);
  expect(textsOf(again)).toEqual([{ version: 2, desired: { a: 2 }, delta: { a: 2 } }]);
});

it('reports are merged in their order, and wrong ones dropped', async () => {
  const client = await mqtt.connect(device.username);
  const reports = [{ a: 1 }, { a: null, b: 2 }, { b: 3, c: { d: 4 } }, { c: { e: 5 } }];
  await Promise.all(reports.map((report) => client.publish(topic('state/reported'), report)));
  const before = mqtt.drops.get('invalid') ?? 0;
  for (const wrong of ['[]', 'nothing', '{"rejected":5}', '{"a":{"b":{"c":{"d":{"e":{"f":1}}}}}}'])
    await client.publish(topic('state/reported'), wrong);
  expect((mqtt.drops.get('invalid') ?? 0) - before).toBe(4);
  expect(await state()).toMatchObject({ reported: { b: 3, c: { d: 4, e: 5 } }, reported_version: 4 });
  expect(client.client.connected).toBe(true);
});

it('only the service publishes desired states and commands', async () => {
  const gateway = await account.device(['#']);
  const client = await mqtt.connect(gateway.username);
  const before = mqtt.drops.get('not_allowed') ?? 0;
  await client.publish(topic('state/desired'), { version: 9 }, { retain: true });
  await client.publish(topic('commands'), { id: 'x', name: 'x' });
  expect((mqtt.drops.get('not_allowed') ?? 0) - before).toBe(2);
  const own = await mqtt.connect(device.username);
  expect(await own.subscribe([topic('commands'), topic('state/desired'), `${gateway.id}/commands`])).toEqual([
    1, 1, 128,
  ]);
  await send('a');
  await own.received(1);
  expect(namesOf(own)).toEqual(['a']);
});

it('commands come in order, and are sent once they are acknowledged', async () => {
  const first = await send('a', { data: { n: 1 }, expires_in: 60 });
  const client = await mqtt.connect(device.username);
  await client.subscribe(topic('commands'));
  await client.received(1);
  expect(client.messages[0]).toMatchObject({ topic: topic('commands'), retain: false });
  expect(textsOf(client)).toEqual([{ id: first, name: 'a', data: { n: 1 }, expires_at: mqtt.service.now() + 60 }]);
  expect(client.qos).toEqual([1]);
  await waitUntil(async () => (await statusOf(first)) === 'sent');
  for (const name of ['b', 'c', 'd']) await send(name);
  await client.received(4);
  expect(namesOf(client)).toEqual(['a', 'b', 'c', 'd']);
});

it.each([true, false])('with clean session %p, open commands come again after a reconnect', async (clean) => {
  const options = { clientId: `c ${device.username}`, clean };
  const client = await mqtt.connect(device.username, options);
  await client.subscribe(topic('commands'));
  const first = await send('a');
  await client.received(1);
  await waitUntil(async () => (await statusOf(first)) === 'sent');
  await client.end();
  const second = await send('b');
  const cancelled = await send('gone');
  await api.delete(commandsPath(cancelled));
  await send('late', { expires_in: 1 });
  mqtt.service.advance(2);
  const again = await mqtt.connect(device.username, options);
  if (clean) await again.subscribe(topic('commands'));
  await again.received(2);
  await api.post(commandsPath(first, 'result'), { status: 'done' });
  const third = await send('c');
  await again.received(3);
  expect(textsOf(again).map(({ id }) => id)).toEqual([first, second, third]);
});

it('commands that end while they wait for the client to acknowledge others do not come', async () => {
  for (const name of ['a', 'b']) await send(name);
  const cancelled = await send('cancelled');
  await send('expired', { expires_in: 10 });
  await send('last');
  const client = await mqtt.connect(device.username, { protocolVersion: 5, properties: { receiveMaximum: 1 } });
  let acknowledge = () => {};
  client.client.handleMessage = (_packet, done) => {
    acknowledge = done;
  };
  await client.subscribe(topic('commands'));
  await client.received(1);
  await api.delete(commandsPath(cancelled));
  mqtt.service.advance(11);
  client.client.handleMessage = (_packet, done) => done();
  acknowledge();
  await client.received(3);
  expect(namesOf(client)).toEqual(['a', 'b', 'last']);
});

it('an answer ends a command, even before its acknowledgement, and once', async () => {
  const id = await send('a');
  const client = await mqtt.connect(device.username);
  await client.publish(topic('commands/result'), { id, status: 'done', data: { took: 1 } });
  await client.publish(topic('commands/result'), { id, status: 'done', data: { took: 2 } });
  expect((await api.get(commandsPath(id))).body).toMatchObject({ status: 'done', result: { took: 1 } });
  const before = mqtt.drops.get('invalid') ?? 0;
  const other = (await account.device()).id;
  const foreign = (await api.post(pathOf('devices', other, 'commands'), { name: 'a' })).body.details.id;
  for (const wrong of [{ id, status: 'failed' }, { status: 'done' }, { id: foreign, status: 'done' }, { id }])
    await client.publish(topic('commands/result'), wrong);
  expect((mqtt.drops.get('invalid') ?? 0) - before).toBe(4);
  expect((await api.get(pathOf('devices', other, 'commands', foreign))).body.status).toBe('queued');
});

it('a command is sent by its own acknowledgement only, which may be repeated', async () => {
  const raw = await mqtt.raw();
  raw.socket.write(encodeConnect({ username: device.username, clientId: 'raw' }));
  await raw.bytes(4);
  const filter = Buffer.concat([encodeString(topic('commands')), Buffer.from([1])]);
  raw.socket.write(encodePacket(0x82, Buffer.from([0, 7]), filter));
  await raw.bytes(9);
  const id = await send('a');
  await waitUntil(() => raw.received().includes('"name":"a"'));
  const packet = raw.received().subarray(9);
  const at = 4 + Buffer.byteLength(topic('commands')) + (packet.readUInt8(1) > 127 ? 1 : 0);
  const packet_id = packet.readUInt16BE(at);
  const acknowledge = (of: number) => raw.socket.write(encodePacket(0x40, Buffer.from([of >> 8, of & 255])));
  acknowledge(packet_id === 1 ? 2 : packet_id - 1);
  raw.socket.write(encodePacket(0xc0));
  await waitUntil(() => raw.received().includes(Buffer.from([0xd0, 0])));
  expect(await statusOf(id)).toBe('queued');
  acknowledge(packet_id);
  acknowledge(packet_id);
  await waitUntil(async () => (await statusOf(id)) === 'sent');
  raw.socket.destroy();
});

it('a command comes again if its acknowledgement was not stored', async () => {
  const { link } = mqtt.service;
  const { markSent } = link;
  const client = await mqtt.connect(device.username);
  await client.subscribe(topic('commands'));
  link.markSent = () => Promise.reject(new Error('cut'));
  const id = await send('a');
  await client.closed();
  link.markSent = markSent;
  expect(await statusOf(id)).toBe('queued');
  const again = await mqtt.connect(device.username);
  await again.subscribe(topic('commands'));
  await again.received(1);
  await waitUntil(async () => (await statusOf(id)) === 'sent');
});

it('a key of scope device does the part of its device, and no other', async () => {
  const issued = await api.post('/apikeys/', { username: 'pump', scope: 'device', id_device: device.id });
  const other = (await account.device()).id;
  const client = await mqtt.connect(issued.body.details.key, { password: '' });
  expect(await client.subscribe([topic('commands'), topic('state/desired'), `${other}/commands`])).toEqual([1, 1, 128]);
  await desire({ a: 1 });
  await client.received(1);
  const id = await send('b');
  await client.received(2);
  await client.publish(topic('state/reported'), { a: 1 });
  await client.publish(topic('commands/result'), { id, status: 'done' });
  await client.publish(`${other}/state/reported`, { a: 1 });
  expect(await statusOf(id)).toBe('done');
  expect(await state()).toMatchObject({ reported: { a: 1 }, delta: {} });
  expect((await api.get(pathOf('devices', other, 'state'))).body.reported).toEqual({});
  await client.end();
});

it('a gateway gets the state and the commands of the devices that its topics cover', async () => {
  const gateway = await account.device(['+/commands', '+/state/#', '+/commands/result']);
  await desire({ a: 1 });
  const client = await mqtt.connect(gateway.username);
  await client.subscribe(['+/commands', '+/state/desired']);
  await waitUntil(() => client.messages.some((message) => message.topic === topic('state/desired')));
  const id = await send('a');
  await waitUntil(() => client.messages.some((message) => message.topic === topic('commands')));
  await client.publish(topic('commands/result'), { id, status: 'failed' });
  expect(await statusOf(id)).toBe('failed');
});

it('clients that follow the same devices share the reads of a bulk command', async () => {
  const { db } = mqtt.service;
  const fleet = await mqtt.account('initech');
  const gateway = await fleet.device(['+/commands'], { type: 'gateway' });
  for (let n = 0; n < 40; n++) await fleet.device([], { type: 'meter' });
  const clients = await Promise.all(Array.from({ length: 20 }, () => mqtt.connect(gateway.username)));
  for (const client of clients) expect(await client.subscribe('+/commands')).toEqual([1]);
  await db.command({ profile: 2, filter: { ns: /[.]commands$/, 'command.find': 'commands' } });
  const reply = await fleet.api.post('/devices/commands/?type=meter&confirm=40', { name: 'wake' });
  expect(reply.body.details).toEqual({ matched: 40, changed: 40 });
  for (const client of clients) await client.received(40);
  await db.command({ profile: 0 });
  for (const client of clients) expect(new Set(textsOf(client).map(({ id }) => id)).size).toBe(40);
  const contents = { ns: /[.]commands$/, 'command.filter._id.$in': { $exists: true } };
  const reads = await db.collection('system.profile').countDocuments(contents);
  expect(reads).toBeGreaterThan(0);
  expect(reads).toBeLessThanOrEqual(10);
});

it('a gateway gets the state of a device that is made again under its identifier', async () => {
  const gateway = await account.device(['+/state/#']);
  await desire({ a: 1 });
  await desire({ a: 2 });
  const client = await mqtt.connect(gateway.username);
  await client.subscribe(topic('state/desired'));
  await client.received(1);
  const { name, type, id_group } = (await api.get(pathOf('devices', device.id))).body;
  await api.delete(pathOf('devices', device.id));
  expect((await api.post('/devices/', { name, type, id_group })).body.code).toBe(2001);
  await desire({ b: 1 });
  await client.received(2);
  expect(textsOf(client).at(-1)).toEqual({ version: 1, desired: { b: 1 }, delta: { b: 1 } });
});

it('another account gets nothing', async () => {
  const globex = await mqtt.account('globex');
  const spy = await globex.device(['#']);
  const client = await mqtt.connect(spy.username);
  await client.subscribe('#');
  const own = await mqtt.connect(device.username);
  await own.subscribe([topic('commands'), topic('state/desired')]);
  await send('a');
  await desire({ a: 1 });
  await own.received(2);
  await client.publish(topic('state/reported'), { stolen: true });
  await globex.api.post(pathOf('devices', spy.id, 'commands'), { name: 'own' });
  await waitUntil(() => client.messages.some(({ text }) => text.includes('own')));
  expect(client.messages.filter(({ text }) => text.includes('"a"'))).toEqual([]);
  expect((await state()).reported).toEqual({});
});
