import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { IClientOptions } from 'mqtt';
import { type GivenDevice, type MqttService, startMqtt } from '../support/mqtt.js';
import { waitUntil } from '../support/process.js';
import { type Api, pathOf } from '../support/service.js';

let mqtt: MqttService;
let acme: Awaited<ReturnType<MqttService['account']>>;
let api: Api;

beforeAll(async () => {
  mqtt = await startMqtt();
  acme = await mqtt.account('acme');
  ({ api } = acme);
});
afterAll(() => mqtt.stop());

type Line = Record<string, unknown> & { message: string };

/** The lines of the log since the last call, with what tests cannot know taken out. */
function takeLines(): Line[] {
  return mqtt.logged.splice(0).map((text) => {
    const [{ count: _, ...fields }, message] = JSON.parse(text);
    return { message, ...fields };
  });
}

async function refuse(username: string | undefined, options: IClientOptions = {}): Promise<Line[]> {
  takeLines();
  expect(await mqtt.refusal(username, { clientId: 'c-1', ...options })).toBeGreaterThan(0);
  await waitUntil(() => mqtt.logged.length > 0);
  return takeLines();
}

const from = { client_id: 'c-1', ip: '127.0.0.1' };
const nameOf = ({ id, username }: GivenDevice) => ({ account: 'acme', device: id, username });
const refused = (reason: string, names: object): object => ({
  message: `MQTT login refused: ${reason}`,
  reason,
  ...names,
});

it('names device, username and reason of a refused login', async () => {
  const device = await acme.device();
  const names = { ...from, ...nameOf(device) };
  expect(await refuse(device.username, { password: 'wrong horse' })).toEqual([refused('password', names)]);
  expect(await refuse(device.username, { password: '' })).toEqual([refused('password', names)]);
  expect(await refuse('nobody')).toEqual([refused('does not exist', { ...from, username: 'nobody' })]);
  expect(await refuse(undefined)).toEqual([refused('no username', from)]);
  const { id_group } = (await api.get(pathOf('devices', device.id))).body;
  await api.put(pathOf('devices', device.id), { enabled: false });
  expect(await refuse(device.username)).toEqual([refused('disabled', names)]);
  const other = await acme.device([], { id_group });
  await api.put(pathOf('groups', id_group), { enabled: false });
  expect(await refuse(other.username)).toEqual([refused('disabled above', { ...from, ...nameOf(other) })]);
  await api.put(pathOf('groups', id_group), { enabled: true });
  expect([...mqtt.refusals]).toEqual(
    expect.arrayContaining([
      ['password', 2],
      ['does not exist', 1],
      ['no username', 1],
      ['disabled', 1],
      ['disabled above', 1],
    ]),
  );
});

it('names a key by its id, and shows no key, be it revoked or a username with a password', async () => {
  const { id, key } = await mqtt.key('acme', 'read');
  const named = { ...from, account: 'acme', key_id: id };
  const lines = [
    await refuse(key, { password: '' }),
    await refuse(key, { password: 'p' }),
    await refuse('m'.repeat(43), { password: '' }),
    await refuse(`${key}x`, { password: 'p' }),
  ];
  expect(lines).toEqual([
    [refused('scope', named)],
    [refused('does not exist', named)],
    [refused('does not exist', from)],
    [refused('does not exist', from)],
  ]);
  const { body } = await api.post('/apikeys/', {
    username: 'bob',
    scope: 'stream',
    expires_at: Math.floor(mqtt.service.now()) + 1,
  });
  mqtt.service.advance(2);
  expect(await refuse(body.details.key, { password: '' })).toEqual([
    refused('expired', { ...from, account: 'acme', key_id: body.details.id }),
  ]);
});

it('names who holds a client id back, and cuts names that clients choose', async () => {
  const [owner, other] = [await acme.device(), await acme.device()];
  const held = await mqtt.connect(owner.username, { clientId: 'c-1' });
  const [line] = await refuse(other.username);
  expect(line).toMatchObject({ message: 'MQTT login refused: client id in use', device: other.id, account: 'acme' });
  await held.end();
  const [long] = await refuse('u'.repeat(30_000).replaceAll('u', 'u '), { clientId: 'c'.repeat(300) });
  expect(JSON.stringify(long).length).toBeLessThan(600);
});

it('names device, client id and topic of refused messages and subscriptions', async () => {
  const device = await acme.device();
  const names = { ...nameOf(device), client_id: 'c-2', ip: '127.0.0.1' };
  const client = await mqtt.connect(device.username, { clientId: 'c-2' });
  takeLines();
  expect(await client.subscribe('other/alarms')).toEqual([128]);
  await client.publish(`${device.id}/streams`, 'no JSON', { qos: 1 });
  await client.publish('other/alarms', 'x', { qos: 1 });
  await client.publish(`${'k'.repeat(43)}/streams`, 'x', { qos: 1 });
  const dropped = 'MQTT message dropped: not_allowed';
  expect(takeLines()).toEqual([
    { message: 'MQTT subscription refused: not allowed', reason: 'not allowed', topic: 'other/alarms', ...names },
    {
      ...{ message: 'MQTT message dropped: invalid payload', topic: `${device.id}/streams` },
      ...{ fault: 'must be a JSON object or array', ...names },
    },
    { message: dropped, topic: 'other/alarms', ...names },
    { message: dropped, topic: '***/streams', ...names },
  ]);
  await api.delete(pathOf('mqttdevices', device.id));
  await mqtt.broker.recheck();
  await client.closed();
  expect(takeLines()).toEqual([
    { message: 'MQTT connection ended: does not exist', reason: 'does not exist', ...names },
  ]);
});

it('shows no key in the topics of a connection that logged in with one', async () => {
  const { id, key } = await mqtt.key('acme', 'stream');
  const client = await mqtt.connect(key, { clientId: `c-3 ${key}`, password: '' });
  takeLines();
  await client.publish('boot-key/other', 'x', { qos: 1 });
  await client.publish(`${key}/streams`, 'x', { qos: 1 });
  const names = { account: 'acme', key_id: id, client_id: 'c-3 ***', ip: '127.0.0.1' };
  expect(takeLines()).toMatchObject([
    { topic: '***/other', ...names },
    { topic: '***/streams', ...names },
  ]);
  await client.end();
});
