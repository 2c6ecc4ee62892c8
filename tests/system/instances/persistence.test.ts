import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { encodeConnect, encodePacket, encodeString, openRawConnection } from '../../support/mqtt.js';
import { createMqttProcesses, type MqttProcess, type MqttProcesses } from '../../support/mqtt-process.js';
import { openSandbox, type Sandbox, waitUntil } from '../../support/process.js';

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

const id = (packet_id: number) => Buffer.from([packet_id >> 8, packet_id & 255]);

describe.each(['SIGTERM', 'SIGKILL'] as const)('after %s (reference/mqtt.md#sessions)', (signal) => {
  it('the next process has retained messages, sessions, subscriptions, queues and packet ids of QoS 2', async () => {
    const receiver = await service.device([`${signal}/#`]);
    const sender = await service.device([`${signal}/#`, 'keep/#']);
    const stays = { clientId: `stays ${signal}`, clean: false };
    const connected = await service.connect(receiver, stays);
    expect(await connected.subscribe([`${signal}/a`, `${signal}/b/+`], 2)).toEqual([2, 2]);
    const gone = await service.connect(receiver, { clientId: `clean ${signal}` });
    await gone.subscribe(`${signal}/#`, 1);
    await connected.end();

    const publisher = await service.connect(sender, { clientId: 'publisher' });
    await publisher.publish('keep/x', signal, { retain: true });
    await publisher.publish('keep/y', 'to be deleted', { retain: true });
    await publisher.publish('keep/y', '', { retain: true });
    await publisher.publish(`${signal}/a`, 'one', { qos: 1 });
    await publisher.publish(`${signal}/b/x`, 'two', { qos: 2 });
    await publisher.publish(`${signal}/a`, 'no queue for QoS 0', { qos: 0 });

    // PUBLISH of QoS 2 without PUBREL
    const raw = await openRawConnection(service.mqtt_port);
    raw.socket.write(encodeConnect({ username: sender, clientId: `twice ${signal}`, clean: false }));
    await raw.bytes(4);
    const publish = (flags: number) =>
      encodePacket(0x34 | flags, encodeString(`${sender}/streams`), id(7), Buffer.from('{"data":{"n":1}}'));
    raw.socket.write(publish(0));
    expect([...(await raw.bytes(8)).subarray(4)]).toEqual([0x50, 2, 0, 7]);

    service.kill(signal);
    await service.ended;
    const database = sandbox.database(processes.uri);
    // in earlier versions the session belonged to the credentials
    const credentials = await database.collection('mqtt_credentials').findOne({ username: receiver });
    const ofCredentials = { $set: { owner: `device ${credentials?._id}` } };
    await database.collection('mqtt_sessions').updateOne({ client_id: stays.clientId }, ofCredentials);
    service = await processes.start();

    const again = await openRawConnection(service.mqtt_port);
    again.socket.write(encodeConnect({ username: sender, clientId: `twice ${signal}`, clean: false }));
    expect([...(await again.bytes(4))]).toEqual([0x20, 2, 1, 0]);
    again.socket.write(publish(0x08));
    expect([...(await again.bytes(8)).subarray(4)]).toEqual([0x50, 2, 0, 7]);
    again.socket.write(encodePacket(0x62, id(7)));
    expect([...(await again.bytes(12)).subarray(8)]).toEqual([0x70, 2, 0, 7]);
    again.socket.destroy();
    expect(await service.streams(sender)).toEqual([{ n: 1 }]);

    expect(await service.refusal(sender, stays)).toBe(2);
    const back = await service.connect(receiver, stays);
    await waitUntil(() => back.messages.length >= 2);
    const other = await service.connect(sender, { clientId: 'other' });
    expect(await other.subscribe('keep/#')).toEqual([1]);
    await waitUntil(() => other.messages.length >= 1);
    await other.publish(`${signal}/b/y`, 'three', { qos: 1 });
    await waitUntil(() => back.messages.length >= 3);
    expect(back.messages.map(({ text }) => text).sort()).toEqual(['one', 'three', 'two']);
    expect(other.messages).toEqual([{ topic: 'keep/x', text: signal, retain: true }]);
    await back.end();
    await other.end();
    const queued = { topic: { $in: ['a', 'b/x', 'b/y'].map((name) => `${signal}/${name}`) } };
    await waitUntil(async () => (await database.collection('mqtt_queue').countDocuments(queued)) === 0);
  });

  it('a message that the client has not acknowledged comes again, with the DUP flag, also one that two filters cover', async () => {
    const device = await service.device(['dup/#']);
    const options = { username: device, clientId: `dup ${signal}`, clean: false };
    const first = await openRawConnection(service.mqtt_port);
    first.socket.write(encodeConnect(options));
    await first.bytes(4);
    const filters = ['dup/x', 'dup/+'].flatMap((filter) => [encodeString(filter), Buffer.from([2])]);
    first.socket.write(encodePacket(0x82, id(1), ...filters));
    await first.bytes(10);
    const publisher = await service.connect(device, { clientId: 'publisher' });
    await publisher.publish('dup/x', 'a', { qos: 1 });
    await publisher.publish('dup/x', 'b', { qos: 2 });
    const message_bytes = 2 + encodeString('dup/x').length + 2 + 1;
    const sent = (await first.bytes(10 + 2 * message_bytes)).subarray(10);
    expect([sent[0], sent[message_bytes]]).toEqual([0x32, 0x34]);

    service.kill(signal);
    await service.ended;
    service = await processes.start();

    const second = await openRawConnection(service.mqtt_port);
    second.socket.write(encodeConnect(options));
    const received = (await second.bytes(4 + 2 * message_bytes)).subarray(4);
    expect([received[0], received[message_bytes]]).toEqual([0x3a, 0x3c]);
    // QoS 2 keeps its packet id
    expect(received.subarray(message_bytes + 1)).toEqual(sent.subarray(message_bytes + 1));
    second.socket.destroy();
  });
});

it('clients with a clean session cost no database writes', async () => {
  const device = await service.device(['plain/#']);
  const database = sandbox.database(processes.uri);
  const collections = ['mqtt_sessions', 'mqtt_queue', 'mqtt_received', 'mqtt_retained', 'mqtt_wills'];
  const contentOf = async () =>
    Promise.all(collections.map((name) => database.collection(name).find().sort({ _id: 1 }).toArray()));
  // the sessions of the tests above are still being put away
  const connected = { instance: { $ne: null } };
  await waitUntil(async () => (await database.collection('mqtt_sessions').countDocuments(connected)) === 0);
  const before = await contentOf();
  const client = await service.connect(device, {
    clientId: 'clean',
    will: { topic: 'plain/will', payload: Buffer.from('will'), qos: 1, retain: false },
  });
  await client.subscribe('plain/#', 2);
  for (const qos of [0, 1, 2] as const) await client.publish('plain/x', 'x', { qos });
  await waitUntil(() => client.messages.length === 3);
  expect(await contentOf()).toEqual(before);
  await client.end();
});

it('what deleted credentials and devices leave is deleted, although no client of the account logs in after the restart', async () => {
  const [receiver, sender] = [await service.device(['swept']), await service.device(['swept'])];
  const connected = await service.connect(receiver, { clientId: 'swept', clean: false });
  await connected.subscribe('swept', 1);
  await connected.end();
  const other = await service.connect(sender, { clientId: 'kept', clean: false });
  await other.publish('swept', 'waits', { qos: 1 });
  await other.publish(`${sender}/status`, '{"on":1}', { retain: true });
  const device = await service.connect(receiver, { clientId: 'device' });
  await device.publish(`${receiver}/status`, '{"on":1}', { retain: true });
  await device.end();
  await other.end();
  const database = sandbox.database(processes.uri);
  expect(await database.collection('mqtt_retained').countDocuments({ _id: `demo ${receiver}/status` as never })).toBe(
    1,
  );
  const waiting = await database.collection('mqtt_sessions').findOne({ client_id: 'swept' });
  const queue = { _id: new RegExp(`^${waiting?.session} `) as never };
  expect(await database.collection('mqtt_queue').countDocuments(queue)).toBe(1);
  service.kill('SIGKILL');
  await service.ended;
  // as earlier versions have stored retained messages
  await database.collection('mqtt_retained').updateMany({}, { $unset: { account: 1, device: 1, parent: 1 } });
  const upgraded = ['data-version', 'retained-parents'] as never[];
  await database.collection('migrations').deleteMany({ _id: { $in: upgraded } });
  await database.collection('mqtt_credentials').deleteOne({ username: receiver });
  await database.collection('devices').deleteOne({ id_developer: receiver });
  // one instance sweeps in an hour
  await database.collection('held_leases').deleteOne({ _id: 'mqtt-sweep' as never });
  service = await processes.start();
  const countSessions = (client_id: string) => database.collection('mqtt_sessions').countDocuments({ client_id });
  await waitUntil(async () => (await countSessions('swept')) === 0);
  await waitUntil(async () => (await database.collection('mqtt_queue').countDocuments(queue)) === 0);
  const retainedOf = (topic: string) => database.collection('mqtt_retained').countDocuments({ _id: topic as never });
  await waitUntil(async () => (await retainedOf(`demo ${receiver}/status`)) === 0);
  expect(await retainedOf(`demo ${sender}/status`)).toBe(1);
  await service.send('DELETE', `/devices/${sender}/`);
  expect(await retainedOf(`demo ${sender}/status`)).toBe(0);
  expect(await countSessions('kept')).toBe(1);
});
