import type { Socket } from 'node:net';
import { Connection } from '../../src/mqtt/connection/connection.js';
import { encodeConnack } from '../../src/mqtt/connection/encode.js';
import { createFrameReader } from '../../src/mqtt/connection/frames.js';
import { type ConnectPacket, parsePacket, type Qos } from '../../src/mqtt/connection/packets.js';
import { isCovering } from '../../src/mqtt/protocol/topics.js';

interface Message {
  topic: string;
  payload: Buffer;
  qos: Qos;
  retain: boolean;
  dup: boolean;
}

interface BareSession {
  clean: boolean;
  filters: Map<string, Qos>;
  /** Messages that the client has not acknowledged. */
  waiting: Message[];
  connection: Connection<Message> | undefined;
}

/** A broker of MQTT 3.1.1 without logins, rights and limits. */
export interface BareBroker {
  handle(socket: Socket): void;
  close(): void;
}

/** Opens a broker that has everything in memory. @param store is awaited before a message is acknowledged */
export function openBareBroker(store: (message: Message) => Promise<unknown> = async () => undefined): BareBroker {
  const sessions = new Map<string, BareSession>();
  const retained = new Map<string, Message>();
  const sockets = new Set<Socket>();

  function send({ connection }: BareSession, message: Message): void {
    const { qos } = message;
    const packet_id = qos === 0 ? 0 : connection?.begin({ qos, origin: message });
    connection?.send({ ...message, packet_id: packet_id ?? 0 });
  }

  function deliver(session: BareSession, message: Message): void {
    const covers = (filter: string) => isCovering(filter.split('/'), message.topic.split('/'));
    const granted = [...session.filters].filter(([filter]) => covers(filter)).map(([, qos]) => qos);
    if (granted.length === 0) return;
    const own = { ...message, qos: Math.min(message.qos, Math.max(...granted)) as Qos };
    if (session.connection !== undefined) send(session, own);
    else if (own.qos > 0 && !session.clean) session.waiting.push(own);
  }

  function openSession(socket: Socket, { client_id, clean, level }: ConnectPacket): Connection<Message> {
    const former = clean ? undefined : sessions.get(client_id);
    const session: BareSession = former ?? { clean, filters: new Map(), waiting: [], connection: undefined };
    const limits = { receive_maximum: 65_535, max_packet_bytes: Number.POSITIVE_INFINITY, topic_alias_maximum: 0 };
    const connection = new Connection<Message>(
      { ...limits, level, wants_problem_information: false },
      {
        write: (bytes) => void socket.write(bytes),
        async publish({ topic, payload, qos, retain }) {
          const message = { topic, payload: Buffer.from(payload), qos, retain: false, dup: false };
          await store(message);
          if (retain) retained.set(topic, { ...message, retain });
          for (const other of sessions.values()) deliver(other, message);
          return { acknowledgement: { reason: 0 } };
        },
        release: async () => true,
        async subscribe({ filters }, granted) {
          for (const { filter, qos } of filters) session.filters.set(filter, qos);
          granted(filters.map(({ qos }) => qos));
          for (const message of retained.values()) deliver(session, message);
        },
        async unsubscribe(filters) {
          return filters.map((filter) => (session.filters.delete(filter) ? 0 : 0x11));
        },
        received: async () => undefined,
        acknowledged: () => undefined,
        hasRoom: () => undefined,
        disconnect: () => void socket.end(),
        fail: () => void socket.destroy(),
      },
    );
    sessions.set(client_id, session);
    session.connection = connection;
    socket.write(encodeConnack(former !== undefined));
    for (const message of session.waiting.splice(0)) send(session, { ...message, dup: true });
    socket.once('close', () => {
      if (session.connection !== connection) return;
      session.connection = undefined;
      session.waiting.push(...[...connection.unacknowledged()].map(([, { origin }]) => origin));
      if (clean) sessions.delete(client_id);
    });
    return connection;
  }

  return {
    handle(socket) {
      const split = createFrameReader(Number.POSITIVE_INFINITY);
      let connection: Connection<Message> | undefined;
      sockets.add(socket);
      socket.on('error', () => undefined).once('close', () => sockets.delete(socket));
      socket.on('data', (chunk) => {
        for (const bytes of split(chunk).packets) {
          if (connection === undefined) connection = openSession(socket, parsePacket(bytes, 4) as ConnectPacket);
          else connection.handle(bytes)?.catch(() => socket.destroy());
        }
      });
    },
    close() {
      for (const socket of sockets) socket.destroy();
    },
  };
}
