import { randomBytes } from 'node:crypto';
import { connectAsync } from 'mqtt';
import { runInParallel } from '../../../src/lib/parallel.js';
import { findFreePort, waitUntil } from '../../support/service-process.js';
import { account, createClient } from '../data.js';
import type { Environment } from '../environment.js';
import { readCpuSeconds } from '../process.js';
import { startService } from '../server.js';
import { activity_s, low_fuel, type Peer, type QueryName, type Subject, sendAtOnce, timed } from './peer.js';
import { type Entry, fleets, type Truck } from './trucks.js';

const senders = 4;
const max_page = 1000;
const creates_at_once = 32;

const idOf = ({ name }: Truck) => `${name}@${account}`;

/**
 * Starts the service on a database of its own, with a group for each fleet, a device for each truck, and a rule for low fuel.
 * @param transport of the streams, arrays of 1,000
 */
export async function startPlatform(
  { folder, mongod, closers }: Environment,
  trucks: readonly Truck[],
  { fleet, truck, from, to }: Subject,
  transport: 'HTTP' | 'MQTT',
): Promise<Peer> {
  const key = randomBytes(16).toString('hex');
  const database = `trucks-${transport}`;
  const mqtt_port = await findFreePort();
  const service = await startService({ folder, uri: mongod.uri(database), key, mqtt_port });
  closers.push(service.stop);
  const client = createClient(service.url, key);
  const db = mongod.db(database);
  await client.send('POST', '/projects/', { name: 'trucks', id_customer: 'trucks' });
  await client.send('POST', '/services/', { name: 'trucks', id_project: `trucks@${account}` });
  for (const name of fleets) await client.send('POST', '/groups/', { name, id_service: `trucks@${account}` });
  await runInParallel(trucks, creates_at_once, async ({ name, fleet, model, driver }) => {
    const properties = { model, driver };
    await client.send('POST', '/devices/', { name, type: 'truck', id_group: `${fleet}@${account}`, properties });
  });
  const condition = { path: 'diagnostics.fuel_state', op: '<', value: low_fuel };
  await client.send('POST', '/alarmrules/', { name: 'Low fuel', severity: 'warning', conditions: [condition] });

  const send = transport === 'HTTP' ? sendByHttp(service.url, key) : await connectSenders(mqtt_port, key);
  closers.push(async () => send.end());
  const span = `at_from=${from}&at_to=${to}`;
  const total = async (path: string) => {
    const { total_documents } = await client.send('GET', path);
    return Number(total_documents);
  };
  const list = async (query: string) => {
    let rows = 0;
    for (let isFull = true; isFull; ) {
      const { result } = await client.send('GET', `/devices/?${query}&max=${max_page}&offset=${rows}`);
      const { length } = result as readonly object[];
      rows += length;
      isFull = length === max_page;
    }
    return rows;
  };
  const queries: Record<QueryName, () => Promise<number>> = {
    'last locations': () => list('fields=name,latest.readings.latitude,latest.readings.longitude'),
    'low fuel': () => list('alarm=open&fields=name'),
    'load of a fleet by hours': () =>
      total(`/groups/${fleet}@${account}/series/?fields=diagnostics.current_load&aggregate=avg&every=3600&${span}`),
    'activity of a truck': () =>
      total(`/devices/${idOf(truck)}/series/?fields=readings.velocity&aggregate=avg&every=${activity_s}&${span}`),
  };
  return {
    name: `this service, ${transport}`,
    load: (batches) => sendAtOnce(batches, senders, (batch, sender) => send.send(toStreams(batch), sender)),
    readCpu: async () => (await readCpuSeconds(service.pid)) + (await readCpuSeconds(mongod.pid)),
    async measureSize() {
      await db.admin().command({ fsync: 1 });
      const { storageSize, totalIndexSize } = await db.command({ collStats: 'streams' });
      return Number(storageSize) + Number(totalIndexSize);
    },
    async ask(query) {
      if (query === 'low fuel') await waitUntilEvaluated(db);
      return timed(queries[query]);
    },
    stop: async () => undefined,
  };
}

/** Alarms of streams are raised up to 2 s after them. */
async function waitUntilEvaluated(db: ReturnType<Environment['mongod']['db']>): Promise<void> {
  const count = () => db.collection('alarms').countDocuments({ is_current: true });
  let last = -1;
  await waitUntil(async () => {
    const now = await count();
    const isSettled = now === last;
    last = now;
    await new Promise((resolve) => setTimeout(resolve, 500));
    return isSettled;
  }, 60_000);
}

const toStreams = (batch: readonly Entry[]) =>
  JSON.stringify(
    batch.map(({ truck, at, readings, diagnostics }) => ({
      ...{ protocol: 'v2', device: idOf(truck), at, data: { readings, diagnostics } },
    })),
  );

interface Sender {
  send(body: string, sender: number): Promise<void>;
  end(): void;
}

function sendByHttp(url: string, key: string): Sender {
  const headers = { 'service.apikey': key };
  return {
    async send(body) {
      const response = await fetch(`${url}/streams/`, { method: 'POST', headers, body });
      const text = await response.text();
      if (!response.ok) throw new Error(`${response.status} ${text}`);
    },
    end: () => undefined,
  };
}

async function connectSenders(port: number, key: string): Promise<Sender> {
  const connect = (_: unknown, number: number) =>
    connectAsync(`mqtt://127.0.0.1:${port}`, { username: key, clientId: `sender-${number}`, reconnectPeriod: 0 });
  const clients = await Promise.all(Array.from({ length: senders }, connect));
  return {
    send: async (body, sender) => void (await clients[sender]?.publishAsync(`${key}/streams`, body, { qos: 1 })),
    end() {
      for (const each of clients) each.end(true);
    },
  };
}
