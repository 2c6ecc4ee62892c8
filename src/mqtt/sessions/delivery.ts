import type { CommandRef } from '../../commands/store.js';
import { awaitLater } from '../../lib/promises.js';
import type { Shares } from '../../lib/shares.js';
import type { Connection } from '../connection/connection.js';
import type { OutgoingMessage } from '../connection/encode.js';
import { reasons } from '../connection/reasons.js';
import type { Drop } from '../ingest.js';
import { canReceive } from '../login/permissions.js';
import { isCovering } from '../protocol/topics.js';
import { max_session_bytes, memorySizeOf, toOwnPayload } from './message-memory.js';
import type { AcceptedMessage } from './message-store.js';
import type { GrantedSubscription, Qos, Session } from './session.js';
import { isOfQueue, type QueuedPacket, type QueueOrigin } from './session-queue.js';

/** Origin of a message of QoS 1 or 2: the queue of the session, the commands of a device, or a publisher. */
export type Origin = QueueOrigin | { command: CommandRef } | undefined;

/** A message that is stored, and is delivered when the client has room for it. */
export interface StoredDelivery extends Omit<OutgoingMessage, 'packet_id'> {
  origin: Origin;
  /** It was sent under it before. */
  packet_id?: number | undefined;
}

/** The messages to one client. */
export interface Delivery {
  /**
   * Delivers a new message at the lower of its QoS and the granted one. A client that does not read is disconnected when
   * it is 1 MiB behind, and gets no messages of QoS 0 while its account has no memory for them (reference/mqtt.md#delivery).
   * @returns a promise while the client has not read what it has
   */
  deliver(message: AcceptedMessage, granted: Qos): Promise<unknown> | undefined;
  /** Delivers a message that is stored: in the queue of the session, as retained, or as command or state of a device. */
  deliverStored(message: StoredDelivery): Promise<void>;
  /** Delivers what waited for the client. */
  deliverQueue(waitUntilRead: () => Promise<boolean>): Promise<void>;
  /** The client has acknowledged a message. */
  onRoom(): void;
  /** The connection is about to end: nothing waits for the client any more. */
  stop(): void;
}

interface Options {
  rules: {
    isFresh(session: Session): boolean;
    dropped(session: Session, drop: Drop, topic: string): void;
    protocolError(session: Session, error: string): void;
    failed(error: unknown): void;
  };
  messageMemory: Shares;
}

/** Messages of QoS 1 and 2 that wait until a client without a persistent session has room. */
const max_backlog = 1000;

/** Creates the delivery to the client of a session. */
export function createDelivery(
  session: Session,
  connection: Connection<Origin>,
  { rules, messageMemory }: Options,
): Delivery {
  const { outbox } = session;
  let room: { promise: Promise<void>; open: () => void } | undefined;
  const backlog: AcceptedMessage[] = [];
  let backlog_bytes = 0;
  let isReading = false;
  let isStopped = false;

  function waitForRoom(): Promise<void> {
    if (room === undefined) {
      let open: () => void = () => undefined;
      const promise = new Promise<void>((resolve) => {
        open = resolve;
      });
      room = { promise, open };
    }
    return room.promise;
  }

  function send(message: AcceptedMessage, origin: Origin): void {
    const { topic, payload, qos } = message;
    const packet_id = qos === 0 ? 0 : connection.begin({ qos, origin, isReceived: false });
    connection.send({ topic, payload, qos, retain: false, dup: false, packet_id });
  }

  /** Sends a message that is in the queue of the session; at QoS 2 its packet id is stored before. */
  async function sendQueued(message: OutgoingMessage, origin: QueueOrigin): Promise<void> {
    if (message.qos === 2) await session.queue?.send(origin, message.packet_id);
    connection.send(message);
  }

  /** Counts a message for a client that has not read the previous ones. @returns false if it is left out */
  function holdMemory({ topic, payload, qos }: AcceptedMessage): boolean {
    const read = awaitLater(outbox.whenRead());
    if (read === undefined) return true;
    const isBehind = outbox.waiting_bytes >= max_session_bytes;
    const release = isBehind ? undefined : messageMemory.tryTake(session.account, memorySizeOf({ payload }));
    if (release !== undefined) {
      read.then(release, release);
      return true;
    }
    if (qos === 0) rules.dropped(session, { drop: 'queue_full' }, topic);
    if ((isBehind || qos > 0) && outbox.isOpen) {
      rules.protocolError(session, 'it does not read');
      session.end(reasons.quota);
    }
    return false;
  }

  function waitInBacklog(message: AcceptedMessage): void {
    const bytes = memorySizeOf(message);
    if (backlog.length >= max_backlog || backlog_bytes + bytes > max_session_bytes) {
      rules.dropped(session, { drop: 'queue_full' }, message.topic);
      return;
    }
    backlog.push({ ...message, payload: toOwnPayload(message.payload) });
    backlog_bytes += bytes;
  }

  function deliverNow(message: AcceptedMessage, isQueued: boolean): Promise<unknown> | undefined {
    const { id, topic, payload, qos } = message;
    const { queue } = session;
    if (session.revoked || isStopped) return undefined;
    if (!canReceive(session.permissions, topic)) {
      if (isQueued) queue?.remove({ message: id, size_bytes: payload.length });
      return undefined;
    }
    if (isQueued && !connection.hasRoom()) {
      queue?.suspend();
      deliverQueue(async () => true).catch(fail);
    } else if (qos > 0 && !isQueued && (backlog.length > 0 || !connection.hasRoom())) waitInBacklog(message);
    else if (holdMemory(message)) {
      if (!isQueued) send(message, undefined);
      else {
        const origin = { message: id, size_bytes: payload.length };
        const packet_id = connection.begin({ qos: qos as 1 | 2, origin, isReceived: false });
        sendQueued({ topic, payload, qos, retain: false, dup: false, packet_id }, origin).catch(fail);
      }
    }
    return outbox.whenRead();
  }

  /** The message waits for the next connection. */
  function fail(error: unknown): void {
    rules.failed(error);
    session.end(reasons.busy);
  }

  /** Permissions that are not fresh are read again before: a message that may not be delivered is deleted. */
  async function refresh(): Promise<void> {
    if (session.revoked || rules.isFresh(session)) return;
    await session.refresh();
  }

  async function deliverStored({ origin, packet_id: former, ...message }: StoredDelivery): Promise<void> {
    const { topic, payload, qos } = message;
    await refresh();
    while (!isStopped && qos > 0 && !connection.hasRoom()) await waitForRoom();
    if (isStopped || session.revoked || !rules.isFresh(session)) return;
    if (!canReceive(session.permissions, topic)) {
      if (isOfQueue(origin)) session.queue?.remove(origin);
      return;
    }
    if (!holdMemory({ ...message, id: '' })) return;
    const packet_id = qos === 0 ? 0 : connection.begin({ qos, origin, isReceived: false }, former);
    if (isOfQueue(origin)) await sendQueued({ ...message, payload, packet_id }, origin);
    else connection.send({ ...message, packet_id });
    await outbox.whenRead();
  }

  async function deliverQueue(waitUntilRead: () => Promise<boolean>): Promise<void> {
    if (session.queue === undefined || isReading || isStopped) return;
    isReading = true;
    try {
      for (let isRead = false; !isRead && !isStopped; ) {
        // until others forward new messages, they only queue them
        isRead = await waitUntilRead();
        for await (const packet of session.queue.read()) {
          if (isStopped) return;
          await deliverQueued(packet);
        }
      }
    } finally {
      isReading = false;
    }
  }

  async function deliverQueued(packet: QueuedPacket): Promise<void> {
    const { message } = packet;
    if ('released' in packet) {
      connection.sendRelease(packet.released, { message, size_bytes: 0 });
      return;
    }
    const { topic, payload, qos, dup, packet_id } = packet;
    const origin = { message, size_bytes: payload.length };
    await deliverStored({ topic, payload, qos, retain: false, dup, packet_id, origin });
  }

  function openRoom(): void {
    room?.open();
    room = undefined;
  }

  return {
    deliver(message, granted) {
      const qos = Math.min(granted, message.qos) as Qos;
      const isQueued = qos > 0 && message.id !== '' && session.queue !== undefined;
      if (isQueued && session.queue?.isDeliverable(message.id) === false) return undefined;
      const delivered = qos === message.qos ? message : { ...message, qos };
      if (session.revoked || rules.isFresh(session)) return deliverNow(delivered, isQueued);
      // without a queue there is no next connection that gets the message
      if (session.queue === undefined) return undefined;
      return refresh().then(() => deliverNow(delivered, isQueued), fail);
    },
    deliverStored,
    deliverQueue,
    onRoom() {
      openRoom();
      for (let [next] = backlog; next !== undefined && connection.hasRoom(); [next] = backlog) {
        backlog.shift();
        backlog_bytes -= memorySizeOf(next);
        if (canReceive(session.permissions, next.topic)) send(next, undefined);
      }
    },
    stop() {
      isStopped = true;
      openRoom();
    },
  };
}

/** @returns the highest granted QoS of the matching subscriptions, at most `max_qos`; undefined if none matches */
export function findGrantedQos(
  subscriptions: ReadonlyMap<string, GrantedSubscription>,
  topic: string,
  max_qos: Qos,
): Qos | undefined {
  let highest = subscriptions.get(topic)?.qos;
  if (highest !== undefined && highest >= max_qos) return max_qos;
  const levels = topic.split('/');
  for (const [filter, subscription] of subscriptions) {
    if (filter === topic || (highest !== undefined && subscription.qos <= highest)) continue;
    if (!isCovering(subscription.levels, levels)) continue;
    if (subscription.qos >= max_qos) return max_qos;
    highest = subscription.qos;
  }
  return highest;
}
