import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { type MqttService, startMqtt } from '../support/mqtt.js';
import { createFixtures, pathOf } from '../support/service.js';

/** Limited keys as MQTT logins (reference/mqtt.md#api-key-login). */
let mqtt: MqttService;
let acme: Awaited<ReturnType<MqttService['account']>>;

beforeAll(async () => {
  mqtt = await startMqtt();
  acme = await mqtt.account('acme');
});
afterAll(() => mqtt.stop());

const withoutPassword = { password: '' };

async function issue(body: object): Promise<{ id: string; key: string }> {
  const { details } = (await acme.api.post('/apikeys/', { username: 'bob', ...body })).body;
  return details;
}
const createDevice = async (fields: object = {}) => {
  const { id } = await acme.device([], fields);
  return id;
};

it.each(['device', 'stream'])('a key of scope %s of a device may do what its credentials may', async (scope) => {
  const id = await createDevice();
  const other = await createDevice();
  await acme.api.delete(pathOf('mqttdevices', id));
  await acme.api.post(pathOf('mqttdevices', id, 'topics'), { name: 'valves/#' });
  const { key } = await issue({ scope, id_device: id });
  const device = await mqtt.connect(key, withoutPassword);
  await device.publish(`${id}/streams`, { data: { n: 1 } });
  await device.publish(`${id}/status`, { data: { up: true } });
  expect(await mqtt.stored(id)).toEqual([{ n: 1 }, { up: true }]);
  expect(await device.subscribe([`${id}/streams`, 'valves/1', `${other}/streams`, '#', `${key}/streams`])).toEqual([
    1, 1, 128, 128, 128,
  ]);
  for (const topic of [`${other}/streams`, `${key}/streams`])
    await device.publish(topic, { device: id, data: { n: 2 } }).catch(() => undefined);
  expect(await mqtt.stored(other)).toEqual([]);
  expect(await mqtt.stored(id)).toHaveLength(2);
  await device.end();
});

it('a device with its own key gets its state and its commands, and answers', async () => {
  const id = await createDevice();
  await acme.api.delete(pathOf('mqttdevices', id));
  await acme.api.patch(pathOf('devices', id, 'state'), { led: true });
  const command = (await acme.api.post(pathOf('devices', id, 'commands'), { name: 'restart' })).body.details.id;
  const { key } = await issue({ scope: 'device', id_device: id });
  const device = await mqtt.connect(key, withoutPassword);
  expect(await device.subscribe([`${id}/state/desired`, `${id}/commands`])).toEqual([1, 1]);
  await device.received(2);
  const messages = device.messages.map(({ topic, text }) => [topic, JSON.parse(text)]);
  expect(Object.fromEntries(messages)).toMatchObject({
    [`${id}/state/desired`]: { version: 1, desired: { led: true } },
    [`${id}/commands`]: { id: command, name: 'restart' },
  });
  await device.publish(`${id}/state/reported`, { led: true });
  await device.publish(`${id}/commands/result`, { id: command, status: 'done' });
  expect((await acme.api.get(pathOf('devices', id, 'state'))).body.delta).toEqual({});
  expect((await acme.api.get(pathOf('devices', id, 'commands', command))).body.status).toBe('done');
  await device.end();
});

it('a key of scope read of a device does not log in, nor one whose device is disabled', async () => {
  const id = await createDevice();
  expect(await mqtt.refusal((await issue({ scope: 'read', id_device: id })).key, withoutPassword)).toBe(5);
  const { key } = await issue({ scope: 'device', id_device: id });
  await acme.api.put(pathOf('devices', id), { enabled: false });
  expect(await mqtt.refusal(key, withoutPassword)).toBe(5);
  await acme.api.put(pathOf('devices', id), { enabled: true });
  expect(await mqtt.refusal(key, withoutPassword)).toBe(0);
});

it('a key of something above publishes for the devices below it', async () => {
  const inside = await createDevice();
  const outside = await createDevice({ id_group: await createFixtures(acme.api).group() });
  const { id_group } = (await acme.api.get(pathOf('devices', inside))).body;
  const { key } = await issue({ scope: 'stream', id_group });
  const gateway = await mqtt.connect(key, withoutPassword);
  await gateway.publish(`${key}/streams`, { device: inside, data: { n: 1 } });
  await gateway.publish(`${key}/streams`, { device: outside, data: { n: 2 } });
  await gateway.publish(`${key}/streams`, [
    { device: inside, data: { n: 3 } },
    { device: outside, data: { n: 3 } },
  ]);
  expect(await mqtt.stored(inside)).toEqual([{ n: 1 }]);
  expect(await mqtt.stored(outside)).toEqual([]);
  expect(mqtt.droppedFields.get('device')).toBe(2);
  expect(await gateway.subscribe(`${inside}/streams`)).toEqual([128]);
  await gateway.end();
});

it('a topic that is taken away ends its subscription, and a new one is granted', async () => {
  const id = await createDevice();
  const topics = pathOf('mqttdevices', id, 'topics');
  const { key } = await issue({ scope: 'device', id_device: id });
  const device = await mqtt.connect(key, withoutPassword);
  expect(await device.subscribe('valves/1')).toEqual([128]);
  await acme.api.post(topics, { name: 'valves/#' });
  expect(await device.subscribe('valves/1')).toEqual([1]);
  await acme.api.delete(topics, { name: 'valves/#' });
  await mqtt.broker.recheck();
  await device.publish('valves/1', 'x').catch(() => undefined);
  expect(device.messages).toEqual([]);
  await device.end();
});

it.each([
  ['is revoked', (id: string, _device: string) => acme.api.delete(pathOf('apikeys', id))],
  ['loses its device', (_id: string, device: string) => acme.api.delete(pathOf('devices', device))],
])('a session ends when its key %s', async (_case, end) => {
  const device = await createDevice();
  const { id, key } = await issue({ scope: 'device', id_device: device });
  const client = await mqtt.connect(key, withoutPassword);
  await end(id, device);
  await mqtt.broker.recheck();
  await client.closed();
  mqtt.service.advance(5);
  expect(await mqtt.refusal(key, withoutPassword)).toBe(4);
});
