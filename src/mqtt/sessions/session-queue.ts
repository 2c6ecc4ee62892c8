import type { Database } from '../../db/database.js';
import { messageIdOf } from '../protocol/message-ids.js';
import { findQueued, type QueueChange, type QueuedMessage, queueIdOf } from '../store/queue.js';

const max_packet_id = 65_535;

/** Queues a change of a queued message; resolves when it is durable. */
export type SubmitQueueChange = (change: QueueChange) => Promise<void>;

interface SentMessage {
  message: string;
  qos: 1 | 2;
  size_bytes: number;
}

/** A message of QoS 1 or 2 on its way to the client. */
export interface OutgoingPacket {
  cmd: 'publish';
  topic: string;
  payload: Buffer;
  qos: 1 | 2;
  messageId: number;
}

/** Entry of a queue: a message, with its packet id if it was sent, or the packet id of a PUBREL. */
export type QueuedPacket =
  | { message: string; topic: string; payload: Buffer; qos: 1 | 2; dup: boolean; messageId: number | undefined }
  | { released: number };

/** The messages that the client of a persistent session has not acknowledged, during one connection. */
export interface SessionQueue {
  /**
   * Reports whether a new message is to be delivered now. While the queue is being read it is not: it comes in its order.
   */
  isDeliverable(message: string): boolean;
  /** Records the packet id of a message before it is sent; at QoS 2 durably, for a message must not be sent under two. */
  send(packet: OutgoingPacket, message: string | undefined): Promise<void>;
  /** Records PUBREC durably: only PUBREL is sent from now on. */
  receive(packet_id: number): Promise<void>;
  /** Reports whether a message that is not acknowledged has the packet id. */
  isInUse(packet_id: number): boolean;
  /** Deletes what PUBACK or PUBCOMP acknowledges. */
  acknowledge(packet_id: number): void;
  /** Deletes a message that the client may no longer get. */
  withdraw(packet: { qos: number; payload: string | Buffer }): void;
  /** Reads what is queued and was not sent on this connection, in order. Messages that arrive during the read follow. */
  read(): AsyncGenerator<QueuedPacket>;
  /** Stores the packet ids of messages that were not acknowledged, so that they are sent again under them. */
  close(): Promise<void>;
}

interface Deps {
  db: Database;
  submitQueueChange: SubmitQueueChange;
  /** A message has left the queue, or lost its payload. */
  shrink(messages: number, bytes: number): void;
  /** Reports an error that no caller awaits. */
  failed(error: unknown): void;
}

/** @param wasCut the last connection ended with its instance: what was sent is unknown */
export function openSessionQueue(
  { db, submitQueueChange, shrink, failed }: Deps,
  session: string,
  wasCut: boolean,
): SessionQueue {
  const sent = new Map<number, SentMessage>();
  /** Messages found in the queue by `read`. */
  const found = new Set<string>();
  let isReading = true;
  let hasArrived = false;

  function remove(message: string, size_bytes: number): void {
    shrink(1, size_bytes);
    submitQueueChange({ _id: queueIdOf(session, message), acknowledged: true }).catch(failed);
  }

  function toPacket({ _id, topic, payload, qos, packet_id, released }: QueuedMessage): QueuedPacket {
    const message = _id.slice(session.length + 1);
    found.add(_id);
    if (released === true && packet_id !== undefined) {
      sent.set(packet_id, { message, qos: 2, size_bytes: 0 });
      return { released: packet_id };
    }
    return { message, topic, payload, qos, messageId: packet_id, dup: wasCut || packet_id !== undefined };
  }

  return {
    isDeliverable(message) {
      if (isReading) hasArrived = true;
      return !isReading && !found.has(queueIdOf(session, message));
    },
    async send(packet, message) {
      if (message === undefined) return;
      // a packet id of an earlier connection may be in use
      while (sent.has(packet.messageId) && sent.get(packet.messageId)?.message !== message)
        packet.messageId = (packet.messageId % max_packet_id) + 1;
      const { messageId: packet_id, qos, payload } = packet;
      sent.set(packet_id, { message, qos, size_bytes: payload.length });
      if (qos === 2) await submitQueueChange({ _id: queueIdOf(session, message), packet_id });
    },
    async receive(packet_id) {
      const entry = sent.get(packet_id);
      if (entry === undefined) return;
      shrink(0, entry.size_bytes);
      entry.size_bytes = 0;
      await submitQueueChange({ _id: queueIdOf(session, entry.message), packet_id, released: true });
    },
    isInUse: (packet_id) => sent.has(packet_id),
    acknowledge(packet_id) {
      const entry = sent.get(packet_id);
      if (entry === undefined) return;
      sent.delete(packet_id);
      remove(entry.message, entry.size_bytes);
    },
    withdraw(packet) {
      const message = messageIdOf(packet);
      if (message !== undefined && packet.qos > 0) remove(message, packet.payload.length);
    },
    async *read() {
      isReading = true;
      for (let count = 1; count > 0 || hasArrived; ) {
        hasArrived = false;
        const known = [...sent.values()].map(({ message }) => queueIdOf(session, message));
        const messages = await findQueued(db, session, [...found, ...known]);
        count = messages.length;
        for (const message of messages) yield toPacket(message);
      }
      isReading = false;
    },
    async close() {
      const changes = [...sent]
        .filter(([, { qos }]) => qos === 1)
        .map(([packet_id, { message }]) => ({ _id: queueIdOf(session, message), packet_id }));
      await Promise.all(changes.map(submitQueueChange));
    },
  };
}
