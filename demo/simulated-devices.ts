import { createHmac } from 'node:crypto';
import { connectAsync, type MqttClient } from 'mqtt';
import { describeCause } from '../src/cli/stream-client.js';
import { runInParallel } from '../src/lib/parallel.js';
import { createResponseError, ensureResource, listDevices, parseCreatedId, type Send } from './api-client.js';

/** A device of the simulation. */
export interface SimulatedDevice {
  id: string;
  isNew: boolean;
  client: MqttClient | undefined;
  readings: Readings;
  streamCount: number;
  /** Sequence numbers of acknowledged streams. */
  acknowledged: number[];
}

interface Readings {
  temperature_c: number;
  humidity_percent: number;
  battery_v: number;
}

interface ConnectOptions {
  key: string;
  mqtt: string;
  signal: AbortSignal;
}

const name = 'Simulator';
/** Concurrent requests and connection attempts. */
export const concurrency = 8;

/** Finds or creates `count` devices, with project, service and group "Simulator". */
export async function ensureDevices(
  send: Send,
  count: number,
): Promise<{ id_group: string; devices: SimulatedDevice[] }> {
  const { id: id_project } = await ensureResource(send, 'projects', { name, id_customer: 'simulator' });
  const { id: id_service } = await ensureResource(send, 'services', { name, id_project });
  const { id: id_group } = await ensureResource(send, 'groups', { name, id_service });
  const existingIds = new Map<unknown, string>();
  for await (const device of listDevices(send, id_group)) existingIds.set(device.name, String(device.id_developer));
  const devices: SimulatedDevice[] = [];
  const names = Array.from({ length: count }, (_, index) => `simulator-${String(index + 1).padStart(5, '0')}`);
  await runInParallel(names.entries(), concurrency, async ([index, deviceName]) => {
    const existingId = existingIds.get(deviceName);
    const id = existingId ?? (await createDevice(send, deviceName, id_group));
    devices[index] = {
      id,
      isNew: existingId === undefined,
      client: undefined,
      readings: createReadings(),
      streamCount: 0,
      acknowledged: [],
    };
  });
  return { id_group, devices };
}

async function createDevice(send: Send, deviceName: string, id_group: string): Promise<string> {
  const fields = { type: 'simulator', sensor: 'air_temperature', frequency_stream: 1, frequency_status: 5 };
  return parseCreatedId(await send('POST', '/devices/', { name: deviceName, id_group, ...fields }));
}

/**
 * Connects all devices to the broker. Their passwords are derived from the API key, so that those of earlier runs are valid.
 * @throws Error if a device gets no credentials or the broker rejects it
 */
export async function openConnections(
  devices: readonly SimulatedDevice[],
  { key, mqtt, signal }: ConnectOptions,
  send: Send,
): Promise<void> {
  await runInParallel(devices, concurrency, async (device) => {
    if (signal.aborted) return;
    const { id } = device;
    const password = createHmac('sha256', key).update(id).digest('base64url');
    const login = { username: id, password, clientId: id };
    // a broker without its database refuses logins
    const options = { ...login, protocolVersion: 4, reconnectPeriod: 1000, reconnectOnConnackError: true } as const;
    const connect = () => connectAsync(mqtt, options, false);
    let client = device.isNew ? undefined : await connect().catch(() => undefined);
    if (client === undefined) {
      await setCredentials(send, id, { username: id, password });
      client = await connect().catch((error: unknown) => {
        throw new Error(
          `cannot connect ${id} to ${mqtt}: ${describeCause(error)}. Another broker: --mqtt, or HOST and MQTT_PORT`,
        );
      });
    }
    // the client reconnects by itself and sends unacknowledged messages again
    client.on('error', () => undefined);
    device.client = client;
    await obey(client, device);
  });
}

/** Percent-encodes an identifier for a topic (reference/mqtt.md#topic-names). */
export function createTopic(id: string, ending: string): string {
  return `${id.replaceAll(/^\$|[%/+#]/g, encodeURIComponent)}/${ending}`;
}

/** Answers each command, and reports what is desired, configuration files too, as if the device had it now. */
async function obey(client: MqttClient, { id, readings }: SimulatedDevice): Promise<void> {
  const [commands, desired] = [createTopic(id, 'commands'), createTopic(id, 'state/desired')];
  const publish = (ending: string, body: object) =>
    client.publish(createTopic(id, ending), JSON.stringify(body), { qos: 1 }, () => undefined);
  client.on('message', (topic, payload) => {
    const message = JSON.parse(payload.toString()) as { id?: string; delta?: object };
    if (topic === commands) publish('commands/result', { id: message.id, status: 'done', data: readings });
    else if (Object.keys(message.delta ?? {}).length > 0) publish('state/reported', message.delta ?? {});
  });
  // an external broker grants neither
  await client.subscribeAsync([commands, desired], { qos: 1 }).catch(() => undefined);
}

async function setCredentials(send: Send, id: string, login: object): Promise<void> {
  const path = `/mqttdevices/${encodeURIComponent(id)}/credentials/`;
  const created = await send('POST', path, login);
  if (created.status === 200) return;
  const updated = created.body.code === 4003 ? await send('PUT', path, login) : created;
  if (updated.status !== 200) throw createResponseError('PUT', updated);
}

function createReadings(): Readings {
  return { temperature_c: 10 + Math.random() * 15, humidity_percent: 40 + Math.random() * 40, battery_v: 4.1 };
}

/** Changes the readings of a device by a random step and returns those that it sends. */
export function takeMeasurement({ readings }: SimulatedDevice): object {
  const drift = (Math.random() - 0.5) * 0.4;
  readings.temperature_c = Math.min(45, Math.max(-25, readings.temperature_c + drift));
  // warmer air is drier
  const humidity_percent = readings.humidity_percent - 2 * drift + (Math.random() - 0.5);
  readings.humidity_percent = Math.min(100, Math.max(5, humidity_percent));
  readings.battery_v = readings.battery_v < 3.4 ? 4.1 : readings.battery_v - Math.random() * 0.0005;
  return { temperature_c: round(readings.temperature_c), humidity_percent: round(readings.humidity_percent) };
}

/** Returns what a device sends as its status. */
export function reportStatus({ readings }: SimulatedDevice): object {
  return { battery_v: round(readings.battery_v) };
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
