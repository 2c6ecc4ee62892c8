import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { summarize } from '../support/expect-status.js';
import { encodeConnect, type MqttService, proxy_address, startMqtt } from '../support/mqtt.js';
import { waitFor, waitUntil } from '../support/process.js';
import type { Api } from '../support/service.js';

let mqtt: MqttService;
let acme: Awaited<ReturnType<MqttService['account']>>;

beforeAll(async () => {
  mqtt = await startMqtt();
  acme = await mqtt.account('acme');
});
afterAll(() => mqtt.stop());

const path = '/mqtt/connections/';
const totalOf = async (api: Api, query = '') => (await api.get(path + query)).body.total_documents;

it('lists the connections of the account, with what they have published and what was dropped', async () => {
  const device = await acme.device(['valves/#']);
  const other = await mqtt.account('other');
  const stranger = await other.device();
  const { key } = await mqtt.key('acme', 'stream');
  const client = await mqtt.connect(device.username, { clientId: 'pump-1' });
  await mqtt.connect(stranger.username, { clientId: 'elsewhere' });
  await mqtt.connect(key, { clientId: 'gateway', password: '' });
  await waitUntil(async () => (await totalOf(acme.api)) === 2);
  const [gateway, pump] = (await acme.api.get(path)).body.result;
  expect(pump).toEqual({
    client_id: 'pump-1',
    device: device.id,
    address: '127.0.0.1',
    connected_at: Math.floor(mqtt.service.now()),
    messages: 0,
    drops: 0,
  });
  expect([gateway.client_id, 'device' in gateway]).toEqual(['gateway', false]);
  await client.publish('valves/1', 'open', { qos: 1 });
  await client.publish('valves/2', 'open', { qos: 1 });
  await client.publish('elsewhere', 'x', { qos: 1 });
  const countsOfPump = async () => (await acme.api.get(`${path}?client_id=pump-1&fields=messages,drops`)).body.result;
  // the broker rechecks by itself too, and may be storing them
  await waitUntil(async () => {
    await mqtt.broker.recheck();
    return (await countsOfPump())[0].messages > 0;
  });
  expect(await countsOfPump()).toEqual([{ messages: 2, drops: 1 }]);
  expect(await totalOf(acme.api, `?device=${encodeURIComponent(device.id)}`)).toBe(1);
  await client.end();
  await waitUntil(async () => (await totalOf(acme.api)) === 1);
});

it('looks clients that log in at the same time up together, and lets each in as itself', async () => {
  const devices = await Promise.all(Array.from({ length: 12 }, (_, index) => acme.device([`own/${index}`])));
  const unknown = devices.map(({ username }) => mqtt.refusal(`${username} of nobody`));
  const wrong = devices.map(({ username }) => mqtt.refusal(username, { password: 'wrong' }));
  const clients = await Promise.all(devices.map(({ username }) => mqtt.connect(username)));
  expect(new Set(await Promise.all([...unknown, ...wrong]))).toEqual(new Set([4]));
  const granted = await Promise.all(
    clients.map(async (client, index) => [
      await client.subscribe(`own/${index}`),
      await client.subscribe(`own/${index + 1}`),
    ]),
  );
  expect(granted).toEqual(clients.map(() => [[1], [128]]));
});

it('ends a connection, of the own account only', async () => {
  const device = await acme.device();
  const client = await mqtt.connect(device.username, { clientId: 'a/b c' });
  await waitUntil(async () => (await totalOf(acme.api, '?client_id=a/b c')) === 1);
  const stranger = await mqtt.service.client({ account: 'stranger' });
  const one = `${path}a%2Fb%20c/`;
  expect(summarize(await stranger.delete(one))).toBe('4041');
  expect(summarize(await acme.api.delete(one))).toBe('2004');
  await mqtt.broker.recheck();
  await client.closed();
  await waitUntil(async () => (await totalOf(acme.api, '?client_id=a/b c')) === 0);
  expect(summarize(await acme.api.delete(one))).toBe('4041');
  // the client may come again
  await mqtt.connect(device.username, { clientId: 'a/b c' });
  await waitUntil(async () => (await totalOf(acme.api, '?client_id=a/b c')) === 1);
});

it('lists the last connection of a client id that is taken over', async () => {
  const device = await acme.device();
  const first = await mqtt.connect(device.username, { clientId: 'twice' });
  const second = await mqtt.connect(device.username, { clientId: 'twice' });
  await first.closed();
  await waitUntil(async () => (await totalOf(acme.api, '?client_id=twice')) === 1);
  await second.end();
  await waitUntil(async () => (await totalOf(acme.api, '?client_id=twice')) === 0);
});

it('shows the client that a trusted proxy names, in connections and refusals', async () => {
  const { username } = await acme.device();
  const addressOf = async (client_id: string) => (await acme.api.get(`${path}?client_id=${client_id}`)).body.result;
  const expectAddress = async (client_id: string, address: string) => {
    const [found] = await waitFor(
      () => addressOf(client_id),
      ({ length }) => length === 1,
    );
    expect(found.address).toBe(address);
  };
  const header = 'PROXY TCP4 192.0.2.7 10.0.0.1 54321 1883\r\n';
  const text = await mqtt.raw(proxy_address);
  text.socket.write(Buffer.concat([Buffer.from(header), encodeConnect({ username, clientId: 'proxied' })]));
  expect([...(await text.bytes(4))]).toEqual([0x20, 2, 0, 0]);
  await expectAddress('proxied', '192.0.2.7');
  const bare = await mqtt.raw(proxy_address);
  bare.socket.write(encodeConnect({ username, clientId: 'bare' }));
  expect([...(await bare.bytes(4))]).toEqual([0x20, 2, 0, 0]);
  await expectAddress('bare', proxy_address);
  const wsOptions = { localAddress: proxy_address, headers: { 'X-Forwarded-For': '198.51.100.9, 192.0.2.8' } };
  await mqtt.connect(username, { url: mqtt.ws, clientId: 'web', wsOptions });
  await expectAddress('web', '192.0.2.8');
  const refused = await mqtt.raw(proxy_address);
  const refusedConnect = encodeConnect({ username: 'nobody', clientId: 'refused' });
  refused.socket.write(Buffer.concat([Buffer.from(header.replace('.7 ', '.9 ')), refusedConnect]));
  expect((await refused.bytes(4))[3]).toBeGreaterThan(0);
  expect(mqtt.logged.join('\n')).toContain('192.0.2.9');
});

it('believes no other address', async () => {
  const { username } = await acme.device();
  const text = await mqtt.raw();
  text.socket.write('PROXY TCP4 192.0.2.7 10.0.0.1 54321 1883\r\n');
  await text.closed;
  expect(text.received()).toHaveLength(0);
  await mqtt.connect(username, {
    url: mqtt.ws,
    clientId: 'direct',
    wsOptions: { headers: { 'X-Forwarded-For': '192.0.2.8' } },
  });
  const found = await waitFor(
    async () => (await acme.api.get(`${path}?client_id=direct`)).body.result,
    ({ length }) => length === 1,
  );
  expect(found[0].address).toBe('127.0.0.1');
});
