import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { AppError } from '../../../src/errors.js';
import { hashPassword } from '../../../src/mqtt/login/passwords.js';
import { createCredentials } from '../../../src/mqtt/store/credentials.js';
import { type MqttService, password, startMqtt } from '../../support/mqtt.js';
import { waitUntil } from '../../support/process.js';
import { pathOf } from '../../support/service.js';

let mqtt: MqttService;
let acme: Awaited<ReturnType<MqttService['account']>>;
let down = false;
let topic_reads = 0;

beforeAll(async () => {
  mqtt = await startMqtt(({ db }) => ({
    database: {
      ...db,
      collection(plural) {
        if (down) throw new AppError('database');
        if (plural === 'mqtttopics') topic_reads++;
        return db.collection(plural);
      },
    },
  }));
  acme = await mqtt.account('acme');
});
afterAll(() => mqtt.stop());

describe('a live connection (reference/mqtt.md#revocation)', () => {
  it.each([
    [
      'changed credentials',
      (one: { credentials: string; username: string }) =>
        acme.api.put(one.credentials, { username: one.username, password: 'another one' }),
      4,
    ],
    ['deleted credentials', (one: { id: string }) => acme.api.delete(pathOf('mqttdevices', one.id)), 4],
    ['its device deleted', (one: { id: string }) => acme.api.delete(pathOf('devices', one.id)), 4],
    ['its device disabled', (one: { id: string }) => acme.api.put(pathOf('devices', one.id), { enabled: false }), 5],
  ] as const)('ends with %s, leaves no will, and does not come back', async (what, change, code) => {
    const device = await acme.device(['wills']);
    const spy = await mqtt.connect((await acme.device(['wills'])).username);
    await spy.subscribe('wills');
    const connected = await mqtt.connect(device.username, {
      will: { topic: 'wills', payload: Buffer.from('will'), qos: 1, retain: false },
    });
    expect((await change(device)).status).toBe(200);
    // one of them waits for what happens by itself
    if (what !== 'changed credentials') await mqtt.broker.recheck();
    await connected.closed();
    expect(await mqtt.refusal(device.username)).toBe(code);
    await spy.publish('wills', 'mark');
    expect((await spy.received(1)).map(({ text }) => text)).toEqual(['mark']);
    await spy.end();
  });

  it('ends when something above its device is disabled, others stay', async () => {
    const [one, other] = [await acme.device(), await acme.device()];
    const group = `${(await acme.api.get(pathOf('devices', one.id))).body.id_group}`;
    const asset = await acme.api.post('/assets/', { name: 'an asset', id_group: group });
    expect(asset.body.code).toBe(2001);
    await acme.api.put(pathOf('devices', one.id), { id_asset: 'an asset@acme' });
    const connected = await mqtt.connect(one.username);
    const stays = await mqtt.connect(other.username);
    await mqtt.broker.recheck();
    expect(connected.client.connected).toBe(true);
    await acme.api.put(pathOf('assets', 'an asset@acme'), { enabled: false });
    await mqtt.broker.recheck();
    await connected.closed();
    expect(stays.client.connected).toBe(true);
    await stays.end();
  });

  it('with a key ends when the key is revoked or expires, others stay', async () => {
    const { api } = acme;
    const [revoked, expired, kept] = [
      await mqtt.key('acme', 'stream'),
      await mqtt.key('acme', 'stream'),
      await mqtt.key('acme', 'stream'),
    ];
    const [one, two, three] = await Promise.all(
      [revoked, expired, kept].map(({ key }) => mqtt.connect(key, { password: '' })),
    );
    expect((await api.delete(pathOf('apikeys', revoked.id))).body.code).toBe(2004);
    await mqtt.service.db.collection('apikeys').updateOne({ id: expired.id }, { $set: { expires_at: 1 } });
    await mqtt.broker.recheck();
    await Promise.all([one?.closed(), two?.closed()]);
    expect(three?.client.connected).toBe(true);
    await three?.end();
  });

  it('loses a topic that is taken away: as sender and as receiver; the rest goes on', async () => {
    const gateway = await acme.device(['taken/#', 'kept/#']);
    const device = await mqtt.connect(gateway.username);
    expect(await device.subscribe(['taken/x', 'kept/x'])).toEqual([1, 1]);
    const sender = await mqtt.connect((await acme.device(['#'])).username);
    await sender.publish('taken/x', '1');
    await device.received(1);
    await acme.api.delete(gateway.topics, { name: 'taken/#' });
    await mqtt.broker.recheck();
    await sender.publish('taken/x', '2');
    const watcher = await mqtt.connect((await acme.device(['#'])).username);
    await watcher.subscribe('#');
    const before = mqtt.drops.get('not_allowed') ?? 0;
    await device.publish('taken/y', '3');
    expect(mqtt.drops.get('not_allowed')).toBe(before + 1);
    await device.publish('kept/x', '4');
    expect((await device.received(2)).map(({ text }) => text)).toEqual(['1', '4']);
    expect((await watcher.received(1)).map(({ text }) => text)).toEqual(['4']);
    expect(await device.subscribe('taken/x')).toEqual([128]);
    for (const one of [device, sender, watcher]) await one.end();
  });

  it('reads topics again only after a change was announced, or after a minute', async () => {
    const given = await acme.device(['stays', 'goes']);
    const device = await mqtt.connect(given.username);
    const readsOf = async (seconds: number) => {
      mqtt.service.advance(seconds);
      await mqtt.broker.recheck();
      topic_reads = 0;
      await mqtt.broker.recheck();
      return topic_reads;
    };
    expect(await readsOf(100)).toBe(0);
    await acme.api.delete(given.topics, { name: 'goes' });
    await mqtt.broker.recheck();
    expect(await device.subscribe(['stays', 'goes'])).toEqual([1, 128]);
    // the change may still be under way
    expect(await readsOf(10)).toBeGreaterThan(0);
    expect(await readsOf(10)).toBe(0);
    // unannounced, by an operator for example
    await mqtt.service.db.collection('mqtttopics').deleteOne({ device: given.id, name: 'stays' });
    mqtt.service.advance(60);
    await mqtt.broker.recheck();
    await device.client.unsubscribeAsync('stays');
    expect(await device.subscribe('stays')).toEqual([128]);
    await device.end();
  });

  it('may use a topic at once when it is given', async () => {
    const given = await acme.device();
    const device = await mqtt.connect(given.username);
    expect(await device.subscribe('new/x')).toEqual([128]);
    await acme.api.post(given.topics, { name: 'new/#' });
    expect(await device.subscribe('new/x')).toEqual([1]);
    await device.publish('new/x', 'hello');
    expect((await device.received(1)).map(({ text }) => text)).toEqual(['hello']);
    await device.end();
  });

  it('frees the client ids of sessions whose credentials are deleted', async () => {
    const [one, other] = [await acme.device(), await acme.device()];
    await (await mqtt.connect(one.username, { clientId: 'orphan', clean: false })).end();
    expect(await mqtt.refusal(other.username, { clientId: 'orphan' })).toBe(2);
    await acme.api.delete(pathOf('mqttdevices', one.id));
    // the session may still be on its way to the database
    await waitUntil(async () => {
      await mqtt.broker.recheck();
      return (await mqtt.refusal(other.username, { clientId: 'orphan' })) === 0;
    });
  });
});

describe('without the database', () => {
  it('nobody is let in (3), no subscription is newly granted, no stream acknowledged', async () => {
    const { id, username } = await acme.device();
    const { key } = await mqtt.key('acme', 'stream');
    const device = await mqtt.connect(username);
    down = true;
    try {
      expect(await mqtt.refusal(username)).toBe(3);
      expect(await mqtt.refusal(key, { password: '' })).toBe(3);
      expect(await device.subscribe('unknown/x')).toEqual([128]);
      await device.publish('unknown/x', 'x', { qos: 0 });
      void device.publish('unknown/x', 'x').catch(() => undefined);
      await device.closed();
    } finally {
      down = false;
    }
    expect(await mqtt.stored(id)).toEqual([]);
  });

  it('nothing is allowed any more after 5 s, not even what was a moment ago; it comes back with the database', async () => {
    const { username } = await acme.device(['plain']);
    const sender = await mqtt.connect(username, { clientId: 'sender' });
    const receiver = await mqtt.connect(username, { clientId: 'receiver' });
    await receiver.subscribe('plain');
    await sender.publish('plain', 'before');
    await receiver.received(1);
    const before = mqtt.drops.get('database') ?? 0;
    down = true;
    await new Promise((resolve) => setTimeout(resolve, 5100));
    await sender.publish('plain', 'meanwhile', { qos: 0 });
    await waitUntil(() => (mqtt.drops.get('database') ?? 0) > before);
    expect(await receiver.subscribe('plain')).toEqual([128]);
    down = false;
    await sender.publish('plain', 'after');
    expect((await receiver.received(2)).map(({ text }) => text)).toEqual(['before', 'after']);
    await sender.end();
    await receiver.end();
  });

  it('a command that is queued when the database is back is not lost, as permissions are read again before', async () => {
    const { id, username } = await acme.device();
    const device = await mqtt.connect(username);
    await device.subscribe(`${id}/commands`);
    const queue = (name: string) => acme.api.post(pathOf('devices', id, 'commands'), { name });
    await queue('before');
    await device.received(1);
    down = true;
    await new Promise((resolve) => setTimeout(resolve, 5100));
    down = false;
    await queue('after');
    expect((await device.received(2)).map(({ text }) => JSON.parse(text).name)).toEqual(['before', 'after']);
    await device.end();
  });
});

describe('a storm', () => {
  it('of 300 devices that come back at once: all are in, and every one is heard', async () => {
    const { db, store } = mqtt.service;
    const hash = await hashPassword(password);
    const id_group = (await acme.api.get(pathOf('devices', (await acme.device()).id))).body.id_group;
    const ids = await Promise.all(
      Array.from({ length: 300 }, async (_, n) => {
        const { body } = await acme.api.post('/devices/', { name: `storm ${n}`, type: 'x', id_group });
        expect(body.code).toBe(2001);
        const id = `storm ${n}@acme`;
        return { id, username: id };
      }),
    );
    // one hash for all: making them is not what this is about
    const ctx = { store, account: 'acme', limit: undefined, user: 'alice', now: 1000, request_id: 'test' };
    for (const { id, username } of ids) await createCredentials(ctx, id, { username, hash });
    const open = () => Promise.all(ids.map(({ username }) => mqtt.connect(username)));
    const first = await open();
    await mqtt.broker.recheck();
    await Promise.all(first.map((one) => one.end()));
    const again = await open();
    await Promise.all(again.map((one, n) => one.publish(`${ids[n]?.id}/status`, { n })));
    expect(await db.collection('streams').countDocuments({ '_id.device': { $in: ids.map(({ id }) => id) } })).toBe(300);
    await mqtt.broker.recheck();
    expect(again.filter(({ client }) => client.connected)).toHaveLength(300);
    await Promise.all(again.map((one) => one.end()));
  });
});

describe('closing', () => {
  it('acknowledges what is being stored, leaves no wills, and closes all connections', async () => {
    const own = await startMqtt();
    try {
      const account = await own.account('acme');
      const { id, username } = await account.device();
      const device = await own.connect(username, {
        will: { topic: `${id}/status`, payload: Buffer.from('{"data":{"will":1}}'), qos: 1, retain: false },
      });
      const acknowledged: number[] = [];
      for (let n = 0; n < 50; n++)
        void device.publish(`${id}/streams`, { data: { n } }).then(
          () => acknowledged.push(n),
          () => undefined,
        );
      await waitUntil(() => acknowledged.length > 0);
      await own.broker.close();
      await device.closed();
      const stored = await own.stored(id);
      for (const n of acknowledged) expect(stored).toContainEqual({ n });
      expect(stored).not.toContainEqual({ will: 1 });
    } finally {
      await own.stop();
    }
  });
});
