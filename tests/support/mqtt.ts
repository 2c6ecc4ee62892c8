import { createServer } from 'node:http';
import { type AddressInfo, connect as connectTcp, type Socket } from 'node:net';
import mqtt, { type IClientOptions, type IPublishPacket, type MqttClient } from 'mqtt';
import { encodePacket, encodeString } from '../../scripts/support/mqtt-packets.js';
import type { Database } from '../../src/db/database.js';
import { Broker } from '../../src/mqtt/broker.js';
import { createPasswordVerifier } from '../../src/mqtt/login/passwords.js';
import { issueKey, type Keyring, openKeyring } from '../../src/objects/api-keys.js';
import { createStore } from '../../src/objects/context.js';
import { createEnabledCache } from '../../src/objects/tree/ancestors.js';
import type { Scope } from '../../src/schema/operation.js';
import { createIngest, type Ingest as RecordStreams } from '../../src/streams/ingest.js';
import { waitFor, waitUntil } from './process.js';
import { type Api, createFixtures, pathOf, startTestService, type TestService } from './service.js';

/** A device with credentials; all log in with this password. */
export interface GivenDevice {
  id: string;
  username: string;
  credentials: string;
  topics: string;
}

export const password = 'correct horse';
/** An address of the loopback network that the broker takes for a proxy. */
export const proxy_address = '127.0.0.9';

export interface Message {
  topic: string;
  text: string;
  retain: boolean;
}

/** A connected client that notes all it gets. */
export interface Connected {
  client: MqttClient;
  messages: Message[];
  /** QoS of each message. */
  qos: number[];
  publish(topic: string, payload: unknown, options?: { qos?: 0 | 1 | 2; retain?: boolean }): Promise<void>;
  /** The granted QoS, 128 for a refusal. */
  subscribe(filter: string | string[], qos?: 0 | 1 | 2): Promise<number[]>;
  /** The messages after the one of `mark` topics or the last one: waits until `count` are there. */
  received(count: number): Promise<Message[]>;
  closed(): Promise<void>;
  end(): Promise<void>;
}

interface Fault {
  database?: Database;
  record?: RecordStreams;
}

/** Clients of one broker. */
export interface Clients {
  /** Connects a client that does not reconnect by itself unless `reconnectPeriod` is given. */
  connect(username: string | undefined, options?: IClientOptions & { url?: string }): Promise<Connected>;
  /** The return code that a connection is refused with; 0 if it is let in. */
  refusal(username: string | undefined, options?: IClientOptions): Promise<number>;
  /** Ends all of them. */
  close(): void;
}

export interface MqttService extends Pick<Clients, 'connect' | 'refusal'> {
  service: TestService;
  broker: Broker;
  port: number;
  ws: string;
  drops: Map<string, number>;
  /** Dropped messages by field. */
  droppedFields: Map<string, number>;
  /** Refused logins by reason. */
  refusals: Map<string, number>;
  connections(): number;
  logged: string[];
  keyring: Keyring;
  /** An account with a client of its interface; a device in it gets credentials and topics. */
  account(name: string): Promise<{ api: Api; device(topics?: string[], fields?: object): Promise<GivenDevice> }>;
  key(account: string, scope: Scope): Promise<{ id: string; key: string }>;
  /** A TCP connection, from another address of the loopback network if given. */
  raw(localAddress?: string): Promise<Raw>;
  /** The data of all streams of a device, oldest first. */
  stored(device: string): Promise<unknown[]>;
  stop(): Promise<void>;
}

export interface Raw {
  socket: Socket;
  bytes(count: number): Promise<Buffer>;
  received(): Buffer;
  closed: Promise<void>;
}

export { encodePacket, encodeString };

interface ConnectOptions {
  username: string;
  clientId: string;
  secret?: string;
  clean?: boolean;
  name?: string;
  level?: number;
}

/** A CONNECT packet with username and password, and an hour without a packet: a setup may take long on a busy machine. */
export function encodeConnect({
  username,
  clientId,
  secret = password,
  clean = true,
  name = 'MQTT',
  level = 4,
}: ConnectOptions): Buffer {
  const head = Buffer.from([level, clean ? 0xc2 : 0xc0, 3600 >> 8, 3600 & 255]);
  return encodePacket(
    0x10,
    encodeString(name),
    head,
    Buffer.alloc(level === 5 ? 1 : 0),
    encodeString(clientId),
    encodeString(username),
    encodeString(secret),
  );
}

/** Notes all that a client gets. */
function recordMessages(client: MqttClient): Connected {
  const messages: Message[] = [];
  const received_qos: number[] = [];
  client.on('message', (topic: string, payload: Buffer, { retain, qos }: IPublishPacket) => {
    messages.push({ topic, text: payload.toString(), retain });
    received_qos.push(qos);
  });
  let isClosed = false;
  client.on('close', () => {
    isClosed = true;
  });
  return {
    client,
    messages,
    qos: received_qos,
    async publish(topic, payload, { qos = 1, retain = false } = {}) {
      const bytes = Buffer.isBuffer(payload) || typeof payload === 'string' ? payload : JSON.stringify(payload);
      await client.publishAsync(topic, bytes, { qos, retain });
    },
    subscribe: (filter, qos = 1) =>
      new Promise((resolve) => {
        client.subscribe(filter, { qos }, (_error, granted = [], packet) => {
          resolve((packet?.granted as number[] | undefined) ?? granted.map((one) => one.qos));
        });
      }),
    received: (count) =>
      waitFor(
        () => messages,
        ({ length }) => length >= count,
      ),
    closed: () => waitUntil(() => isClosed),
    async end() {
      await client.endAsync();
    },
  };
}

/** Opens clients that log in with `password` at the broker of `brokerUrl`, unless the options say otherwise. */
export function createClients(brokerUrl: string): Clients {
  const clients = new Set<MqttClient>();

  function open(username: string | undefined, { url = brokerUrl, ...options }: IClientOptions & { url?: string } = {}) {
    const login = username !== undefined && { username, password };
    const client = mqtt.connect(url, { ...login, reconnectPeriod: 0, connectTimeout: 60_000, ...options });
    clients.add(client);
    client.on('error', () => undefined);
    return client;
  }

  return {
    async connect(username, options) {
      const client = open(username, options);
      const connected = recordMessages(client);
      await new Promise<void>((resolve, reject) => {
        client.once('connect', () => resolve());
        client.once('error', reject);
        client.once('close', () => reject(new Error('closed')));
      });
      return connected;
    },
    refusal(username, options) {
      const client = open(username, options);
      return new Promise((resolve) => {
        client.once('connect', () => {
          resolve(0);
          client.end();
        });
        client.once('error', (error) => resolve((error as { code?: number }).code ?? -1));
        client.once('close', () => resolve(-1));
      });
    },
    close() {
      for (const client of clients) client.end(true);
    },
  };
}

/** Opens a TCP connection that notes all bytes. */
export async function openRawConnection(port: number, localAddress?: string): Promise<Raw> {
  const socket = connectTcp({ port, host: '127.0.0.1', ...(localAddress !== undefined && { localAddress }) });
  let received = Buffer.alloc(0);
  socket.on('data', (chunk: Buffer) => {
    received = Buffer.concat([received, chunk]);
  });
  socket.on('error', () => undefined);
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  await new Promise<void>((resolve, reject) => socket.once('connect', () => resolve()).once('error', reject));
  return {
    socket,
    closed,
    received: () => received,
    bytes: (count) =>
      waitFor(
        () => received,
        ({ length }) => length >= count,
      ),
  };
}

/** A broker on a port of its own, on the database of a test service; `fault` puts something else in the place of a part. */
export async function startMqtt(
  fault: (parts: { db: Database; record: RecordStreams }) => Fault = () => ({}),
): Promise<MqttService> {
  const service = await startTestService();
  const clock = () => service.now() * 1000;
  const above = createEnabledCache(service.store, clock);
  const real = createIngest({
    db: service.db,
    areAncestorsEnabled: above,
    metrics: { stored() {}, batch() {}, ingested() {} },
    clock,
  });
  const { database: db = service.db, record = real } = fault({ db: service.db, record: real });
  const keyring = openKeyring(db);
  const logged: string[] = [];
  const line = (fields: object, message: string) => logged.push(JSON.stringify([fields, message]));
  const drops = new Map<string, number>();
  const droppedFields = new Map<string, number>();
  const refusals = new Map<string, number>();
  let connections = 0;
  const broker = new Broker({
    db,
    ingest: record,
    link: service.link,
    areAncestorsEnabled: createEnabledCache({ ...createStore(db), hierarchy: service.store.hierarchy }, clock),
    keyring,
    verify: await createPasswordVerifier(clock),
    trusted_proxies: [`${proxy_address}/32`],
    // debug: a message that is repeated within a minute
    log: { debug: line, info: line, warn: line, error: line },
    metrics: {
      connections: (count) => {
        connections = count;
      },
      dropped(reason, field) {
        drops.set(reason, (drops.get(reason) ?? 0) + 1);
        if (field !== undefined) droppedFields.set(field, (droppedFields.get(field) ?? 0) + 1);
      },
      refused(reason) {
        refusals.set(reason, (refusals.get(reason) ?? 0) + 1);
      },
      published() {},
    },
    clock,
  });
  const port = await broker.listen('127.0.0.1', 0);
  const web = createServer((_request, response) => response.end('http'));
  web.on('upgrade', (request, socket, head) => broker.upgrade(request, socket, head));
  await new Promise<void>((resolve) => web.listen(0, '127.0.0.1', resolve));
  const clients = createClients(`mqtt://127.0.0.1:${port}`);
  const sockets = new Set<Socket>();
  let names = 0;

  return {
    service,
    broker,
    port,
    ws: `ws://127.0.0.1:${(web.address() as AddressInfo).port}/mqtt`,
    drops,
    droppedFields,
    refusals,
    connections: () => connections,
    logged,
    keyring,
    async account(name) {
      const api = await service.client({ account: name });
      const given = createFixtures(api);
      let group: string | undefined;
      return {
        api,
        async device(topics = [], fields = {}) {
          group ??= await given.group();
          const id = await given.device({ id_group: group, ...fields });
          const username = `user-${name}-${++names}`;
          const made = await api.post(pathOf('mqttdevices', id, 'credentials'), { username, password });
          if (made.body.code !== 2001) throw new Error(made.text);
          for (const topic of topics) await api.post(pathOf('mqttdevices', id, 'topics'), { name: topic });
          return {
            id,
            username,
            credentials: pathOf('mqttdevices', id, 'credentials'),
            topics: pathOf('mqttdevices', id, 'topics'),
          };
        },
      };
    },
    key: (account, scope) => issueKey(service.db, { account, username: 'alice', scope }, 0),
    connect: clients.connect,
    refusal: clients.refusal,
    async raw(localAddress) {
      const raw = await openRawConnection(port, localAddress);
      sockets.add(raw.socket);
      return raw;
    },
    async stored(device) {
      const found = await service.db
        .collection('streams')
        .find({ '_id.device': device }, { sort: { '_id.n': 1 } })
        .toArray();
      return found.map(({ data }) => data);
    },
    async stop() {
      clients.close();
      for (const socket of sockets) socket.destroy();
      await broker.close();
      web.closeAllConnections();
      await new Promise((resolve) => web.close(resolve));
      await service.stop();
    },
  };
}
