import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { AppError } from '../../src/errors.js';
import { replayCompleted } from '../../src/objects/tree/cascade-delete.js';
import { encodeConnect, encodePacket, encodeString, type MqttService, startMqtt } from '../support/mqtt.js';
import { waitUntil } from '../support/process.js';
import { pathOf } from '../support/service.js';

let mqtt: MqttService;
let acme: Awaited<ReturnType<MqttService['account']>>;
let failing = false;

beforeAll(async () => {
  mqtt = await startMqtt(({ record }) => ({
    record: (job) => (failing ? Promise.reject(new AppError('database')) : record(job)),
  }));
  acme = await mqtt.account('acme');
});
afterAll(() => mqtt.stop());

const refused = (reason: string) => mqtt.drops.get(reason) ?? 0;

describe('login (reference/mqtt.md#login)', () => {
  it('is refused with a wrong password, an unknown name and without any (4)', async () => {
    const { username } = await acme.device();
    expect(await mqtt.refusal(username, { password: 'wrong horse' })).toBe(4);
    expect(await mqtt.refusal(username, { password: '' })).toBe(4);
    expect(await mqtt.refusal('nobody')).toBe(4);
    expect(await mqtt.refusal(undefined)).toBe(4);
  });

  it('is refused while the device or anything above it is disabled (5), and granted again after', async () => {
    const { id, username } = await acme.device();
    const { id_group } = (await acme.api.get(pathOf('devices', id))).body;
    const { id_service } = (await acme.api.get(pathOf('groups', id_group))).body;
    for (const path of [pathOf('devices', id), pathOf('groups', id_group), pathOf('services', id_service)]) {
      await acme.api.put(path, { enabled: false });
      expect(await mqtt.refusal(username)).toBe(5);
      await acme.api.put(path, { enabled: true });
    }
    await (await mqtt.connect(username)).end();
  });

  it('is refused to an empty client id that wants to stay (2)', async () => {
    const raw = await mqtt.raw();
    // CONNECT, MQTT 3.1.1, clean session off, client id of length 0
    raw.socket.write(Buffer.from([0x10, 12, 0, 4, 0x4d, 0x51, 0x54, 0x54, 4, 0, 0, 60, 0, 0]));
    expect([...(await raw.bytes(4))]).toEqual([0x20, 2, 0, 2]);
    await raw.closed;
  });

  it('works over a WebSocket too (MQTT-4.2.0-1)', async () => {
    const { id, username } = await acme.device();
    const device = await mqtt.connect(username, { url: mqtt.ws });
    await device.publish(`${id}/streams`, { data: { t: 1 } });
    expect(await mqtt.stored(id)).toEqual([{ t: 1 }]);
    await device.end();
  });
});

describe('a publish to a stream topic (reference/mqtt.md#publishing)', () => {
  it('is stored at the moment of its acknowledgement: GET shows it', async () => {
    const { id, username } = await acme.device();
    const device = await mqtt.connect(username);
    for (const qos of [1, 2] as const) {
      for (let count = 0; count < 10; count++) {
        await device.publish(`${id}/streams`, { data: { qos, count } }, { qos });
        const { body } = await acme.api.get(`${pathOf('devices', id, 'streams')}?sort=created_at&max=1000`);
        expect(body.result.map((one: { data: unknown }) => one.data)).toContainEqual({ qos, count });
      }
    }
    expect(await mqtt.stored(id)).toHaveLength(20);
    await device.end();
  });

  it('shows protocol mqtt unless given, the owner of the device, and the kind of the topic', async () => {
    const { id, username } = await acme.device();
    const device = await mqtt.connect(username);
    await device.publish(`${id}/streams`, { data: { a: 1 }, at: 1000.5 });
    await device.publish(`${id}/status`, { data: { b: 1 }, protocol: 'v2', at: '1970-01-01T01:33:20+01:00' });
    const { body } = await acme.api.get(`${pathOf('devices', id, 'streams')}?sort=at`);
    const id_developer = expect.stringMatching(/^[0-9a-f]{64}@acme$/);
    const common = { id_developer, device: id, owner: 'alice', updater: 'alice', created_at: expect.any(Number) };
    expect(body.result).toEqual([
      { ...common, _t: 'str', protocol: 'mqtt', at: 1000.5, data: { a: 1 } },
      { ...common, _t: 'sta', protocol: 'v2', at: 2000, data: { b: 1 } },
    ]);
    expect((await acme.api.get(pathOf('devices', id))).body.status).toBe('ok');
    await device.end();
  });

  it('takes an array, all or nothing, and bare data', async () => {
    const { id, username } = await acme.device();
    const device = await mqtt.connect(username);
    await device.publish(`${id}/streams`, [{ data: { n: 1 } }, { data: { n: 2 } }]);
    await device.publish(`${id}/streams`, { temperature: 21.5, at: 'the window' });
    await device.publish(`${id}/streams`, [{ data: { n: 3 } }, { data: 4 }]);
    expect(await mqtt.stored(id)).toEqual([{ n: 1 }, { n: 2 }, { temperature: 21.5, at: 'the window' }]);
    await device.end();
  });

  it('that does not validate is acknowledged, counted, neither stored nor delivered, and leaves the connection open', async () => {
    const { id, username } = await acme.device();
    const device = await mqtt.connect(username);
    await device.subscribe(`${id}/streams`);
    const before = refused('invalid');
    const wrong = [
      'no json',
      '',
      '7',
      '"text"',
      '[]',
      '{"data":1}',
      '{"data":null}',
      '{"data":{},"at":"soon"}',
      '{"data":{},"unknown":1}',
      `{"data":{},"checksum":"${'0'.repeat(40)}"}`,
      JSON.stringify({ data: { long: 'x'.repeat(65_536) } }),
      `${'['.repeat(40)}${']'.repeat(40)}`,
      Buffer.from([0x7b, 0xff, 0x7d]),
    ];
    for (const payload of wrong) await device.publish(`${id}/streams`, payload);
    expect(refused('invalid') - before).toBe(wrong.length);
    await device.publish(`${id}/streams`, { data: { good: true } });
    expect((await device.received(1)).map(({ text }) => text)).toEqual(['{"data":{"good":true}}']);
    expect(await mqtt.stored(id)).toEqual([{ good: true }]);
    await device.end();
  });

  it('takes the kind from the topic, whatever `_t` the payload has', async () => {
    const { id, username } = await acme.device();
    const device = await mqtt.connect(username);
    const before = refused('invalid');
    await device.publish(`${id}/streams`, { data: { n: 1 }, _t: 'sta', at: 1 });
    await device.publish(`${id}/status`, { data: { n: 2 }, _t: 'str', at: 2 });
    await device.publish(`${id}/streams`, { data: { n: 3 }, _t: 7, at: 3 });
    await device.publish(`${id}/status`, [
      { data: { n: 4 }, _t: null, at: 4 },
      { data: { n: 5 }, _t: 'nonsense', at: 5 },
    ]);
    await device.publish(`${id}/streams`, { _t: 'sta', temperature: 6 });
    expect(refused('invalid')).toBe(before);
    const { body } = await acme.api.get(`${pathOf('devices', id, 'streams')}?sort=at`);
    expect(body.result.map(({ _t, data }: { _t: string; data: object }) => [_t, data])).toEqual([
      ['str', { n: 1 }],
      ['sta', { n: 2 }],
      ['str', { n: 3 }],
      ['sta', { n: 4 }],
      ['sta', { n: 5 }],
      ['str', { _t: 'sta', temperature: 6 }],
    ]);
    await device.end();
  });

  it.each([
    ['payload', 'no json', 'must be a JSON object or array'],
    ['payload', '[]', 'must be 1 to 1000'],
    ['payload', '[{"data":{}},7]', 'must be an object'],
    ['data', '{"data":1}', 'must be an object'],
    ['data', '[{"data":{}},{"data":{"a":"\\u0000"}}]', 'must hold well-formed text without NUL'],
    ['at', '{"data":{},"at":"soon"}', undefined],
    ['checksum', '{"data":{},"checksum":"zz"}', 'must be 40 hexadecimal digits'],
    ['unknown', '{"data":{},"toString":1}', 'unknown field'],
    ['unknown', '{"data":{},"secret-name-of-a-client":1}', 'unknown field'],
  ])('names the field %s of the dropped payload %s in metric and log', async (field, payload, fault) => {
    const { id, username } = await acme.device();
    const device = await mqtt.connect(username);
    const before = mqtt.droppedFields.get(field) ?? 0;
    await device.publish(`${id}/streams`, payload);
    expect(mqtt.droppedFields.get(field)).toBe(before + 1);
    const line = mqtt.logged.find((each) => each.includes(id)) ?? '';
    const [fields, message] = JSON.parse(line);
    expect(message).toBe(`MQTT message dropped: invalid ${field}`);
    expect(fields).toMatchObject({ account: 'acme', device: id, ...(fault !== undefined && { fault }) });
    expect(line).not.toContain('secret-name-of-a-client');
    await device.end();
  });

  it('holds as many JSON values as a body: 5,000 in data, 50,000 in all', async () => {
    const { id, username } = await acme.device();
    const device = await mqtt.connect(username);
    const list = (length: number) => ({ list: Array(length).fill(0) });
    const droppedFor = (field: string) => mqtt.droppedFields.get(field) ?? 0;
    const before = { payload: droppedFor('payload'), data: droppedFor('data') };
    await device.publish(`${id}/streams`, { data: list(4_998) });
    await device.publish(`${id}/streams`, Array(9).fill({ data: list(4_998) }));
    expect(await mqtt.stored(id)).toEqual(Array(10).fill(list(4_998)));
    await device.publish(`${id}/streams`, { data: list(4_999) });
    expect(droppedFor('data')).toBe(before.data + 1);
    await device.publish(`${id}/streams`, Array(10).fill({ data: list(4_998) }));
    expect(droppedFor('payload')).toBe(before.payload + 1);
    expect(await mqtt.stored(id)).toHaveLength(10);
    await device.end();
  });

  it('goes with a percent-encoded id, a $ at its beginning too, and with no other spelling', async () => {
    const encoded = '%24a%2Fb%2Bc%23d%25e 100%25$@acme';
    const { id, username } = await acme.device([`${encoded}/valve`], { name: '$a/b+c#d%e 100%$' });
    expect(id).toBe('$a/b+c#d%e 100%$@acme');
    const device = await mqtt.connect(username);
    const topics = ['streams', 'status', 'commands', 'state/desired', 'valve'].map((end) => `${encoded}/${end}`);
    expect(await device.subscribe(topics)).toEqual(topics.map(() => 1));
    await device.publish(`${encoded}/streams`, { data: { n: 1 } });
    const others = [encoded.toLowerCase(), encodeURIComponent(id), encoded.replace('%24', '$')];
    expect(await device.subscribe(others.map((first) => `${first}/streams`))).toEqual([128, 128, 128]);
    for (const first of others) await device.publish(`${first}/streams`, { data: { n: 2 } });
    await device.publish(`${encoded}/state/reported`, { led: true });
    await acme.api.post(pathOf('devices', id, 'commands'), { name: 'restart' });
    const ends = (await device.received(2)).map(({ topic }) => topic.slice(encoded.length));
    expect(ends.sort()).toEqual(['/commands', '/streams']);
    expect(await mqtt.stored(id)).toEqual([{ n: 1 }]);
    expect((await acme.api.get(pathOf('devices', id, 'state'))).body.reported).toEqual({ led: true });
    await device.end();
  });

  it('for another device is refused, unless an own topic covers it: then it is that device’s stream', async () => {
    const meter = await acme.device();
    const gateway = await acme.device([`${meter.id}/#`, 'nobody@acme/+']);
    const other = await acme.device();
    const device = await mqtt.connect(gateway.username);
    const [invalid, denied] = [refused('invalid'), refused('not_allowed')];
    await device.publish(`${meter.id}/streams`, { data: { n: 1 } });
    await device.publish(`${other.id}/streams`, { data: { n: 2 } });
    await device.publish('nobody@acme/status', { data: { n: 3 } });
    expect(await mqtt.stored(meter.id)).toEqual([{ n: 1 }]);
    expect(await mqtt.stored(other.id)).toEqual([]);
    expect(await mqtt.stored(gateway.id)).toEqual([]);
    expect([refused('invalid') - invalid, refused('not_allowed') - denied]).toEqual([1, 1]);
    await device.end();
  });

  it('checks the checksum of the device it is for', async () => {
    const { id, username } = await acme.device([], { checksum: 'k'.repeat(40) });
    const device = await mqtt.connect(username);
    await device.publish(`${id}/streams`, { data: { n: 1 }, protocol: 'v3' });
    await device.publish(`${id}/streams`, { data: { n: 2 } });
    expect(await mqtt.stored(id)).toEqual([{ n: 2 }]);
    await device.end();
  });

  it('belongs to the account after the last @, dots and upper case included', async () => {
    const accounts = await Promise.all(['Acme.Acme', 'Acme', 'acme.acme'].map((name) => mqtt.account(name)));
    const devices = await Promise.all(accounts.map(({ device }) => device([], { name: 'pump@x' })));
    expect(devices.map(({ id }) => id)).toEqual(['pump@x@Acme.Acme', 'pump@x@Acme', 'pump@x@acme.acme']);
    const clients = await Promise.all(devices.map(({ username }) => mqtt.connect(username)));
    for (const [index, client] of clients.entries()) {
      await client.subscribe(`${devices[index]?.id}/streams`);
      for (const { id } of devices) await client.publish(`${id}/streams`, { data: { from: index } });
    }
    for (const [index, client] of clients.entries()) {
      expect(await mqtt.stored(devices[index]?.id ?? '')).toEqual([{ from: index }]);
      expect((await client.received(1)).map(({ text }) => text)).toEqual([`{"data":{"from":${index}}}`]);
      await client.end();
    }
  });

  it('ignores a blank checksum, and any checksum with protocol v1 or v2', async () => {
    const { id, username } = await acme.device([], { checksum: 'k'.repeat(40) });
    const device = await mqtt.connect(username);
    const before = refused('invalid');
    await device.publish(`${id}/streams`, { data: { n: 1 }, checksum: '' });
    await device.publish(`${id}/status`, { data: { n: 2 }, checksum: null });
    await device.publish(`${id}/streams`, { data: { n: 3 }, protocol: 'v1', checksum: 7 });
    await device.publish(`${id}/streams`, { data: { n: 4 }, protocol: 'v2', checksum: '0'.repeat(40) });
    expect(refused('invalid')).toBe(before);
    await device.publish(`${id}/streams`, { data: { n: 5 }, protocol: 'v3', checksum: '' });
    expect(refused('invalid')).toBe(before + 1);
    expect((await mqtt.stored(id)).map((data) => (data as { n: number }).n).sort()).toEqual([1, 2, 3, 4]);
    await device.end();
  });

  it('at QoS 2 sent again under its id is stored once', async () => {
    const { id, username } = await acme.device();
    const raw = await mqtt.raw();
    raw.socket.write(encodeConnect({ username, clientId: 'twice' }));
    await raw.bytes(4);
    const publish = (flags: number) =>
      encodePacket(0x30 | flags, encodeString(`${id}/streams`), Buffer.from([0, 7]), Buffer.from('{"data":{"n":1}}'));
    raw.socket.write(publish(0x04));
    await raw.bytes(8);
    raw.socket.write(publish(0x0c));
    expect([...(await raw.bytes(12)).subarray(4)]).toEqual([0x50, 2, 0, 7, 0x50, 2, 0, 7]);
    expect(await mqtt.stored(id)).toEqual([{ n: 1 }]);
    raw.socket.destroy();
  });

  it('is not acknowledged while the database fails: the connection closes and the client’s next try is stored', async () => {
    const { id, username } = await acme.device();
    for (const qos of [1, 2] as const) {
      const device = await mqtt.connect(username, { reconnectPeriod: 50, clientId: `retry-${qos}`, clean: false });
      const before = refused('database');
      failing = true;
      const sent = device.publish(`${id}/streams`, { data: { qos } }, { qos });
      await device.closed();
      expect(refused('database')).toBeGreaterThan(before);
      failing = false;
      await sent;
      expect(await mqtt.stored(id)).toContainEqual({ qos });
      await device.end();
    }
    expect(await mqtt.stored(id)).toHaveLength(2);
  });

  it('at QoS 0 is dropped while the database fails, and the connection stays', async () => {
    const { id, username } = await acme.device();
    const device = await mqtt.connect(username);
    const before = refused('database');
    failing = true;
    await device.publish(`${id}/streams`, { data: { n: 1 } }, { qos: 0 });
    await waitUntil(() => refused('database') > before);
    failing = false;
    await device.publish(`${id}/streams`, { data: { n: 2 } }, { qos: 1 });
    expect(await mqtt.stored(id)).toEqual([{ n: 2 }]);
    await device.end();
  });

  it('keeps the order of a client’s messages (MQTT-4.6.0-5, MQTT-4.6.0-6)', async () => {
    const { id, username } = await acme.device(['plain']);
    const device = await mqtt.connect(username);
    await device.subscribe([`${id}/streams`, 'plain']);
    const sent = Array.from({ length: 200 }, (_, n) => (n % 3 === 0 ? 'plain' : `${id}/streams`));
    await Promise.all(sent.map((topic, n) => device.publish(topic, { data: { n } })));
    const got = await device.received(200);
    expect(got.map(({ text }) => JSON.parse(text).data.n)).toEqual(sent.map((_, n) => n));
    await device.end();
  });
});

describe('a client that leaves at once', () => {
  const disconnect = Buffer.from([0xe0, 0]);
  const publish = (topic: string, n: number, qos: 0 | 1 | 2, retain = 0) => {
    const packet_id = Buffer.from(qos === 0 ? [] : [0, qos]);
    return encodePacket(0x30 | (qos << 1) | retain, encodeString(topic), packet_id, Buffer.from(`{"data":{"n":${n}}}`));
  };

  it.each([
    ['before its login is checked', false, []],
    ['before its login is checked, with DISCONNECT', false, [disconnect]],
    ['after its login', true, []],
    ['after its login, with DISCONNECT', true, [disconnect]],
  ])('%s, is heard: stored, acknowledged, retained, delivered', async (_when, isLoggedIn, goodbye) => {
    const { id, username } = await (await mqtt.account('leaving')).device();
    const watcher = await mqtt.connect(username);
    await watcher.subscribe(`${id}/streams`);
    const raw = await mqtt.raw();
    raw.socket.write(encodeConnect({ username, clientId: id }));
    if (isLoggedIn) await raw.bytes(4);
    const packets = ([0, 1, 2] as const).map((qos) => publish(`${id}/streams`, qos, qos, qos === 0 ? 1 : 0));
    raw.socket.end(Buffer.concat([...packets, ...goodbye]));
    // messages of different QoS have no order
    expect((await watcher.received(3)).map(({ text }) => JSON.parse(text).data.n).sort()).toEqual([0, 1, 2]);
    await raw.closed;
    expect(raw.received().includes(Buffer.from([0x40, 2, 0, 1]))).toBe(true);
    expect(await mqtt.stored(id)).toEqual([{ n: 0 }, { n: 1 }, { n: 2 }]);
    const late = await mqtt.connect(username, { clientId: 'late' });
    await late.subscribe(`${id}/streams`);
    expect((await late.received(1)).map(({ text }) => text)).toEqual(['{"data":{"n":0}}']);
    for (const one of [watcher, late]) await one.end();
  });

  it('by a reset before its login is checked is heard', async () => {
    const { id, username } = await (await mqtt.account('leaving')).device();
    const watcher = await mqtt.connect(username);
    await watcher.subscribe(`${id}/streams`);
    const raw = await mqtt.raw();
    const packets = ([0, 1, 2] as const).map((qos) => publish(`${id}/streams`, qos, qos));
    const connect = encodeConnect({ username, clientId: id, clean: false });
    raw.socket.write(Buffer.concat([connect, ...packets]), () => raw.socket.resetAndDestroy());
    expect((await watcher.received(3)).map(({ text }) => JSON.parse(text).data.n).sort()).toEqual([0, 1, 2]);
    expect(await mqtt.stored(id)).toEqual([{ n: 0 }, { n: 1 }, { n: 2 }]);
    await watcher.end();
    await waitUntil(() => mqtt.connections() === 0);
  });

  it('is heard to the end, though it sends more at once than is read before its login is checked', async () => {
    const { id, username } = await (await mqtt.account('leaving')).device(['many/#']);
    const raw = await mqtt.raw();
    const topics = Array.from({ length: 9000 }, (_, n) => `many/${n}`);
    const packets = topics.map((topic) => encodePacket(0x31, encodeString(topic), Buffer.from('x')));
    raw.socket.end(Buffer.concat([encodeConnect({ username, clientId: id }), ...packets]));
    await raw.closed;
    const retained = mqtt.service.db.collection('mqtt_retained');
    expect(await retained.countDocuments({ _id: /^leaving many\// as never })).toBe(9000);
  });

  it('and is refused has its messages counted', async () => {
    const { id, username } = await acme.device();
    const before = refused('not_allowed');
    const raw = await mqtt.raw();
    raw.socket.write(encodeConnect({ username, clientId: 'leaves', secret: 'wrong horse' }));
    raw.socket.end(Buffer.concat([publish(`${id}/streams`, 0, 0), publish(`${id}/streams`, 1, 1), disconnect]));
    await raw.closed;
    expect(refused('not_allowed') - before).toBe(2);
    expect(await mqtt.stored(id)).toEqual([]);
  });
});

describe('an API key as username (reference/mqtt.md#api-key-login)', () => {
  it('publishes to its two topics, naming devices; subscribers get it under the devices’ topics', async () => {
    const [one, two] = [await acme.device(), await acme.device()];
    const watcher = await mqtt.connect((await acme.device(['#'])).username);
    expect(await watcher.subscribe('#')).toEqual([1]);
    const { key } = await mqtt.key('acme', 'stream');
    const sender = await mqtt.connect(key, { password: '' });
    await sender.publish(`${key}/streams`, { device: one.id, data: { n: 1 } }, { retain: true });
    await sender.publish(`${key}/status`, [
      { device: one.id, data: { n: 2 } },
      { device: two.id, data: { n: 3 } },
    ]);
    expect(await mqtt.stored(one.id)).toEqual([{ n: 1 }, { n: 2 }]);
    expect(await mqtt.stored(two.id)).toEqual([{ n: 3 }]);
    expect(await watcher.received(3)).toEqual([
      { topic: `${one.id}/streams`, text: '{"data":{"n":1}}', retain: false },
      { topic: `${one.id}/status`, text: '{"data":{"n":2}}', retain: false },
      { topic: `${two.id}/status`, text: '{"data":{"n":3}}', retain: false },
    ]);
    await sender.end();
    await watcher.end();
  });

  it('opens nothing else: no other topic, no subscription, nothing of another account', async () => {
    const device = await acme.device();
    const foreign = await (await mqtt.account('other')).device();
    const { key } = await mqtt.key('acme', 'write');
    const other = await mqtt.key('acme', 'write');
    const sender = await mqtt.connect(key, { password: '' });
    expect(await sender.subscribe([`${key}/streams`, '#', `${device.id}/streams`, `${key}/#`])).toEqual([
      128, 128, 128, 128,
    ]);
    await sender.publish(`${device.id}/streams`, { data: { n: 1 } });
    await sender.publish(`${other.key}/streams`, { device: device.id, data: { n: 2 } });
    await sender.publish(`${key}/streams/more`, { device: device.id, data: { n: 3 } });
    await sender.publish(`${key}/streams`, { data: { n: 4 } });
    await sender.publish(`${key}/streams`, { device: foreign.id, data: { n: 5 } });
    expect(await mqtt.stored(device.id)).toEqual([]);
    expect(await mqtt.stored(foreign.id)).toEqual([]);
    await sender.end();
  });

  it('is refused with scope read (5), unknown, revoked or expired (4)', async () => {
    const reading = await mqtt.key('acme', 'read');
    expect(await mqtt.refusal(reading.key, { password: '' })).toBe(5);
    expect(await mqtt.refusal(`${reading.key}x`, { password: '' })).toBe(4);
    await mqtt.service.db
      .collection('apikeys')
      .updateMany({ id: reading.id }, { $set: { scope: 'write', expires_at: 1 } });
    await mqtt.service.db.collection('apikeys').deleteMany({ id: (await mqtt.key('acme', 'stream')).id });
    await mqtt.keyring.invalidate(reading.id);
    expect(await mqtt.refusal(reading.key, { password: '' })).toBe(4);
  });

  it('never shows up in a log line', async () => {
    const device = await acme.device();
    const { key } = await mqtt.key('acme', 'stream');
    const sender = await mqtt.connect(key, { password: '', clientId: `client-${key}` });
    await sender.publish(`${key}/streams`, 'rubbish');
    await sender.publish(`${key}/other`, 'rubbish');
    await sender.end();
    expect(await mqtt.refusal(key, { password: key })).toBe(4);
    const stranger = await mqtt.connect(device.username);
    await stranger.publish(`${key}/streams`, { device: device.id, data: {} });
    await stranger.end();
    expect(mqtt.logged.length).toBeGreaterThan(0);
    expect(mqtt.logged.join('\n')).not.toContain(key);
    expect(mqtt.logged.join('\n')).not.toContain('rubbish');
  });
});

describe('other topics', () => {
  it('are passed on to those who may have them, and not stored', async () => {
    const sender = await mqtt.connect((await acme.device(['rooms/+/set', '+/status', 'plain/streams'])).username);
    const receiver = await mqtt.connect((await acme.device(['rooms/#', '+/status', 'plain/#'])).username);
    const [before, invalid] = [await mqtt.service.db.collection('streams').countDocuments({}), refused('invalid')];
    const filters = ['rooms/7/+', 'rooms/#', 'rooms/8/set', '+/status', 'plain/streams', '+/7/set'];
    expect(await receiver.subscribe(filters)).toEqual([1, 1, 1, 1, 1, 128]);
    await sender.publish('rooms/7/set', 'on');
    await sender.publish('rooms/7/other', 'not mine');
    await sender.publish('rooms/9/set', 'off');
    // without @ the first level is no identifier
    await sender.publish('homeassistant/status', 'online');
    await sender.publish('plain/streams', { data: { n: 1 } });
    const texts = (await receiver.received(4)).map(({ text }) => text);
    expect(new Set(texts)).toEqual(new Set(['on', 'off', 'online', '{"data":{"n":1}}']));
    expect(await mqtt.service.db.collection('streams').countDocuments({})).toBe(before);
    expect(refused('invalid')).toBe(invalid);
    await sender.end();
    await receiver.end();
  });

  it('keeps no retained message of a deleted device for another one with its identifier', async () => {
    const replacing = await mqtt.account('replacing');
    const { id, username } = await replacing.device(['kept'], { name: 'replaced' });
    const gateway = await mqtt.connect((await replacing.device(['#'])).username);
    const device = await mqtt.connect(username);
    const own = ['streams', 'status', 'state/reported'].map((end) => `${id}/${end}`);
    for (const topic of [...own, 'kept']) await device.publish(topic, { data: { n: 1 } }, { retain: true });
    await device.end();
    const retained = async () => {
      const query = { _id: /^replacing / as never };
      const found = await mqtt.service.db
        .collection('mqtt_retained')
        .find(query, { sort: { _id: 1 } })
        .toArray();
      return found.map(({ _id, payload }) => `${_id} ${payload}`);
    };
    expect(await retained()).toHaveLength(4);
    await replacing.api.delete(pathOf('devices', id));
    expect(await retained()).toEqual(['replacing kept {"data":{"n":1}}']);
    const namesake = await replacing.device(['kept'], { name: 'replaced' });
    expect(namesake.id).toBe(id);
    const again = await mqtt.connect(namesake.username);
    await again.subscribe([...own, 'kept']);
    await gateway.subscribe(['+/status', '+/streams', '+/state/reported', 'kept']);
    for (const one of [again, gateway])
      expect(await one.received(1)).toEqual([{ topic: 'kept', text: '{"data":{"n":1}}', retain: true }]);
    await again.publish(`${id}/status`, { data: { n: 2 } }, { retain: true });
    const late = await mqtt.connect(namesake.username, { clientId: 'late' });
    await late.subscribe(own);
    expect((await late.received(1)).map(({ text }) => text)).toEqual(['{"data":{"n":2}}']);
    // the removal is repeated for what was late
    await replayCompleted(mqtt.service.store, Number.POSITIVE_INFINITY);
    expect(await retained()).toEqual(['replacing kept {"data":{"n":1}}', `replacing ${id}/status {"data":{"n":2}}`]);
    for (const one of [again, gateway, late]) await one.end();
  });

  it('keeps retained messages, also of streams, until an empty one takes them away', async () => {
    const { id, username } = await acme.device(['lamp']);
    const device = await mqtt.connect(username);
    await device.publish('lamp', 'on', { retain: true });
    await device.publish(`${id}/status`, { data: { up: true } }, { retain: true });
    const later = await mqtt.connect(username, { clientId: 'later' });
    await later.subscribe(['lamp', `${id}/status`]);
    expect(new Set(await later.received(2))).toEqual(
      new Set([
        { topic: 'lamp', text: 'on', retain: true },
        { topic: `${id}/status`, text: '{"data":{"up":true}}', retain: true },
      ]),
    );
    await device.publish('lamp', '', { retain: true });
    await device.publish(`${id}/status`, '', { retain: true });
    const latest = await mqtt.connect(username, { clientId: 'latest' });
    await latest.subscribe(['lamp', `${id}/status`]);
    await device.publish('lamp', 'mark');
    expect(await latest.received(1)).toEqual([{ topic: 'lamp', text: 'mark', retain: false }]);
    for (const one of [device, later, latest]) await one.end();
  });
});
