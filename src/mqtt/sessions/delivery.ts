import type { AedesPublishPacket, Client } from 'aedes';
import { messageIdOf } from '../protocol/message-ids.js';
import { isCovering } from '../protocol/topics.js';
import type { GrantedSubscription, Qos, Session } from './session.js';

/**
 * QoS of every subscription as aedes sees it. It limits a delivery to the QoS of a subscription that it looks up by topic
 * instead of by filter; this value keeps it from doing so, and `limitDeliveryQos` applies the granted QoS.
 */
export const unlimited_qos: Qos = 2;

/** A packet as aedes delivers it. */
export type DeliveredPacket = Pick<AedesPublishPacket, 'cmd' | 'topic' | 'payload' | 'qos' | 'retain' | 'dup'> & {
  messageId?: number | undefined;
};

type Deliver = (packet: DeliveredPacket, done: () => void) => void;

/**
 * Delivers each message to a client at the lower of its QoS and the highest granted one (reference/mqtt.md#delivery).
 * @returns the function that delivers what waited in the queue of the session
 */
export function limitDeliveryQos(
  client: Client,
  session: Session,
  isFresh: (session: Session) => boolean,
): (packet: DeliveredPacket) => Promise<void> {
  const aedesClient = client as unknown as { deliverQoS: Deliver };
  const deliverNow = aedesClient.deliverQoS;

  /** aedes deletes a message that may not be delivered: with a queue, permissions are read again before. */
  const deliver: Deliver = (packet, done) => {
    if (session.queue === undefined || session.revoked || isFresh(session)) {
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

  aedesClient.deliverQoS = (packet, done) => {
    const granted = grantedQos(session.subscriptions, packet.topic, packet.qos);
    const message = messageIdOf(packet);
    const isQueued = granted !== undefined && granted > 0 && message !== undefined && session.queue !== undefined;
    if (granted === undefined || (isQueued && session.queue?.isDeliverable(message) === false)) {
      setImmediate(done);
      return;
    }
    packet.qos = granted;
    deliver(packet, done);
  };
  return (packet) => new Promise((resolve) => deliver(packet, resolve));
}

/** @returns the highest granted QoS of the matching subscriptions, at most `max_qos`; undefined if none matches */
function grantedQos(
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
