import { setTimeout as sleep } from 'node:timers/promises';
import mqtt, { type MqttClient } from 'mqtt';
import { awaitWithin, type Instance, type Reply, sendRequest } from '../support/instance.js';

/** Answers and publishes of all clients. */
export interface Tally {
  /** Answers by code, those without a code by status. */
  codes: Map<number, number>;
  publishes: number;
  /** Answers that the reference does not allow in their situation, and broken connections. */
  unexpected: string[];
}

interface Client {
  instance: Instance;
  account: string;
  key: string;
  tally: Tally;
  signal: AbortSignal;
}

/** Sends a request. @returns the answer if its code is among `expected`; an overload (5033) and everything else is undefined */
type Send = (expected: readonly number[], method: string, path: string, body?: object) => Promise<Reply | undefined>;

const password = 'open sesame';
const pause_ms = 40;
const max_unexpected = 1000;
const operations_per_group = 300;
const publish_pause_ms = 100;
const acknowledge_limit_ms = 15_000;

const filters = [
  'type=valve',
  'status=disconnected&sort=created_at&order=-1',
  'geo_lon=-3.7&geo_lat=40.4&geo_distance=500000',
  'enabled=true&max=50&offset=10',
  'created_at_from=1700000000&max=200',
];

/** Starts the clients of an account: three that send requests, one that publishes. @returns their work until `signal` aborts */
export async function startAccount(client: Client): Promise<Promise<void>[]> {
  const { account } = client;
  const send = createSend(client);
  await send([2001], 'POST', '/projects/', { name: 'plant', id_customer: 'c' });
  await send([2001], 'POST', '/services/', { name: 'cooling', id_project: `plant@${account}` });
  await send([2001], 'POST', '/groups/', { name: 'shared', id_service: `cooling@${account}` });
  await send([2001], 'POST', '/devices/', { name: 'contested', type: 'pump', id_group: `shared@${account}` });
  await send([2001], 'POST', `/mqttdevices/contested@${account}/credentials/`, { username: account, password });
  const requests = Array.from({ length: 3 }, (_, number) => sendRequests(client, send, `worker ${number}`));
  return [...requests, publishStreams(client)];
}

function createSend({ instance, key, tally }: Client): Send {
  let requests = 0;
  return async (expected, method, path, body) => {
    const headers: Record<string, string> = ++requests % 3 === 0 ? { Accept: 'application/xml' } : {};
    try {
      const reply = await sendRequest({ url: instance.url, key, method, path, body, headers });
      const code = reply.code || reply.status;
      tally.codes.set(code, (tally.codes.get(code) ?? 0) + 1);
      if (expected.includes(code)) return reply;
      if (code !== 5033) note(tally, `${method} ${path}: ${code} (request ${reply.headers['x-request-id']})`);
    } catch (error) {
      note(tally, `${method} ${path}: ${error}`);
    }
    return undefined;
  };
}

function note({ unexpected }: Tally, text: string): void {
  if (unexpected.length < max_unexpected) unexpected.push(text);
}

/** Creates, shows, updates and lists devices of a group and their streams, then deletes the group, again and again. */
async function sendRequests({ account, signal }: Client, send: Send, worker: string): Promise<void> {
  for (let round = 0; !signal.aborted; round++) {
    const group = `${worker} round ${round}`;
    const created = await send([2001], 'POST', '/groups/', { name: group, id_service: `cooling@${account}` });
    if (created === undefined) {
      await sleep(1000);
      continue;
    }
    const devices: string[] = [];
    for (let step = 0; step < operations_per_group && !signal.aborted; step++) {
      await operate(send, { account, group, devices, step });
      await sleep(pause_ms);
    }
    // one that takes over 5 s is 5031 and continues (reference/resources.md#update)
    let expected = [2004, 5031];
    for (let isDeleted = false; !signal.aborted && !isDeleted; ) {
      const reply = await send(expected, 'DELETE', pathOf('groups', `${group}@${account}`));
      isDeleted = reply !== undefined && reply.code !== 5031;
      // after 5031, 5033 or a broken connection it may be deleted all the same (reference/errors.md#retries)
      expected = [2004, 4041, 5031];
      if (!isDeleted) await sleep(pause_ms);
    }
  }
}

interface Step {
  account: string;
  group: string;
  /** Identifiers of the devices of the group. */
  devices: string[];
  step: number;
}

async function operate(send: Send, { account, group, devices, step }: Step): Promise<void> {
  const device = devices[step % Math.max(1, devices.length)];
  const contested = pathOf('devices', `contested@${account}`);
  if (device === undefined || step % 10 === 0) {
    const body = {
      name: 'valve',
      type: 'valve',
      id_group: `${group}@${account}`,
      lon: -3.7,
      lat: 40 + (step % 90) / 100,
    };
    const reply = await send([2001], 'POST', '/devices/', { ...body, properties: { step, tags: ['a', 'b'] } });
    const id = reply?.headers.location?.toString().split('/').at(-2);
    if (id !== undefined) devices.push(decodeURIComponent(id));
  } else if (step % 10 === 1) {
    const shown = await send([200], 'GET', contested);
    const version = Number(
      /"version":(\d+)|<version>(\d+)/
        .exec(shown?.text ?? '')
        ?.slice(1)
        .join('') || 0,
    );
    await sleep(pause_ms);
    await send([2005, 4005], 'PUT', contested, { version, firmware: `1.${step}` });
  } else if (step % 10 === 2) {
    await send([200], 'GET', `/devices/?${filters[step % filters.length]}`);
  } else if (step % 10 === 3) {
    await send([200], 'GET', `${pathOf('groups', `${group}@${account}`)}devices/?max=100`);
  } else if (step % 10 === 4) {
    await send([200], 'GET', `${pathOf('devices', device)}streams/?_m=1&max=100&sort=at&order=-1`);
  } else if (step % 10 === 5) {
    const entries = Array.from({ length: 20 }, (_, n) => ({ data: { step, n }, at: 1_700_000_000 + n }));
    await send([2001], 'POST', `${pathOf('devices', device)}streams/`, entries);
  } else if (step % 50 === 6) {
    await send([4003], 'POST', '/devices/', { name: '', colour: 'red' });
    await send([4041], 'GET', pathOf('devices', `none@${account}`));
  } else {
    await send([2001], 'POST', `${pathOf('devices', device)}streams/`, { data: { step, text: 'x'.repeat(step) } });
  }
}

function pathOf(plural: string, id: string): string {
  return `/${plural}/${encodeURIComponent(id)}/`;
}

/** Publishes streams of the contested device at QoS 1, with a new connection every 500 messages. */
async function publishStreams({ instance, account, tally, signal }: Client): Promise<void> {
  const options = { username: account, password, clientId: `publisher of ${account}`, reconnectPeriod: 0 };
  while (!signal.aborted) {
    let client: MqttClient | undefined;
    try {
      client = await mqtt.connectAsync(`mqtt://127.0.0.1:${instance.mqttPort}`, options);
      client.on('error', () => undefined);
      for (let n = 0; n < 500 && !signal.aborted; n++) {
        const topic = `contested@${account}/${n % 5 === 0 ? 'status' : 'streams'}`;
        const acknowledged = client.publishAsync(topic, JSON.stringify({ n }), { qos: 1 });
        // never settles if the connection is closed before the acknowledgement
        await awaitWithin(acknowledged, acknowledge_limit_ms, 'the acknowledgement of a publish');
        tally.publishes++;
        await sleep(publish_pause_ms);
      }
    } catch (error) {
      // reference/mqtt.md#login: return code 3 while logins wait
      if (!/Server unavailable/i.test(String(error))) note(tally, `MQTT: ${error}`);
      await sleep(1000);
    }
    await client?.endAsync(true);
  }
}
