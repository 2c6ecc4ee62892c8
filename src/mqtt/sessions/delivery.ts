import type { CommandRef } from '../../commands/store.js';
import { awaitLater } from '../../lib/promises.js';
import type { Connection } from '../connection/connection.js';
import type { OutgoingMessage } from '../connection/encode.js';
import { max_session_bytes } from '../connection/input.js';
import { reasons } from '../connection/reasons.js';
import { isExpired, type MessageContent, type SharedMessage, sharesOf } from '../store/messages.js';
import type { BrokerDeps } from './broker-deps.js';
import type { FilterMatch } from './filter-tree.js';
import { memorySizeOf, toOwnPayload } from './message-memory.js';
import type { AcceptedMessage } from './message-store.js';
import { canReceive } from './permissions.js';
import type { Qos, Session } from './session.js';
import { findMatch } from './session-filters.js';
import { isOfQueue, type QueuedPacket, type QueueOrigin } from './session-queue.js';

/** Origin of a message of QoS 1 or 2: the queue of the session, the commands of a device, or a publisher. */
export type Origin = QueueOrigin | { command: CommandRef } | undefined;

/** A message that is stored, and is delivered when the client has room for it. */
export interface StoredDelivery extends MessageContent {
  /** It was retained. */
  retain: boolean;
  /** The shared subscriptions by which the client gets it. */
  shares?: readonly string[];
  is_redelivered?: true;
  dup?: boolean;
  origin?: Origin;
  /** It was sent under it before. */
  packet_id?: number | undefined;
  /** Asked before it is sent: it is left out if it has ended since it was read. */
  hasEnded?: ((hasWaited: boolean) => Promise<boolean>) | undefined;
}

interface Options extends Pick<BrokerDeps, 'rules' | 'messageMemory' | 'clock'> {
  /** Gives a message to other members of its shared subscriptions. @throws what the database throws */
  redeliver(message: SharedMessage): Promise<void>;
}

/** Messages of QoS 1 and 2 that wait until a client without a persistent session has room. */
const max_backlog = 1000;

/** The messages to the client of a session. */
export class Delivery {
  /** Wake those that wait until the client has acknowledged a message. */
  private readonly waiting: (() => void)[] = [];
  private readonly backlog: { message: AcceptedMessage; match: FilterMatch }[] = [];
  private backlog_bytes = 0;
  private isReading = false;
  private isStopped = false;
  /** The last of the messages that wait for fresh permissions. */
  private late: Promise<unknown> | undefined;

  constructor(
    readonly session: Session,
    private readonly connection: Connection<Origin>,
    private readonly options: Options,
  ) {}

  /**
   * Delivers a new message at the lower of its QoS and the granted one. A client that does not read is disconnected when
   * it is 1 MiB behind, and gets no messages of QoS 0 while its account has no memory for them (reference/mqtt.md#delivery).
   * @returns a promise while the client has not read what it has
   */
  deliver(message: AcceptedMessage, match: FilterMatch): Promise<unknown> | undefined {
    const { session } = this;
    const isQueued = message.qos > 0 && match.qos > 0 && message.id !== '' && session.queue !== undefined;
    if (isQueued && session.queue?.isDeliverable(message.id) === false) return undefined;
    const isAtOnce = session.revoked || (this.late === undefined && this.options.rules.isFresh(session));
    return isAtOnce ? this.deliverNow(message, match, isQueued) : this.deliverLate(message, match, isQueued);
  }

  /** Delivers a message that is stored: in the queue of the session, as retained, or as command or state of a device. */
  async deliverStored(message: StoredDelivery, match: FilterMatch): Promise<void> {
    const { session, connection, options } = this;
    const { topic, origin } = message;
    const qos = Math.min(message.qos, match.qos) as Qos;
    const mustWait = () => !this.isStopped && qos > 0 && !connection.hasRoom();
    let hasWaited = false;
    // a look at permissions that took long, or a wait for room, leaves them out of date
    do {
      await this.refresh();
      for (; mustWait(); hasWaited = true) await this.waitForRoom();
      if (!this.isStopped && (await message.hasEnded?.(hasWaited))) return;
      if (this.isStopped || session.revoked) return;
    } while (!options.rules.isFresh(session) || mustWait());
    // a message of QoS 2 that was sent before no longer expires (MQTT-4.3.3-7)
    const hasExpired = (qos < 2 || message.packet_id === undefined) && isExpired(message, options.clock());
    if (!canReceive(session.permissions, topic) || hasExpired) {
      if (isOfQueue(origin)) await this.drop(message, origin);
      return;
    }
    if (!this.holdMemory(message, qos)) return;
    const packet = this.begin(message, match, message.packet_id);
    if (isOfQueue(origin)) await this.sendQueued(packet, origin);
    else connection.send(packet);
    await session.outbox.whenRead();
  }

  /** Delivers what waited for the client. */
  async deliverQueue(waitUntilRead: () => Promise<boolean>): Promise<void> {
    const { queue } = this.session;
    if (queue === undefined || this.isReading || this.isStopped) return;
    this.isReading = true;
    try {
      for (let isRead = false; !isRead && !this.isStopped; ) {
        // until others forward new messages, they only queue them
        isRead = await waitUntilRead();
        for await (const packet of queue.read()) {
          if (this.isStopped) return;
          await this.deliverQueued(packet);
        }
      }
    } finally {
      this.isReading = false;
    }
  }

  /** The client has acknowledged a message. */
  onRoom(): void {
    const { session, connection, backlog, options } = this;
    this.wakeWaiting();
    for (let [next] = backlog; next !== undefined && connection.hasRoom(); [next] = backlog) {
      const { message, match } = next;
      backlog.shift();
      this.backlog_bytes -= memorySizeOf(message);
      if (!canReceive(session.permissions, message.topic) || isExpired(message, options.clock())) continue;
      const retain = message.retain && match.retain_as_published === true;
      connection.send(this.begin({ ...message, retain }, match));
    }
  }

  /** The connection is about to end: nothing waits for the client any more. */
  stop(): void {
    this.isStopped = true;
    this.wakeWaiting();
  }

  private waitForRoom(): Promise<void> {
    return new Promise<void>((resolve) => void this.waiting.push(resolve));
  }

  private wakeWaiting(): void {
    for (const wake of this.waiting.splice(0)) wake();
  }

  /** Gives a message its packet id. @param former under which it was sent before */
  private begin(message: StoredDelivery, match: FilterMatch, former?: number): OutgoingMessage {
    const { topic, payload, retain, dup = false, origin, properties, expires_at } = message;
    const qos = Math.min(message.qos, match.qos) as Qos;
    return {
      topic,
      payload,
      qos,
      retain,
      dup,
      packet_id: qos === 0 ? 0 : this.connection.begin({ qos, origin }, former),
      properties,
      expiry_s: expires_at && Math.max(0, Math.ceil((expires_at.getTime() - this.options.clock()) / 1000)),
      subscription_ids: match.ids,
    };
  }

  /** Sends a message that is in the queue of the session; at QoS 2 its packet id is stored before. */
  private async sendQueued(message: OutgoingMessage, origin: QueueOrigin): Promise<void> {
    if (message.qos === 2) await this.session.queue?.send(origin, message.packet_id);
    this.connection.send(message);
  }

  /** Counts a message for a client that has not read the previous ones. @returns false if it is left out */
  private holdMemory({ topic, payload }: Pick<AcceptedMessage, 'topic' | 'payload'>, qos: Qos): boolean {
    const { session, options } = this;
    const { outbox } = session;
    const read = awaitLater(outbox.whenRead());
    if (read === undefined) return true;
    const isBehind = outbox.waitingBytes() >= max_session_bytes;
    const release = isBehind ? undefined : options.messageMemory.tryTake(session.account, memorySizeOf({ payload }));
    if (release !== undefined) {
      read.then(release, release);
      return true;
    }
    if (qos === 0) options.rules.dropped(session, { drop: 'queue_full' }, topic);
    if ((isBehind || qos > 0) && outbox.isOpen()) {
      options.rules.protocolError(session, 'it does not read');
      session.end(reasons.quota);
    }
    return false;
  }

  /** Takes a message that the client may not have out of its queue; another member of a shared subscription gets it instead. */
  private async drop(message: StoredDelivery, origin: QueueOrigin): Promise<void> {
    if (message.shares?.length && !message.is_redelivered) await this.options.redeliver(message);
    this.session.queue?.remove(origin);
  }

  private waitInBacklog(message: AcceptedMessage, match: FilterMatch): void {
    const bytes = memorySizeOf(message);
    if (this.backlog.length >= max_backlog || this.backlog_bytes + bytes > max_session_bytes) {
      this.options.rules.dropped(this.session, { drop: 'queue_full' }, message.topic);
      return;
    }
    this.backlog.push({ message: { ...message, payload: toOwnPayload(message.payload) }, match });
    this.backlog_bytes += bytes;
  }

  private deliverNow(message: AcceptedMessage, match: FilterMatch, isQueued: boolean): Promise<unknown> | undefined {
    const { session, connection } = this;
    const { id, topic, payload } = message;
    const { queue } = session;
    if (session.revoked || this.isStopped) return undefined;
    const qos = Math.min(message.qos, match.qos) as Qos;
    const origin = isQueued ? { message: id, size_bytes: payload.length } : undefined;
    if (!canReceive(session.permissions, topic)) {
      const shares = sharesOf(message, session.client_id);
      if (origin !== undefined) this.drop({ ...message, shares }, origin).catch(this.fail);
    } else if (isQueued && !connection.hasRoom()) {
      queue?.suspend();
      this.deliverQueue(async () => true).catch(this.fail);
    } else if (qos > 0 && !isQueued && (this.backlog.length > 0 || !connection.hasRoom()))
      this.waitInBacklog(message, match);
    else if (this.holdMemory(message, qos)) {
      const retain = message.retain && match.retain_as_published === true;
      const packet = this.begin({ ...message, retain, origin }, match);
      if (origin === undefined) connection.send(packet);
      else this.sendQueued(packet, origin).catch(this.fail);
    }
    return session.outbox.whenRead();
  }

  /** The message waits for the next connection. */
  private readonly fail = (error: unknown): void => this.options.rules.endFailed(this.session, error);

  /** Permissions that are not fresh are read again before: a message that may not be delivered is deleted. */
  private async refresh(): Promise<void> {
    if (this.session.revoked || this.options.rules.isFresh(this.session)) return;
    await this.session.refresh();
  }

  /** Delivers a message once permissions are fresh, in its order. */
  private deliverLate(message: AcceptedMessage, match: FilterMatch, isQueued: boolean): Promise<unknown> {
    const begun = awaitLater(
      (this.late ?? Promise.resolve())
        .then(() => this.refresh())
        .then(() => ({ read: awaitLater(this.deliverNow(message, match, isQueued)) }))
        .catch(this.fail),
    );
    this.late = begun;
    return begun.then((delivered) => {
      if (this.late === begun) this.late = undefined;
      return delivered?.read;
    });
  }

  private async deliverQueued(packet: QueuedPacket): Promise<void> {
    if ('released' in packet) {
      this.connection.sendRelease(packet.released, { message: packet.message, size_bytes: 0 });
      return;
    }
    // it is delivered though the subscription has ended since
    const match = findMatch(this.session.subscriptions, packet.topic);
    const retain = packet.retain === true && match?.retain_as_published === true;
    const origin = { message: packet.message, size_bytes: packet.size_bytes };
    await this.deliverStored({ ...packet, retain, origin }, { ...match, qos: packet.qos });
  }
}
