import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { generate, type Packet, parser } from 'mqtt-packet';
import { formatStreamTopic } from '../../src/mqtt/protocol/topics.js';
import { type LoadGenerator, type LoadResult, splitBody, summarizeLatencies } from './load.js';

/** A client that publishes with QoS 1, one message after the other. */
export interface Publisher {
  socket: Socket;
  publish(payload: string, messageId: number): void;
  onPuback: () => void;
  /** Subscribes at QoS 0; resolves when the broker has answered. */
  subscribe(filter: string): Promise<void>;
  onMessage: () => void;
}

/** Publishers by the URL of their broker: they stay connected, as a login costs as much as a hundred messages. */
const publishersOf = new Map<string, Publisher[]>();

/**
 * Publishes with QoS 1: the next message of a connection as soon as the one before is acknowledged. The paths of the requests
 * are identifiers of devices and user names at once; the header `password` is that of all.
 */
export const mqttGenerator: LoadGenerator = {
  name: 'mqtt-packet',
  async run({ url, requests, connections, seconds }): Promise<LoadResult> {
    const { paths, headers, body = '' } = requests;
    const parts = splitBody(body);
    const publishers = publishersOf.get(url) ?? [];
    publishersOf.set(url, publishers);
    while (publishers.length < connections) {
      const path = paths[publishers.length % paths.length] ?? '';
      publishers.push(await connectPublisher(url, path, headers.password ?? ''));
    }
    const latencies_ms: number[] = [];
    let sent = 0;
    const begun_at = performance.now();
    const isOver = () => performance.now() - begun_at > seconds * 1000;
    const finished = publishers.map(
      (publisher) =>
        new Promise<void>((resolve) => {
          let sent_at = 0;
          const send = () => {
            sent_at = performance.now();
            const number = sent++;
            const payload = parts.map((part, at) => (at % 2 === 1 ? number : part)).join('');
            publisher.publish(payload, (number % 65_535) + 1);
          };
          publisher.onPuback = () => {
            latencies_ms.push(performance.now() - sent_at);
            if (isOver()) resolve();
            else send();
          };
          publisher.socket.once('close', resolve);
          send();
        }),
    );
    await Promise.all(finished);
    const failed = publishers.filter(({ socket }) => socket.destroyed).length;
    return { ...summarizeLatencies(latencies_ms, (performance.now() - begun_at) / 1000), failed };
  },
};

/** Logs a client in. @param path user name, or the identifier of a device whose user name is the same */
export async function connectPublisher(url: string, path: string, password: string): Promise<Publisher> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname).setNoDelay();
  socket.on('error', () => undefined);
  const topic = formatStreamTopic(path, 'str');
  const publisher: Publisher = {
    socket,
    publish: (payload, messageId) =>
      socket.write(generate({ cmd: 'publish', qos: 1, dup: false, retain: false, topic, payload, messageId })),
    onPuback: () => undefined,
    subscribe: (topic) =>
      new Promise((resolve) => {
        onSuback = resolve;
        socket.write(generate({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic, qos: 0 }] }));
      }),
    onMessage: () => undefined,
  };
  let onSuback = () => {};
  const packets = parser();
  socket.on('data', (chunk) => packets.parse(chunk));
  const connected = new Promise<void>((resolve, reject) => {
    packets.on('packet', (packet: Packet) => {
      if (packet.cmd === 'puback') publisher.onPuback();
      else if (packet.cmd === 'publish') publisher.onMessage();
      else if (packet.cmd === 'suback') onSuback();
      else if (packet.cmd === 'connack' && packet.returnCode === 0) resolve();
      else reject(new Error(`${path}: ${packet.cmd}`));
    });
    socket.once('close', () => reject(new Error(`${path}: the connection was closed`)));
  });
  await once(socket, 'connect');
  const login = { username: path, password: Buffer.from(password), clientId: path };
  socket.write(
    generate({ cmd: 'connect', protocolId: 'MQTT', protocolVersion: 4, clean: true, keepalive: 0, ...login }),
  );
  await connected;
  return publisher;
}
