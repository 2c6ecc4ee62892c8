import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { type Connected, type MqttService, startMqtt } from '../support/mqtt.js';

type Qos = 0 | 1 | 2;

let mqtt: MqttService;
let username = '';
let sender: Connected;
let names = 0;

beforeAll(async () => {
  mqtt = await startMqtt();
  ({ username } = await (await mqtt.account('acme')).device(['#']));
  sender = await mqtt.connect(username, { clientId: 'sender' });
});
afterAll(() => mqtt.stop());

const all: readonly Qos[] = [0, 1, 2];
const pairs = all.flatMap((sent) => all.map((granted) => [sent, granted, Math.min(sent, granted)] as const));

/** Subscribes one filter after the other. */
async function subscribeEach(client: Connected, filters: readonly (readonly [string, Qos])[]): Promise<void> {
  for (const [filter, qos] of filters) expect(await client.subscribe(filter, qos)).toEqual([qos]);
}

/** Texts and QoS; the order of messages of different QoS is not defined (MQTT 3.1.1 §4.6). */
const summaryOf = ({ messages, qos }: Connected) =>
  messages.map(({ text }, index) => [text, qos[index]]).sort(([one], [other]) => `${one}`.localeCompare(`${other}`));

/** Publishes a last message that the client receives once, after all others: the handshake of QoS 2 takes longest. */
async function drain(client: Connected): Promise<unknown[]> {
  const topic = `mark/${++names}`;
  await client.subscribe(topic, 2);
  await sender.publish(topic, 'mark', { qos: 2 });
  for (let count = 1; client.messages.at(-1)?.text !== 'mark'; count++) await client.received(count);
  return summaryOf(client).filter(([text]) => text !== 'mark');
}

describe.each([
  ['a clean session', true],
  ['a persistent session', false],
])('%s gets a message (reference/mqtt.md#delivery)', (_kind, clean) => {
  const connect = (clientId: string) => mqtt.connect(username, { clientId, clean });

  it.each(pairs)(
    'sent at QoS %i and granted QoS %i at QoS %i, by topic and by wildcards',
    async (sent, granted, qos) => {
      for (const filter of ['exact/x', 'plus/+', '+/x', 'hash/#', '#']) {
        const client = await connect(`receiver-${++names}`);
        await subscribeEach(client, [[filter, granted]]);
        await sender.publish(filter.replace('#', 'x').replace('+', 'x').replace(/^x$/, 'x/x'), 'message', {
          qos: sent,
        });
        expect([filter, await drain(client)]).toEqual([filter, [['message', qos]]]);
        await client.end();
      }
    },
  );

  it.each(pairs)('retained at QoS %i and granted QoS %i at QoS %i', async (sent, granted, qos) => {
    const base = `retained-${++names}`;
    await sender.publish(`${base}/x`, 'message', { qos: sent, retain: true });
    for (const filter of [`${base}/x`, `${base}/+`, `${base}/#`, `+/x`]) {
      const client = await connect(`receiver-${++names}`);
      await subscribeEach(client, [[filter, granted]]);
      const texts = await drain(client);
      expect([filter, texts]).toEqual([filter, [['message', qos]]]);
      await client.end();
    }
    // acknowledged once it is gone: a wildcard of the next test would find it
    await sender.publish(`${base}/x`, '', { retain: true, qos: 1 });
  });

  it.each([
    [
      'the wildcard first',
      [
        ['over/#', 0],
        ['over/+', 1],
        ['over/x', 2],
      ],
      2,
    ],
    [
      'the exact one first',
      [
        ['over/x', 0],
        ['over/+', 2],
        ['over/#', 1],
      ],
      2,
    ],
    [
      'the highest first',
      [
        ['over/+', 2],
        ['over/x', 1],
        ['over/#', 0],
      ],
      2,
    ],
    [
      'all low',
      [
        ['over/#', 0],
        ['over/+', 0],
        ['over/x', 1],
      ],
      1,
    ],
  ] as const)('once, at the highest QoS of overlapping subscriptions: %s', async (_order, filters, qos) => {
    const client = await connect(`receiver-${++names}`);
    await subscribeEach(client, filters);
    await sender.publish('over/x', 'first', { qos: 2 });
    await sender.publish('over/x', 'second', { qos: 1 });
    expect(await drain(client)).toEqual([
      ['first', qos],
      ['second', 1],
    ]);
    await client.end();
  });

  it('retained once, at the highest QoS, although several filters of one SUBSCRIBE match', async () => {
    await sender.publish('state/x', 'on', { qos: 2, retain: true });
    const client = await connect(`receiver-${++names}`);
    const granted = await client.client.subscribeAsync({
      'state/#': { qos: 0 },
      'state/+': { qos: 2 },
      'state/x': { qos: 1 },
    });
    expect(granted.map(({ qos }) => qos).sort()).toEqual([0, 1, 2]);
    expect(await drain(client)).toEqual([['on', 2]]);
    await client.end();
    await sender.publish('state/x', '', { retain: true });
  });

  it('at the QoS of the latest SUBSCRIBE for a filter, and at what is left after UNSUBSCRIBE', async () => {
    const client = await connect(`receiver-${++names}`);
    await subscribeEach(client, [
      ['late/#', 0],
      ['late/+', 2],
    ]);
    await sender.publish('late/x', 'first', { qos: 2 });
    await subscribeEach(client, [['late/+', 1]]);
    await sender.publish('late/x', 'second', { qos: 2 });
    await client.client.unsubscribeAsync('late/+');
    await sender.publish('late/x', 'third', { qos: 2 });
    await client.client.unsubscribeAsync('late/#');
    await sender.publish('late/x', 'fourth', { qos: 2 });
    expect(await drain(client)).toEqual([
      ['first', 2],
      ['second', 1],
      ['third', 0],
    ]);
    await client.end();
  });

  it('of every QoS when two senders mix them', async () => {
    const client = await connect(`receiver-${++names}`);
    await client.subscribe('mixed/#', 2);
    const other = await mqtt.connect(username, { clientId: 'other-sender' });
    const texts: string[] = [];
    const publishes: Promise<void>[] = [];
    for (let n = 0; n < 300; n++) {
      const qos = (n % 3) as Qos;
      texts.push(`${n}`);
      publishes.push((n % 2 === 0 ? sender : other).publish(`mixed/${n % 5}`, `${n}`, { qos }));
    }
    await Promise.all(publishes);
    await client.received(300);
    expect(client.messages.map(({ text }) => text).sort()).toEqual(texts.sort());
    expect(client.messages.map(({ text }, index) => [Number(text) % 3, client.qos[index]])).toEqual(
      client.messages.map(({ text }) => [Number(text) % 3, Number(text) % 3]),
    );
    await client.end();
    await other.end();
  });
});

describe('a persistent session without a connection (reference/mqtt.md#delivery)', () => {
  it.each(pairs)(
    'gets a message sent at QoS %i and granted QoS %i at QoS %i after its return, if that is above 0',
    async (sent, granted, qos) => {
      const options = { clientId: `away-${++names}`, clean: false };
      const topic = `away/${names}`;
      const client = await mqtt.connect(username, options);
      await client.subscribe(`${topic}/+`, granted);
      await client.end();
      await sender.publish(`${topic}/x`, 'message', { qos: sent });
      const back = await mqtt.connect(username, options);
      expect(await drain(back)).toEqual(qos === 0 ? [] : [['message', qos]]);
      await back.end();
    },
  );

  it('gets it once, at the highest QoS of overlapping subscriptions, and not again', async () => {
    const options = { clientId: 'away-overlap', clean: false };
    const client = await mqtt.connect(username, options);
    await subscribeEach(client, [
      ['far/#', 1],
      ['far/+', 2],
      ['far/x', 0],
    ]);
    await sender.publish('far/x', 'live', { qos: 2 });
    expect(await drain(client)).toEqual([['live', 2]]);
    await client.end();
    await sender.publish('far/x', 'queued', { qos: 2 });
    await sender.publish('far/x', 'lower', { qos: 1 });
    const back = await mqtt.connect(username, options);
    expect(await drain(back)).toEqual([
      ['lower', 1],
      ['queued', 2],
    ]);
    await back.end();
    const again = await mqtt.connect(username, options);
    expect(await drain(again)).toEqual([]);
    await again.end();
  });
});
