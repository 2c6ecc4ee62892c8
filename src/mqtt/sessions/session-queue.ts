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
export class SessionQueue {
  private readonly session: string;
  /** Messages found in the queue by `read`. */
  private readonly found = new Set<string>();
  /** The last removal; those before it are durable sooner. */
  private removed: Promise<void> | undefined;
  private isReading: boolean;
  private hasArrived = false;

  constructor(private readonly options: Options) {
    this.session = options.record.state.session;
    this.isReading = !options.isNew;
  }

  /**
   * Reports whether a new message is to be delivered now. While the queue is being read it is not: it comes in its order.
   */
  isDeliverable(message: string): boolean {
    if (this.isReading) this.hasArrived = true;
    return !this.isReading && !this.found.has(joinKey(this.session, message));
  }

  /** New messages come in their order after the next `read`. */
  suspend(): void {
    this.isReading = true;
    this.hasArrived = true;
  }

  /** Records the packet id of a message of QoS 2 durably before it is sent: it must not be sent under two. */
  async send({ message }: QueueOrigin, packet_id: number): Promise<void> {
    await this.options.writer.changeQueue({ _id: joinKey(this.session, message), packet_id });
  }

  /** Records PUBREC durably: only PUBREL is sent from now on. */
  async receive(origin: QueueOrigin, packet_id: number): Promise<void> {
    this.shrink(0, origin.size_bytes);
    origin.size_bytes = 0;
    await this.options.writer.changeQueue({ _id: joinKey(this.session, origin.message), packet_id, released: true });
  }

  /** Deletes a message that is acknowledged, or that the client may no longer get. */
  remove({ message, size_bytes }: QueueOrigin): void {
    const { writer, failed } = this.options;
    this.shrink(1, size_bytes);
    this.removed = writer.changeQueue({ _id: joinKey(this.session, message), acknowledged: true }).catch(failed);
  }

  /** Reads what is queued and was not sent on this connection, in order. Messages that arrive during the read follow. */
  async *read(): AsyncGenerator<QueuedPacket> {
    this.isReading = true;
    for (let count = 1; count > 0 || this.hasArrived; ) {
      this.hasArrived = false;
      const sent = [...this.findSent()].map(({ _id }) => _id);
      const messages = await findQueued(this.options.db, this.session, [...this.found, ...sent]);
      count = messages.length;
      for (const message of messages) yield this.toPacket(message);
    }
    this.isReading = false;
  }

  /** Waits until the removed messages are gone. */
  async whenRemoved(): Promise<void> {
    await this.removed;
  }

  /** Stores the packet ids of messages that were not acknowledged, so that they are sent again under them. */
  async close(): Promise<void> {
    const sent = [...this.findSent()].filter(({ qos }) => qos === 1);
    await Promise.all(sent.map(({ _id, packet_id }) => this.options.writer.changeQueue({ _id, packet_id })));
  }

  private *findSent(): Iterable<{ packet_id: number; qos: 1 | 2; _id: string }> {
    for (const [packet_id, { qos, origin }] of this.options.unacknowledged())
      if (isOfQueue(origin)) yield { packet_id, qos, _id: joinKey(this.session, origin.message) };
  }

  /** A message has left the queue, or lost its payload. */
  private shrink(messages: number, bytes: number): void {
    const { length } = this.options.record;
    if (length === undefined) return;
    length.messages = Math.max(0, length.messages - messages);
    length.bytes = Math.max(0, length.bytes - bytes);
  }

  private noteFound(_id: string): void {
    this.found.add(_id);
    const [oldest] = this.found;
    if (this.found.size > max_found && oldest !== undefined) this.found.delete(oldest);
  }

  private toPacket({ _id, packet_id, released, ...entry }: QueuedMessage): QueuedPacket {
    const message = _id.slice(this.session.length + 1);
    this.noteFound(_id);
    if (released === true && packet_id !== undefined) return { message, released: packet_id };
    const dup = this.options.wasCut || packet_id !== undefined;
    return { ...entry, message, dup, ...(packet_id !== undefined && { packet_id }) };
  }
}
