import { once } from 'node:events';
import { Agent, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { parentPort, Worker, workerData } from 'node:worker_threads';
import mqtt, { type MqttClient } from 'mqtt';
import { sendRequest } from '../support/instance.js';

/** Times of an account that sends single requests. */
export interface Figures {
  reads_ms: number[];
  creates_ms: number[];
  /** One stream each. */
  streams_ms: number[];
  /** From the answer to a create until its event reaches a webhook. */
  webhooks_ms: number[];
  /** From the publish of a message until it is received. */
  messages_ms: number[];
  failures: string[];
}

interface Options {
  url: string;
  mqttPort: number;
  account: string;
  /** Key of scope `admin`. */
  key: string;
  password: string;
}

/** The requests of an account on connections that it keeps, in a thread of its own: those of an attacker do not delay them. */
export interface Neighbour {
  /** Sends for so many seconds. */
  measure(seconds: number): Promise<Figures>;
  close(): Promise<void>;
}

const period_ms = 250;
/** Time for what was sent last. */
const settle_ms = 3000;

/** Prepares a neighbour: its webhook exists, and its MQTT client is connected. */
export async function startNeighbour(options: Options): Promise<Neighbour> {
  const worker = new Worker(new URL(import.meta.url), { workerData: options });
  const failed = once(worker, 'error').then(([error]) => Promise.reject(error));
  failed.catch(() => undefined);
  const next = async () => (await Promise.race([once(worker, 'message'), failed]))[0];
  await next();
  return {
    async measure(seconds) {
      worker.postMessage(seconds);
      return next();
    },
    close: async () => void (await worker.terminate()),
  };
}

async function serveMeasurements({ url, mqttPort, account, key, password }: Options): Promise<void> {
  const arrivals = new Map<string, number>();
  const receiver = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request.setEncoding('utf8')) text += chunk;
    arrivals.set(JSON.parse(text).id_developer, performance.now());
    response.writeHead(204).end();
  });
  await once(receiver.listen(0, '127.0.0.1'), 'listening');
  const webhook = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`;
  // another connection would wait until it is accepted, behind those that an attacker opens at once
  const agent = new Agent({ keepAlive: true, maxSockets: 3 });
  const send = (method: string, path: string, body?: object) => sendRequest({ url, key, method, path, body, agent });
  const { code } = await send('POST', '/webhooks/', { name: 'neighbour', url: webhook, types: ['model.created'] });
  if (code !== 2001) throw new Error(`the webhook of the neighbour gets ${code}`);
  // opens all of them
  await Promise.all([1, 2, 3].map(() => send('GET', '/self/')));
  const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${mqttPort}`, { username: account, password });
  await client.subscribeAsync('plant/neighbour', { qos: 1 });
  client.on('message', (_topic, payload) => arrivals.set(payload.toString(), performance.now()));
  parentPort?.on('message', async (seconds: number) => {
    parentPort?.postMessage(await measure({ send, client, arrivals, account }, seconds));
  });
  parentPort?.postMessage('ready');
}

interface Connected {
  send(method: string, path: string, body?: object): ReturnType<typeof sendRequest>;
  client: MqttClient;
  arrivals: ReadonlyMap<string, number>;
  account: string;
}

async function measure({ send, client, arrivals, account }: Connected, seconds: number): Promise<Figures> {
  const figures: Figures = {
    ...{ reads_ms: [], creates_ms: [], streams_ms: [], webhooks_ms: [], messages_ms: [] },
    failures: [],
  };
  const { failures } = figures;
  const request = async (times_ms: number[], path: string, body?: object) => {
    const begun_ms = performance.now();
    try {
      const { status, code } = await send(body === undefined ? 'GET' : 'POST', path, body);
      times_ms.push(performance.now() - begun_ms);
      if (status !== 200) failures.push(`${path}: ${status} / ${code}`);
    } catch (error) {
      failures.push(`${path}: ${error}`);
    }
  };
  const run = `${Date.now()}`;
  const sent = { webhooks: new Map<string, number>(), messages: new Map<string, number>() };
  const work: Promise<unknown>[] = [];
  for (let tick = 0; tick < (seconds * 1000) / period_ms; tick++) {
    const name = `${run}-${tick}`;
    const create = request(figures.creates_ms, '/models/', { name });
    sent.messages.set(name, performance.now());
    work.push(
      request(figures.reads_ms, `/devices/pump@${account}/`),
      request(figures.streams_ms, `/devices/pump@${account}/streams/`, { data: { n: tick } }),
      create.then(() => sent.webhooks.set(`${name}@${account}`, performance.now())),
      client.publishAsync('plant/neighbour', name, { qos: 1 }),
      sleep(period_ms),
    );
    await sleep(period_ms);
  }
  await Promise.race([Promise.allSettled(work), sleep(settle_ms)]);
  await sleep(settle_ms);
  for (const [kind, times_ms] of [
    ['webhooks', figures.webhooks_ms],
    ['messages', figures.messages_ms],
  ] as const)
    for (const [name, at_ms] of sent[kind]) {
      const arrived_ms = arrivals.get(name);
      if (arrived_ms === undefined) failures.push(`${kind}: ${name} has not arrived`);
      else times_ms.push(Math.max(0, arrived_ms - at_ms));
    }
  return figures;
}

if (parentPort !== null) await serveMeasurements(workerData);
