import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { IPublishPacket } from 'mqtt';
import { createMqttProcesses, type MqttProcess, type MqttProcesses } from '../../support/mqtt-process.js';
import { openSandbox, type Sandbox, waitFor, waitUntil } from '../../support/process.js';
import { pathOf } from '../../support/service.js';

let sandbox: Sandbox;
let processes: MqttProcesses;
let a: MqttProcess;
let b: MqttProcess;

beforeAll(async () => {
  sandbox = await openSandbox();
  processes = createMqttProcesses(sandbox);
  a = await processes.start();
  b = await processes.start();
});
afterAll(async () => {
  processes.close();
  await sandbox.close();
});

const collection = (name: string) => sandbox.database(processes.uri).collection(name);
const textsOf = ({ messages }: { messages: readonly { text: string }[] }) => messages.map(({ text }) => text).sort();

it('the connections of both are listed on each, and ended from each; those of a killed one disappear', async () => {
  const device = await a.device();
  const doomed = await processes.start();
  const list = async () => {
    const { result } = (await a.send('GET', `/mqtt/connections/?device=${encodeURIComponent(device)}`)).body;
    return result.map(({ client_id }: { client_id: string }) => client_id).join();
  };
  await a.connect(device, { clientId: 'listed-a' });
  const onB = await b.connect(device, { clientId: 'listed-b' });
  await doomed.connect(device, { clientId: 'listed-c' });
  await waitUntil(async () => (await list()) === 'listed-a,listed-b,listed-c');
  expect((await a.send('DELETE', '/mqtt/connections/listed-b/')).body.code).toBe(2004);
  await onB.closed();
  doomed.kill('SIGKILL');
  await doomed.ended;
  await waitUntil(async () => (await list()) === 'listed-a');
});

it('a publish on one reaches the subscribers on the other, from SUBACK on, once and at the granted QoS', async () => {
  const device = await a.device(['across/#']);
  const sender = await a.connect(device, { clientId: 'sender' });
  for (const [clean, qos] of [
    [true, 0],
    [true, 1],
    [true, 2],
    [false, 1],
    [false, 2],
  ] as const) {
    const topic = `across/${clean}/${qos}`;
    const receiver = await b.connect(device, { clientId: `receiver ${clean} ${qos}`, clean });
    expect(await receiver.subscribe([topic, `across/${clean}/+`], qos)).toEqual([qos, qos]);
    for (const sent of [0, 1, 2] as const) await sender.publish(topic, `sent at ${sent}`, { qos: sent });
    await waitUntil(() => receiver.messages.length >= 3);
    await sender.publish(topic, 'the last', { qos: 2 });
    await waitUntil(() => receiver.messages.length >= 4);
    expect(receiver.messages.map(({ text }, index) => [text, receiver.qos[index]]).sort()).toEqual([
      ['sent at 0', 0],
      ['sent at 1', Math.min(1, qos)],
      ['sent at 2', qos],
      ['the last', qos],
    ]);
    await receiver.end();
  }
  await sender.end();
});

it('a message that nobody on the other wants is not written for it', async () => {
  const device = await a.device(['alone']);
  const client = await a.connect(device, { clientId: 'alone' });
  await client.subscribe('alone', 1);
  await client.publish('alone', 'here', { qos: 1 });
  await client.publish(`${device}/streams`, { data: { n: 1 } });
  await waitUntil(() => client.messages.length === 1);
  expect(await collection('mqtt_messages').countDocuments({ topic: { $in: ['alone', `${device}/streams`] } })).toBe(0);
  await client.end();
});

it('a retained message is there for a SUBSCRIBE on the other, and gone there when it is deleted', async () => {
  const device = await a.device(['kept/#']);
  const [one, other] = [await a.connect(device, { clientId: 'one' }), await b.connect(device, { clientId: 'other' })];
  await one.publish('kept/x', 'first', { retain: true });
  await other.publish('kept/x', 'second', { retain: true });
  await one.publish('kept/y', 'third', { retain: true });
  await other.publish('kept/y', '', { retain: true });
  for (const client of [one, other]) {
    await client.subscribe('kept/#');
    await waitUntil(() => client.messages.length > 0);
    expect(client.messages).toEqual([{ topic: 'kept/x', text: 'second', retain: true }]);
    await client.end();
  }
});

it('a session moves to the instance that its client reaches, and no message of QoS 1 is lost', async () => {
  const device = await a.device(['moves/#']);
  const options = { clientId: 'moves', clean: false };
  const sender = await a.connect(device, { clientId: 'moves-sender' });
  const seen = new Set<string>();
  let client = await a.connect(device, options);
  await client.subscribe('moves/x', 1);
  let count = 0;
  let isSending = true;
  const sending = (async () => {
    while (isSending) await sender.publish('moves/x', `${count++}`, { qos: 1 });
  })();
  for (const [instance, isTakeover] of [
    [b, true],
    [a, true],
    [b, false],
    [a, false],
  ] as const) {
    const former = client;
    await waitUntil(() => former.messages.length > 0);
    if (!isTakeover) await former.end();
    // again, as a client would, where a busy instance does not give the session up in time
    client = await waitFor(
      () => instance.connect(device, options),
      () => true,
    );
    await former.closed();
    for (const { text } of former.messages) seen.add(text);
  }
  isSending = false;
  await sending;
  await waitUntil(() => {
    for (const { text } of client.messages) seen.add(text);
    return seen.size === count;
  });
  await client.end();
  await sender.end();
});

it.each([true, false])(
  'with clean start %p, a login on the other ends the delay of the will of the former connection',
  async (clean) => {
    const topic = `delayed/${clean}`;
    const device = await a.device([topic]);
    const spy = await b.connect(device);
    await spy.subscribe(topic, 1);
    const session = { clientId: topic, protocolVersion: 5 as const, properties: { sessionExpiryInterval: 1000 } };
    const properties = { willDelayInterval: 1000 };
    const will = { topic, payload: Buffer.from('gone'), qos: 1 as const, retain: false, properties };
    await a.connect(device, { ...session, clean: false, will });
    const second = await b.connect(device, { ...session, clean });
    if (clean) await waitUntil(() => spy.messages.length === 1);
    else expect(await collection('mqtt_wills').countDocuments({ topic })).toBe(0);
    for (const client of [spy, second]) await client.end();
  },
);

it('a client id is refused to other credentials, whether it is connected elsewhere or its session waits', async () => {
  const [owner, thief] = [await a.device(), await a.device()];
  const clean = await a.connect(owner, { clientId: 'held' });
  expect(await b.refusal(thief, { clientId: 'held' })).toBe(2);
  expect(clean.client.connected).toBe(true);
  const moved = await b.connect(owner, { clientId: 'held' });
  await clean.closed();
  await moved.end();
  await waitUntil(async () => (await a.refusal(thief, { clientId: 'held' })) === 0);

  await (await a.connect(owner, { clientId: 'waits', clean: false })).end();
  expect(await b.refusal(thief, { clientId: 'waits', clean: false })).toBe(2);
});

it('deleted credentials and topics end on the other, and the sessions with them', async () => {
  const device = await a.device(['taken']);
  const client = await b.connect(device, { clientId: 'loses', clean: false });
  expect(await client.subscribe('taken')).toEqual([1]);
  const path = pathOf('mqttdevices', device);
  await a.send('DELETE', `${path}topics/`, { name: 'taken' });
  await waitUntil(async () => (await client.subscribe('taken'))[0] === 128);
  await a.send('DELETE', path);
  await client.closed();
  await waitUntil(async () => (await collection('mqtt_sessions').countDocuments({ client_id: 'loses' })) === 0);
});

it('a disabled device loses its connection on the other', async () => {
  const device = await a.device();
  const client = await b.connect(device);
  expect((await a.send('PUT', pathOf('devices', device), { enabled: false })).status).toBe(200);
  await client.closed();
});

it('properties and what is left of the expiry pass live, retained, queued and as a will, also after a kill', async () => {
  const device = await b.device(['props/#']);
  const doomed = await processes.start();
  const properties = {
    contentType: 'text/plain',
    correlationData: Buffer.from([0, 255]),
    userProperties: { b: ['2', '1'] },
  };
  const expiring = { ...properties, messageExpiryInterval: 1000 };
  const will = { topic: 'props/will', payload: Buffer.from('will'), qos: 1 as const, retain: false, properties };
  const open = async (instance: MqttProcess, clientId: string, topic: string) => {
    const session = { clean: false, properties: { sessionExpiryInterval: 1000 } };
    const client = await instance.connect(device, {
      clientId,
      protocolVersion: 5,
      ...session,
      ...(topic === '' && { will }),
    });
    const packets: IPublishPacket[] = [];
    client.client.on('message', (_topic, _payload, packet) => packets.push(packet));
    if (topic !== '') await client.subscribe(topic, 1);
    return { client, packets };
  };
  const live = await open(b, 'props-live', 'props/#');
  const sleeper = await open(doomed, 'props-sleeper', 'props/x');
  await sleeper.client.end();
  const { client } = await open(doomed, 'props-sender', '');
  await client.client.publishAsync('props/x', 'message', { qos: 1, retain: true, properties: expiring });
  await waitUntil(() => live.packets.length === 1);
  doomed.kill('SIGKILL');
  await doomed.ended;
  await waitUntil(() => live.packets.length === 2);
  const late = await open(b, 'props-late', 'props/x');
  const back = await open(b, 'props-sleeper', 'props/x');
  await waitUntil(() => late.packets.length === 1 && back.packets.length === 2);
  expect(live.packets[1]).toMatchObject({ topic: 'props/will', properties });
  for (const packet of [live.packets[0], late.packets[0], ...back.packets]) {
    expect(packet).toMatchObject({ topic: 'props/x', properties });
    const left_s = packet?.properties?.messageExpiryInterval ?? 0;
    expect(left_s > 0 && left_s <= 1000).toBe(true);
  }
  for (const each of [live, late, back]) await each.client.end();
});

it.each(['SIGKILL', 'SIGTERM'] as const)(
  'what a member of a shared subscription has not acknowledged goes to another after %s',
  async (signal) => {
    const device = await b.device([`shared/${signal}`]);
    const doomed = await processes.start();
    const join = async (instance: MqttProcess) => {
      const member = await instance.connect(device, { clientId: `${instance.pid} ${signal}`, protocolVersion: 5 });
      expect(await member.subscribe(`$share/group/shared/${signal}`, 1)).toEqual([1]);
      return member;
    };
    const [stays, goes] = [await join(b), await join(doomed)];
    // it acknowledges nothing
    goes.client.handleMessage = () => undefined;
    const sender = await b.connect(device, { clientId: `sends-${signal}` });
    for (let n = 0; n < 10; n++) await sender.publish(`shared/${signal}`, `${n}`);
    await waitUntil(() => stays.messages.length === 5 && goes.messages.length > 0);
    doomed.kill(signal);
    await doomed.ended;
    await waitUntil(() => stays.messages.length === 10);
    expect(textsOf(stays)).toEqual(['0', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
    await stays.end();
  },
);

it('the will of a client is published once when its instance is killed, and not when the instance is stopped', async () => {
  const device = await b.device(['wills/#']);
  const spy = await b.connect(device, { clientId: 'spy' });
  await spy.subscribe('wills/#', 1);
  const willOf = (name: string) => ({
    will: { topic: `wills/${name}`, payload: Buffer.from(name), qos: 1 as const, retain: false },
  });
  const stopped = await processes.start();
  await stopped.connect(device, { clientId: 'on-stopped', ...willOf('stopped') });
  stopped.kill('SIGTERM');
  await stopped.ended;

  const c = await processes.start();
  await a.connect(device, { clientId: 'clean', ...willOf('clean') });
  const persistent = await a.connect(device, { clientId: 'persistent', clean: false, ...willOf('persistent') });
  await persistent.subscribe(`${device}/status`);
  const polite = await a.connect(device, { clientId: 'polite', ...willOf('polite') });
  await polite.end();
  const status = { topic: `${device}/status`, payload: Buffer.from('{"off":1}'), qos: 1 as const, retain: false };
  await a.connect(device, { clientId: 'status', will: status });
  const wills = collection('mqtt_wills');
  await waitUntil(async () => (await wills.countDocuments()) === 3);
  a.kill('SIGKILL');
  await a.ended;
  await waitUntil(() => spy.messages.length >= 2);
  await waitUntil(async () => (await collection('mqtt_instances').countDocuments()) === 2);
  await waitUntil(async () => (await b.streams(device)).length > 0);
  // the session of the killed instance has the status that was published for the other one
  const back = await c.connect(device, { clientId: 'persistent', clean: false });
  await waitUntil(() => back.messages.length > 0);
  expect(textsOf(back)).toEqual(['{"off":1}']);
  expect(textsOf(spy)).toEqual(['clean', 'persistent']);
  expect(await b.streams(device)).toEqual([{ off: 1 }]);
  expect(await wills.countDocuments()).toBe(0);
});

it('a will is published by a third instance when the second, which has taken it, is killed before it does', async () => {
  const [first, second, third] = [await processes.start(), await processes.start(), await processes.start()];
  const device = await third.device(['taken-wills/#']);
  const spy = await third.connect(device, { clientId: 'second-spy' });
  await spy.subscribe('taken-wills/#', 1);
  const willOf = (topic: string, payload: string) => ({
    will: { topic, payload: Buffer.from(payload), qos: 1 as const, retain: false },
  });
  await first.connect(device, { clientId: 'owner', ...willOf('taken-wills/x', 'once') });
  await first.connect(device, { clientId: 'status-owner', ...willOf(`${device}/status`, '{"off":1}') });
  const wills = collection('mqtt_wills');
  await waitUntil(async () => (await wills.countDocuments()) === 2);
  const registered = await collection('mqtt_instances').find({}).toArray();
  const taker = registered.find(({ pid }) => pid === second.pid);
  // no other instance may take them first
  const stopped = registered.filter(({ pid }) => pid !== first.pid && pid !== second.pid);
  for (const pid of [second.pid, ...stopped.map((other) => other.pid)]) process.kill(pid, 'SIGSTOP');
  first.kill('SIGKILL');
  await first.ended;
  await wills.updateMany({}, { $set: { taken_by: taker?._id } });
  second.kill('SIGKILL');
  await second.ended;
  for (const { pid } of stopped) process.kill(pid, 'SIGCONT');
  await waitUntil(async () => (await wills.countDocuments()) === 0);
  await waitUntil(() => spy.messages.length > 0);
  expect(textsOf(spy)).toEqual(['once']);
  expect(await third.streams(device)).toEqual([{ off: 1 }]);
});
