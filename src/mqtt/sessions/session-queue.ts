import type { Database } from '../../db/database.js';
import type { Unacknowledged } from '../connection/connection.js';
import { joinKey } from '../store/keys.js';
import { findQueued, type QueuedMessage, type QueueLength } from '../store/queue.js';
import type { StateWriter } from './state-writer.js';

/** Messages found in the queue that may still be handed over live, too. */
const max_found = 4000;

/** A message of the queue that is on its way to the client. */
export interface QueueOrigin {
  message: string;
  size_bytes: number;
}

/** Entry of a queue: a message, with its packet id if it was sent, or the packet id of a PUBREL. */
export type QueuedPacket =
  | (Omit<QueuedMessage, '_id' | 'released'> & { message: string; dup: boolean })
  | { message: string; released: number };

interface Options {
  /** The session, and the length of its queue where that is known. */
  record: { readonly state: { readonly session: string }; readonly length?: QueueLength };
  /** The last connection ended with its instance: what was sent is unknown. */
  wasCut: boolean;
  /** Nothing is queued. */
  isNew: boolean;
  db: Database;
  writer: Pick<StateWriter, 'changeQueue'>;
  /** Reports an error that no caller awaits. */
  failed(error: unknown): void;
  /** Messages on their way to the client by packet id. */
  unacknowledged(): Iterable<[number, Unacknowledged<unknown>]>;
}

/** Reports whether a message on its way to a client comes from the queue of its session. */
export const isOfQueue = (origin: unknown): origin is QueueOrigin =>
  typeof origin === 'object' && origin !== null && 'message' in origin;

/** The messages that the client of a persistent session has not acknowledged, during one connection. */
export type SessionQueue = ReturnType<typeof openSessionQueue>;

/** Opens the queue for a connection of its session. */
export function openSessionQueue(options: Options) {
  const { db, record, wasCut, isNew, unacknowledged, failed } = options;
  const { changeQueue } = options.writer;
  const { session } = record.state;
  /** Messages found in the queue by `read`. */
  const found = new Set<string>();
  /** The last removal; those before it are durable sooner. */
  let removed: Promise<void> | undefined;
  let isReading = !isNew;
  let hasArrived = false;

  function* findSent(): Iterable<{ packet_id: number; qos: 1 | 2; _id: string }> {
    for (const [packet_id, { qos, origin }] of unacknowledged())
      if (isOfQueue(origin)) yield { packet_id, qos, _id: joinKey(session, origin.message) };
  }

  /** A message has left the queue, or lost its payload. */
  function shrink(messages: number, bytes: number): void {
    const { length } = record;
    if (length === undefined) return;
    length.messages = Math.max(0, length.messages - messages);
    length.bytes = Math.max(0, length.bytes - bytes);
  }

  function noteFound(_id: string): void {
    found.add(_id);
    const [oldest] = found;
    if (found.size > max_found && oldest !== undefined) found.delete(oldest);
  }

  function toPacket({ _id, packet_id, released, ...entry }: QueuedMessage): QueuedPacket {
    const message = _id.slice(session.length + 1);
    noteFound(_id);
    if (released === true && packet_id !== undefined) return { message, released: packet_id };
    const dup = wasCut || packet_id !== undefined;
    return { ...entry, message, dup, ...(packet_id !== undefined && { packet_id }) };
  }

  return {
    /**
     * Reports whether a new message is to be delivered now. While the queue is being read it is not: it comes in its order.
     */
    isDeliverable(message: string): boolean {
      if (isReading) hasArrived = true;
      return !isReading && !found.has(joinKey(session, message));
    },
    /** New messages come in their order after the next `read`. */
    suspend(): void {
      isReading = true;
      hasArrived = true;
    },
    /** Records the packet id of a message of QoS 2 durably before it is sent: it must not be sent under two. */
    async send({ message }: QueueOrigin, packet_id: number): Promise<void> {
      await changeQueue({ _id: joinKey(session, message), packet_id });
    },
    /** Records PUBREC durably: only PUBREL is sent from now on. */
    async receive(origin: QueueOrigin, packet_id: number): Promise<void> {
      shrink(0, origin.size_bytes);
      origin.size_bytes = 0;
      await changeQueue({ _id: joinKey(session, origin.message), packet_id, released: true });
    },
    /** Deletes a message that is acknowledged, or that the client may no longer get. */
    remove({ message, size_bytes }: QueueOrigin): void {
      shrink(1, size_bytes);
      removed = changeQueue({ _id: joinKey(session, message), acknowledged: true }).catch(failed);
    },
    /** Reads what is queued and was not sent on this connection, in order. Messages that arrive during the read follow. */
    async *read(): AsyncGenerator<QueuedPacket> {
      isReading = true;
      for (let count = 1; count > 0 || hasArrived; ) {
        hasArrived = false;
        const sent = [...findSent()].map(({ _id }) => _id);
        const messages = await findQueued(db, session, [...found, ...sent]);
        count = messages.length;
        for (const message of messages) yield toPacket(message);
      }
      isReading = false;
    },
    /** Waits until the removed messages are gone. */
    whenRemoved: async () => removed,
    /** Stores the packet ids of messages that were not acknowledged, so that they are sent again under them. */
    async close(): Promise<void> {
      const sent = [...findSent()].filter(({ qos }) => qos === 1);
      await Promise.all(sent.map(({ _id, packet_id }) => changeQueue({ _id, packet_id })));
    },
  };
}
