import { setTimeout as sleep } from 'node:timers/promises';
import type mongoose from 'mongoose';
import mqtt, { type MqttClient } from 'mqtt';
import { send, sendOk } from './instance.js';

/** Sender of streams `{"data": {"n": …}}`, each with a number that no other one has. */
export interface StreamSender {
  /** Numbers that were sent. */
  sent: number[];
  /** Numbers that were acknowledged, and the moments of it in milliseconds of this process. */
  acknowledged: number[];
  acknowledged_at_ms: number[];
  /** Answers of requests that were not acknowledged, with how often they came. */
  refused: Map<string, number>;
  /** Longest time until an answer. */
  max_answer_ms: number;
  /** Stops sending, and waits for what was sent. */
  stop(): Promise<void>;
}

/** Device of the senders, with MQTT credentials. */
export interface StreamDevice {
  id: string;
  password: string;
}

const pause_ms = 20;
const max_unacknowledged = 16;
/** Publishes that wait for their acknowledgement when the sender is stopped. */
const drain_timeout_ms = 60_000;

let next = 0;

/** Creates a device, with what is above it, through the interface at `url`. */
export async function createStreamDevice(url: string, key: string, name: string): Promise<StreamDevice> {
  const create = (path: string, body: object) => sendOk(url, key, 'POST', path, body);
  await create('/projects/', { name, id_customer: 'test' });
  await create('/services/', { name, id_project: `${name}@demo` });
  await create('/groups/', { name, id_service: `${name}@demo` });
  await create('/devices/', { name, type: 'test', id_group: `${name}@demo` });
  const id = `${name}@demo`;
  const password = 'open sesame';
  await create(`/mqttdevices/${id}/credentials/`, { username: id, password });
  return { id, password };
}

function createRecord(): Omit<StreamSender, 'stop'> {
  return { sent: [], acknowledged: [], acknowledged_at_ms: [], refused: new Map(), max_answer_ms: 0 };
}

/** Posts one stream after the other. */
export function startPosting(url: string, key: string, { id }: StreamDevice): StreamSender {
  const record = createRecord();
  const stopped = new AbortController();
  const running = (async () => {
    while (!stopped.signal.aborted) {
      const n = next++;
      record.sent.push(n);
      const sent_at_ms = performance.now();
      const answer = await send(url, key, 'POST', `/devices/${encodeURIComponent(id)}/streams/`, { data: { n } })
        .then(async (response) => `${((await response.json()) as { code: number }).code}`)
        .catch((error: Error) => `no answer: ${error.name}`);
      const now_ms = performance.now();
      record.max_answer_ms = Math.max(record.max_answer_ms, now_ms - sent_at_ms);
      if (answer === '2001') {
        record.acknowledged.push(n);
        record.acknowledged_at_ms.push(now_ms);
      } else record.refused.set(answer, (record.refused.get(answer) ?? 0) + 1);
      await sleep(answer === '2001' ? pause_ms : 10 * pause_ms);
    }
  })();
  const sender: StreamSender = Object.assign(record, {
    async stop() {
      stopped.abort();
      await running;
    },
  });
  return sender;
}

/** Publishes at QoS 1, several messages at once. The client reconnects and sends again by itself. */
export async function startPublishing(url: string, { id, password }: StreamDevice): Promise<StreamSender> {
  const record = createRecord();
  const stopped = new AbortController();
  const client: MqttClient = mqtt.connect(url, {
    username: id,
    password,
    clientId: `${id} ${next}`,
    protocolVersion: 4,
    reconnectPeriod: 100,
    // a broker without its database refuses logins
    reconnectOnConnackError: true,
    connectTimeout: 5000,
  });
  client.on('error', () => undefined);
  let waiting = 0;
  const failed: number[] = [];
  const publish = (n: number) => {
    waiting++;
    client.publish(`${id}/streams`, JSON.stringify({ data: { n } }), { qos: 1 }, (error) => {
      waiting--;
      if (error) {
        // the client gives up on what it was to send while it was sending earlier messages again
        failed.push(n);
        return;
      }
      record.acknowledged.push(n);
      record.acknowledged_at_ms.push(performance.now());
    });
  };
  const running = (async () => {
    while (!stopped.signal.aborted) {
      if (waiting < max_unacknowledged) {
        const repeated = failed.shift();
        if (repeated === undefined) record.sent.push(next);
        publish(repeated ?? next++);
      }
      await sleep(pause_ms);
    }
    for (const end = performance.now() + drain_timeout_ms; performance.now() < end; await sleep(pause_ms)) {
      for (const n of failed.splice(0)) publish(n);
      if (waiting === 0) break;
    }
  })();
  return Object.assign(record, {
    async stop() {
      stopped.abort();
      await running;
      await client.endAsync(true);
    },
  });
}

interface Senders {
  posting: readonly StreamSender[];
  publishing: readonly StreamSender[];
  /** No service was killed: what is stored was acknowledged, so that no client sends it again. */
  isGraceful?: boolean;
}

/** Compares what was acknowledged with what is stored. @returns a line for each kind of difference */
export async function findStreamFaults(
  db: mongoose.mongo.Db,
  { posting, publishing, isGraceful = false }: Senders,
): Promise<string[]> {
  const stored = new Map<number, number>();
  const projection = { _id: 0, 'data.n': 1 };
  for await (const { data } of db.collection('streams').find({}, { projection }))
    stored.set(Number(data.n), (stored.get(Number(data.n)) ?? 0) + 1);
  const countOf = (n: number) => stored.get(n) ?? 0;
  const numbersOf = (senders: readonly StreamSender[], list: 'sent' | 'acknowledged') =>
    senders.flatMap((sender) => sender[list]);
  const posted = numbersOf(posting, 'acknowledged');
  const differences = {
    'posted, acknowledged and lost': posted.filter((n) => countOf(n) === 0),
    'posted, acknowledged and stored twice': posted.filter((n) => countOf(n) > 1),
    'published, acknowledged and lost': numbersOf(publishing, 'acknowledged').filter((n) => countOf(n) === 0),
    'published and stored twice': numbersOf(publishing, 'sent').filter((n) => isGraceful && countOf(n) > 1),
    'published and never stored': numbersOf(publishing, 'sent').filter((n) => countOf(n) === 0),
  };
  return Object.entries(differences)
    .filter(([, numbers]) => numbers.length > 0)
    .map(([difference, numbers]) => `${numbers.length} streams ${difference}: ${numbers.slice(0, 10).join()}`);
}

/** Finds the longest time between two acknowledgements that follow each other, of those that end after `since_ms`. */
export function findLongestPause(acknowledged_at_ms: readonly number[], since_ms: number): number {
  return acknowledged_at_ms.reduce((max_ms, moment, index) => {
    if (moment < since_ms) return max_ms;
    return Math.max(max_ms, moment - (acknowledged_at_ms[index - 1] ?? since_ms));
  }, 0);
}
