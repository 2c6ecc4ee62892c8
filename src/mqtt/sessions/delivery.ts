import type { AedesPublishPacket, Client } from 'aedes';
import type { Shares } from '../../lib/shares.js';
import type { Drop } from '../ingest.js';
import { messageIdOf } from '../protocol/message-ids.js';
import { isCovering } from '../protocol/topics.js';
import { max_session_bytes, memorySizeOf, toOwnPayload } from './message-memory.js';
import type { GrantedSubscription, Qos, Session } from './session.js';

/**
 * QoS of every subscription as aedes sees it. It limits a delivery to the QoS of a subscription that it looks up by topic
 * instead of by filter; this value keeps it from doing so, and `limitDelivery` applies the granted QoS.
 */
export const unlimited_qos: Qos = 2;

/** A packet as aedes delivers it. */
export type DeliveredPacket = Pick<AedesPublishPacket, 'cmd' | 'topic' | 'payload' | 'qos' | 'retain' | 'dup'> & {
  messageId?: number | undefined;
};

type Deliver = (packet: DeliveredPacket, done: () => void) => void;

interface Options {
  rules: {
    isFresh(session: Session): boolean;
    dropped(session: Session, drop: Drop, topic: string): void;
    protocolError(session: Session, error: string): void;
  };
  messageMemory: Shares;
}

/**
 * Delivers each message to a client at the lower of its QoS and the highest granted one. A client that does not read is
 * disconnected when it is 1 MiB behind, and gets no messages of QoS 0 while its account has no memory for them
 * (reference/mqtt.md#delivery).
 * @returns the function that delivers what is stored: in the queue of the session, or as command or state of a device
 */
export function limitDelivery(
  client: Client,
  session: Session,
  { rules, messageMemory }: Options,
): (packet: DeliveredPacket) => Promise<void> {
  const aedesClient = client as unknown as { deliverQoS: Deliver };
  const deliverNow = aedesClient.deliverQoS;

  /** aedes deletes a message that may not be delivered: permissions that are not fresh are read again before. */
  const deliverSafely: Deliver = (packet, done) => {
    if (session.revoked || rules.isFresh(session)) {
      deliverNow(packet, done);
      return;
    }
    session.refresh().then(
      () => deliverNow(packet, done),
      () => {
        // the message waits for the next connection
        session.stream.destroy();
        done();
      },
    );
  };
  /** Without a queue there is no next connection that gets the message. */
  const deliver: Deliver = (packet, done) => (session.queue === undefined ? deliverNow : deliverSafely)(packet, done);

  aedesClient.deliverQoS = (packet, done) => {
    const granted = findGrantedQos(session.subscriptions, packet.topic, packet.qos);
    const message = messageIdOf(packet);
    const isQueued = granted !== undefined && granted > 0 && message !== undefined && session.queue !== undefined;
    if (granted === undefined || (isQueued && session.queue?.isDeliverable(message) === false)) {
      setImmediate(done);
      return;
    }
    packet.qos = granted;
    if (client.conn.writableLength === 0) deliver(packet, done);
    else deliverLater(packet, done);
  };

  /** Delivers a message to a client that has not read the previous ones. */
  function deliverLater(packet: DeliveredPacket, done: () => void): void {
    const isBehind = client.conn.writableLength >= max_session_bytes;
    const release = isBehind ? undefined : messageMemory.tryTake(session.account, memorySizeOf(packet));
    if (release === undefined) {
      if (packet.qos === 0) rules.dropped(session, { drop: 'queue_full' }, packet.topic);
      if ((isBehind || packet.qos > 0) && !session.stream.destroyed) {
        rules.protocolError(session, 'it does not read');
        session.stream.destroy();
      }
      setImmediate(done);
      return;
    }
    packet.payload = toOwnPayload(packet.payload);
    deliver(packet, () => {
      release();
      done();
    });
  }

  return (packet) => new Promise((resolve) => deliverSafely(packet, resolve));
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
