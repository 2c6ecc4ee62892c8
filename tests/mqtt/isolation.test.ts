import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { type MqttService, startMqtt } from '../support/mqtt.js';
import { waitUntil } from '../support/process.js';
import { pathOf } from '../support/service.js';
import { wordsOf } from '../support/words.js';

let mqtt: MqttService;
let acme: Awaited<ReturnType<MqttService['account']>>;
let rival: Awaited<ReturnType<MqttService['account']>>;

beforeAll(async () => {
  mqtt = await startMqtt();
  acme = await mqtt.account('acme');
  rival = await mqtt.account('rival');
});
afterAll(() => mqtt.stop());

describe('another account (reference/mqtt.md#broker)', () => {
  it('sees nothing with # and +/#, live, retained or in its own names for topics', async () => {
    const ours = await acme.device(['#']);
    const theirs = await rival.device(['#']);
    const spy = await mqtt.connect(theirs.username, { clientId: 'spy' });
    expect(await spy.subscribe(['#', '+/#', '+/+', `${ours.id}/#`, 'shared'])).toEqual([1, 1, 1, 1, 1]);
    const device = await mqtt.connect(ours.username);
    await device.publish(`${ours.id}/streams`, { data: { n: 1 } }, { retain: true });
    await device.publish('shared', 'secret', { retain: true });
    const late = await mqtt.connect(theirs.username, { clientId: 'late' });
    await late.subscribe('#');
    await spy.publish('shared', 'own');
    expect((await late.received(1)).map(({ text }) => text)).toEqual(['own']);
    for (const topic of [`${ours.id}/streams`, 'shared']) await device.publish(topic, '', { retain: true });
    expect((await spy.received(1)).map(({ text }) => text)).toEqual(['own']);
    for (const one of [spy, device, late]) await one.end();
  });

  it('stores nothing for a device of ours, by publish, will or array', async () => {
    const ours = await acme.device();
    const theirs = await rival.device(['#']);
    const spy = await mqtt.connect(theirs.username, {
      will: { topic: `${ours.id}/status`, payload: Buffer.from('{"data":{"will":1}}'), qos: 1, retain: true },
    });
    const watcher = await mqtt.connect(ours.username);
    await watcher.subscribe([`${ours.id}/streams`, `${ours.id}/status`]);
    await spy.publish(`${ours.id}/streams`, { data: { n: 1 } });
    await spy.publish(`${ours.id}/streams`, [{ data: { n: 2 } }], { qos: 2, retain: true });
    const before = mqtt.drops.get('invalid') ?? 0;
    spy.client.stream.destroy();
    await waitUntil(() => (mqtt.drops.get('invalid') ?? 0) > before);
    await watcher.publish(`${ours.id}/status`, { data: { mark: 1 } });
    expect((await watcher.received(1)).map(({ text }) => text)).toEqual(['{"data":{"mark":1}}']);
    expect(await mqtt.stored(ours.id)).toEqual([{ mark: 1 }]);
    await watcher.end();
  });

  it('uses the same client ids independently', async () => {
    const ours = await mqtt.connect((await acme.device(['x'])).username, { clientId: 'same', clean: false });
    const theirs = await mqtt.connect((await rival.device(['x'])).username, { clientId: 'same', clean: false });
    await ours.subscribe('x');
    await theirs.subscribe('x');
    await theirs.publish('x', 'theirs');
    await ours.publish('x', 'ours');
    expect((await ours.received(1)).map(({ text }) => text)).toEqual(['ours']);
    expect((await theirs.received(1)).map(({ text }) => text)).toEqual(['theirs']);
    expect([ours.client.connected, theirs.client.connected]).toEqual([true, true]);
    await ours.end();
    await theirs.end();
  });
});

describe('a subscription (reference/mqtt.md#permissions)', () => {
  it('is granted only if it is wholly covered, and never for $ topics or shared ones', async () => {
    const { id, username } = await acme.device(['rooms/+/set', 'all/#']);
    const device = await mqtt.connect(username);
    const granted = [`${id}/streams`, `${id}/status`, 'rooms/7/set', 'rooms/+/set', 'all', 'all/#', 'all/+/x'];
    const denied = [
      ...wordsOf('# + +/# +/streams rooms/# rooms/+/+ $SYS/# $SYS/+/new/clients $share/group/all/#'),
      `${id}/#`,
      `${id}/+`,
      `$share/group/${id}/streams`,
    ];
    expect(await device.subscribe([...granted, ...denied])).toEqual([
      ...granted.map(() => 1),
      ...denied.map(() => 128),
    ]);
    const all = await mqtt.connect((await acme.device(['#'])).username);
    expect(await all.subscribe(['#', '$SYS/#', '$share/g/#', '$share/g/x'])).toEqual([1, 128, 128, 128]);
    await all.publish('$SYS/x', 'no');
    await all.publish('$share/g/x', 'no');
    await all.publish('mark', 'mark');
    expect((await all.received(1)).map(({ text }) => text)).toEqual(['mark']);
    await device.end();
    await all.end();
  });

  it('is limited to 200 per connection', async () => {
    const device = await mqtt.connect((await acme.device(['#'])).username);
    const filters = Array.from({ length: 250 }, (_, n) => `f/${n}`);
    const granted = await device.subscribe(filters);
    expect(granted.filter((qos) => qos === 1)).toHaveLength(200);
    expect(await device.subscribe('f/0')).toEqual([1]);
    await device.client.unsubscribeAsync(filters.slice(0, 10));
    expect(await device.subscribe(filters.slice(240))).toEqual(Array(10).fill(1));
    await device.end();
  });
});

describe('a persistent session (reference/mqtt.md#sessions)', () => {
  it('gets after its return what was sent meanwhile, and nothing that it was refused', async () => {
    const { id, username } = await acme.device(['mine/#']);
    const options = { clientId: 'stays', clean: false };
    const device = await mqtt.connect(username, options);
    expect(await device.subscribe(['mine/+', '#', '+/#', 'others/x', '$share/g/mine/x'])).toEqual([
      1, 128, 128, 128, 128,
    ]);
    await device.end();
    const sender = await mqtt.connect((await acme.device(['#'])).username);
    await sender.publish('others/x', 'not for it');
    await sender.publish(`${id}/streams`, { data: { n: 1 } });
    await sender.publish('mine/x', 'for it');
    const back = await mqtt.connect(username, options);
    expect((await back.received(1)).map(({ text }) => text)).toEqual(['for it']);
    await sender.publish('others/x', 'not for it');
    await sender.publish('mine/y', 'live');
    expect((await back.received(2)).map(({ text }) => text)).toEqual(['for it', 'live']);
    await back.end();
    await sender.end();
  });

  it('does not get what waited for it, once the topic is taken away', async () => {
    const { username, topics } = await acme.device(['taken', 'kept']);
    const options = { clientId: 'loses', clean: false };
    const device = await mqtt.connect(username, options);
    await device.subscribe(['taken', 'kept']);
    await device.end();
    const sender = await mqtt.connect((await acme.device(['#'])).username);
    await sender.publish('taken', 'no');
    await sender.publish('kept', 'yes');
    await acme.api.delete(topics, { name: 'taken' });
    const back = await mqtt.connect(username, options);
    await sender.publish('taken', 'no');
    await sender.publish('kept', 'yes too');
    expect((await back.received(2)).map(({ text }) => text)).toEqual(['yes', 'yes too']);
    await back.end();
    await sender.end();
  });

  it('with clean session starts anew', async () => {
    const { username } = await acme.device(['x']);
    const first = await mqtt.connect(username, { clientId: 'anew', clean: false });
    await first.subscribe('x');
    await first.end();
    const sender = await mqtt.connect((await acme.device(['x'])).username);
    await sender.publish('x', 'lost');
    await (await mqtt.connect(username, { clientId: 'anew', clean: true })).end();
    const back = await mqtt.connect(username, { clientId: 'anew', clean: false });
    await sender.publish('x', 'lost too');
    await back.subscribe('x');
    await sender.publish('x', 'heard');
    expect((await back.received(1)).map(({ text }) => text)).toEqual(['heard']);
    await back.end();
    await sender.end();
  });

  it('keeps at most 1000 messages, and ten sessions per credentials', async () => {
    const { username } = await acme.device(['flood']);
    const device = await mqtt.connect(username, { clientId: 'bounded', clean: false });
    await device.subscribe('flood');
    await device.end();
    const sender = await mqtt.connect((await acme.device(['flood'])).username);
    await Promise.all(Array.from({ length: 1100 }, (_, n) => sender.publish('flood', String(n))));
    await waitUntil(() => mqtt.drops.get('queue_full') === 100);
    const back = await mqtt.connect(username, { clientId: 'bounded', clean: false });
    expect((await back.received(1000)).at(-1)?.text).toBe('999');
    await back.end();
    for (let n = 0; n < 10; n++) await (await mqtt.connect(username, { clientId: `more-${n}`, clean: false })).end();
    const other = (await acme.device()).username;
    // the oldest was forgotten, so that others may use its client id
    await waitUntil(async () => (await mqtt.refusal(other, { clientId: 'bounded' })) === 0);
    expect(await mqtt.refusal(other, { clientId: 'more-0' })).toBe(2);
    await sender.end();
  });
});

describe('a client id (reference/mqtt.md#sessions)', () => {
  it('is taken over by the same credentials, and refused to others, while connected and while a session stays', async () => {
    const owner = await acme.device(['x']);
    const thief = await acme.device(['x']);
    const first = await mqtt.connect(owner.username, { clientId: 'bound', clean: false });
    await first.subscribe('x');
    expect(await mqtt.refusal(thief.username, { clientId: 'bound' })).toBe(2);
    expect(first.client.connected).toBe(true);
    const second = await mqtt.connect(owner.username, { clientId: 'bound', clean: false });
    await first.closed();
    await second.end();
    expect(await mqtt.refusal(thief.username, { clientId: 'bound' })).toBe(2);
    expect(await mqtt.refusal(thief.username, { clientId: 'bound', clean: false })).toBe(2);
    const sender = await mqtt.connect(thief.username, { clientId: 'other' });
    await sender.publish('x', 'waits');
    const back = await mqtt.connect(owner.username, { clientId: 'bound', clean: false });
    expect((await back.received(1)).map(({ text }) => text)).toEqual(['waits']);
    await back.end();
    await (await mqtt.connect(owner.username, { clientId: 'bound', clean: true })).end();
    await waitUntil(async () =>
      mqtt.connect(thief.username, { clientId: 'bound' }).then(
        (one) => one.end().then(() => true),
        () => false,
      ),
    );
    await sender.end();
  });

  it('survives a race of takeovers: one connection is left, and it works', async () => {
    const { id, username } = await acme.device();
    const open = () => mqtt.connect(username, { clientId: 'race', clean: false }).catch(() => undefined);
    const before = mqtt.connections();
    for (let round = 0; round < 5; round++) {
      await Promise.all([open(), open(), open(), open()]);
      const last = await mqtt.connect(username, { clientId: 'race', clean: false });
      await waitUntil(() => mqtt.connections() === before + 1);
      await last.subscribe(`${id}/streams`);
      await last.publish(`${id}/streams`, { data: { round } });
      await last.received(1);
      await last.end();
      await waitUntil(() => mqtt.connections() === before);
    }
    expect(await mqtt.stored(id)).toEqual([0, 1, 2, 3, 4].map((round) => ({ round })));
  });
});

describe('a device that changes from credentials to a key, or back (reference/mqtt.md#sessions)', () => {
  it('takes its session over, which ends with the last of both; others are refused', async () => {
    const { id, username } = await acme.device(['mine']);
    const other = await acme.device(['mine']);
    const sender = await mqtt.connect(other.username, { clientId: 'sender' });
    const { key } = (await acme.api.post('/apikeys/', { username: 'bob', scope: 'device', id_device: id })).body
      .details;
    const options = { clientId: 'changes', clean: false };
    const byPassword = await mqtt.connect(username, options);
    await byPassword.subscribe('mine');
    const byKey = await mqtt.connect(key, { ...options, password: '' });
    await byPassword.closed();
    await byKey.end();
    await sender.publish('mine', 'first');
    expect(await mqtt.refusal(other.username, options)).toBe(2);
    const back = await mqtt.connect(username, options);
    expect((await back.received(1)).map(({ text }) => text)).toEqual(['first']);
    await back.end();
    await sender.publish('mine', 'second');
    await acme.api.delete(pathOf('mqttdevices', id));
    await mqtt.broker.recheck();
    expect(await mqtt.refusal(other.username, options)).toBe(2);
    const last = await mqtt.connect(key, { ...options, password: '' });
    expect((await last.received(1)).map(({ text }) => text)).toEqual(['second']);
    await last.end();
    await mqtt.service.db.collection('apikeys').deleteOne({ id_device: id });
    await waitUntil(async () => {
      await mqtt.broker.recheck();
      return (await mqtt.refusal(other.username, { ...options, clean: true })) === 0;
    });
    await sender.end();
  });
});

describe('a last will (reference/mqtt.md#permissions)', () => {
  const will = (topic: string, payload: unknown) => ({
    will: { topic, payload: Buffer.from(JSON.stringify(payload)), qos: 1 as const, retain: false },
  });

  it('on a stream topic is stored and delivered like a publish', async () => {
    const { id, username } = await acme.device();
    const watcher = await mqtt.connect(username, { clientId: 'watcher' });
    await watcher.subscribe(`${id}/status`);
    const device = await mqtt.connect(username, will(`${id}/status`, { online: false }));
    device.client.stream.destroy();
    expect((await watcher.received(1)).map(({ text }) => text)).toEqual(['{"online":false}']);
    expect(await mqtt.stored(id)).toEqual([{ online: false }]);
    await watcher.end();
  });

  it('that is a stream is no sign of life: status and deadlines stay, also at QoS 2 and again', async () => {
    const { id, username } = await acme.device([], { frequency_stream: 10, frequency_status: 10 });
    const shown = ['status', 'last_stream_at', 'last_status_at', 'stream_due_at', 'status_due_at'];
    const show = async () => {
      const { body } = await acme.api.get(pathOf('devices', id));
      return shown.map((field) => body[field]);
    };
    const never = ['disconnected', undefined, undefined, undefined, undefined];
    expect(await show()).toEqual(never);
    const die = async (_t: 'streams' | 'status', n: number) => {
      const options = will(`${id}/${_t}`, { data: { n } });
      const dying = { clientId: 'dying', clean: false, will: { ...options.will, qos: 2 as const } };
      const device = await mqtt.connect(username, dying);
      if (n === 2) await device.publish(`${id}/streams`, { data: { alive: true } });
      device.client.stream.destroy();
      await waitUntil(async () => (await mqtt.stored(id)).some((data) => (data as { n?: number }).n === n));
    };
    for (const [n, _t] of (['streams', 'status'] as const).entries()) await die(_t, n);
    expect(await show()).toEqual(never);
    await die('status', 2);
    const [now, alive] = [mqtt.service.now(), await show()];
    expect(alive).toEqual(['no_status', now, undefined, now + 600, undefined]);
    mqtt.service.advance(300);
    await die('streams', 3);
    expect(await show()).toEqual(alive);
    expect((await acme.api.get(`/devices/?id_developer=${encodeURIComponent(id)}&fields=latest`)).body.result).toEqual([
      { latest: { at: expect.any(Number), data: { n: 3 } } },
    ]);
  });

  it('goes nowhere after a proper goodbye, where the device may not publish, or where it does not validate', async () => {
    const { id, username } = await acme.device();
    const other = await acme.device();
    const spy = await mqtt.connect((await acme.device(['#'])).username);
    await spy.subscribe('#');
    const polite = await mqtt.connect(username, { clientId: 'polite', ...will(`${id}/status`, { polite: 1 }) });
    await polite.end();
    for (const [topic, payload] of [
      [`${other.id}/status`, { data: { n: 1 } }],
      ['elsewhere', 'x'],
      ['$SYS/x', 'x'],
      [`${id}/status`, { data: 7 }],
    ] as const) {
      const rude = await mqtt.connect(username, { clientId: 'rude', ...will(topic, payload) });
      const sum = () => [...mqtt.drops.values()].reduce((all, one) => all + one, 0);
      const before = sum();
      rude.client.stream.destroy();
      await waitUntil(() => sum() > before);
    }
    await spy.publish('mark', 'mark');
    expect((await spy.received(1)).map(({ text }) => text)).toEqual(['mark']);
    expect([...(await mqtt.stored(id)), ...(await mqtt.stored(other.id))]).toEqual([]);
    await spy.end();
  });

  it.each(['#', 'a/+', 'a+'])('with topic %j is refused at the login (5)', async (topic) => {
    expect(await mqtt.refusal((await acme.device()).username, will(topic, 'x'))).toBe(5);
  });

  it('of a key holds its device in the payload, and the key is not shown', async () => {
    const { id } = await acme.device();
    const spy = await mqtt.connect((await acme.device(['#'])).username);
    await spy.subscribe('#');
    const { key } = await mqtt.key('acme', 'stream');
    const sender = await mqtt.connect(key, {
      password: '',
      ...will(`${key}/status`, { device: id, data: { off: 1 } }),
    });
    sender.client.stream.destroy();
    expect(await spy.received(1)).toEqual([{ topic: `${id}/status`, text: '{"data":{"off":1}}', retain: false }]);
    expect(await mqtt.stored(id)).toEqual([{ off: 1 }]);
    await spy.end();
  });
});
