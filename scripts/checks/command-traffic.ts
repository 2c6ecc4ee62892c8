import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import mqtt, { type MqttClient } from 'mqtt';
import type { CommandRequest, Receipt } from './commands-model.js';
import { send } from './instance.js';

/** An instance that may be killed at any time. */
export interface Address {
  url: string;
  mqttPort: number;
}

/** Actions of devices and operators, and notes of them. */
export interface Traffic {
  addresses: readonly Address[];
  /** At least of scope `write`. */
  key: string;
  random: () => number;
  requests: CommandRequest[];
  receipts: Receipt[];
  signal: AbortSignal;
}

/** A device with MQTT credentials. */
export interface TrafficDevice {
  id: string;
  username: string;
  password: string;
}

const no_answer = 5030;

function pick<T>(items: readonly T[], random: () => number): T {
  const item = items[Math.floor(random() * items.length)];
  if (item === undefined) throw new Error('nothing to choose from');
  return item;
}

interface RequestToSend extends Pick<CommandRequest, 'kind' | 'device' | 'id'> {
  method: string;
  /** Below the commands of the device. */
  path: string;
  body?: object;
}

async function sendNoted(
  { addresses, key, random, requests }: Traffic,
  { method, path, body, ...request }: RequestToSend,
): Promise<void> {
  const sent_ms = performance.now();
  const { url } = pick(addresses, random);
  const answer = await send(url, key, method, `/devices/${encodeURIComponent(request.device)}/commands/${path}`, body)
    .then((response) => response.json() as Promise<{ code: number; details?: { id?: string } }>)
    .catch(() => undefined);
  const { code = no_answer, details } = answer ?? {};
  requests.push({ ...request, id: request.id ?? details?.id, code, sent_ms, answered_ms: performance.now() });
  // the instance is being started
  if (code >= 5000) await sleep(50);
}

/** Queues commands, and cancels some of them, until the signal. */
export async function operate(traffic: Traffic, devices: readonly TrafficDevice[]): Promise<void> {
  const { random, requests, signal } = traffic;
  while (!signal.aborted) {
    const { id: device } = pick(devices, random);
    const expires_in = random() < 0.2 ? 1 + Math.floor(random() * 5) : 3600;
    const body = { name: 'set', data: { n: requests.length }, expires_in };
    await sendNoted(traffic, { kind: 'create', device, id: undefined, method: 'POST', path: '', body });
    const { id } = requests.at(-1) ?? {};
    if (id !== undefined && requests.at(-1)?.device === device && random() < 0.1)
      await sendNoted(traffic, { kind: 'cancel', device, id, method: 'DELETE', path: `${id}/` });
    await sleep(random() * 20);
  }
}

/** Connects a device again and again; it answers what it gets, over MQTT or HTTP, sometimes twice or before PUBACK. */
export async function obey(traffic: Traffic, device: TrafficDevice): Promise<void> {
  const { random, signal } = traffic;
  setMaxListeners(0, signal);
  const clean = random() < 0.5;
  while (!signal.aborted) {
    const { mqttPort } = pick(traffic.addresses, random);
    const client = mqtt.connect(`mqtt://127.0.0.1:${mqttPort}`, {
      ...{ username: device.username, password: device.password, clientId: device.username, clean },
      reconnectPeriod: 0,
    });
    const closed = new Promise<void>((resolve) => client.once('close', () => resolve()));
    client.on('error', () => undefined);
    client.on('message', (_topic, payload) => {
      const { id } = JSON.parse(payload.toString()) as { id: string };
      traffic.receipts.push({ device: device.id, id });
      void answer(traffic, client, device.id, id);
    });
    client.subscribe(`${device.id}/commands`, { qos: 1 }, () => undefined);
    // connections of 3 s at most, so that it reconnects at every step
    await Promise.race([closed, sleep(random() * 6000, undefined, { signal }).catch(() => undefined)]);
    client.end(true);
    await sleep(50);
  }
}

async function answer(traffic: Traffic, client: MqttClient, device: string, id: string): Promise<void> {
  const { random, signal } = traffic;
  if (random() < 0.3) await sleep(random() * 200);
  if (random() < 0.2 || signal.aborted) return;
  const status = random() < 0.8 ? 'done' : 'failed';
  for (let times = random() < 0.2 ? 2 : 1; times > 0; times--) {
    if (random() < 0.5) {
      const path = `${id}/result/`;
      await sendNoted(traffic, { kind: status, device, id, method: 'POST', path, body: { id, status } });
    } else if (client.connected)
      client.publish(`${device}/commands/result`, JSON.stringify({ id, status }), { qos: 1 }, () => undefined);
  }
}
