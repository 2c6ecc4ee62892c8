import { Readable } from 'node:stream';
import type { Aedes, AedesPublishPacket, PublishPacket, Subscription } from 'aedes';
import { createRetainedMessages } from './retained-messages.js';
import type { Qos } from './session.js';

const max_queued = 1000;
const max_queued_bytes = 1024 * 1024;

interface ClientRef {
  id: string;
}

interface QueuedPacket extends Pick<AedesPublishPacket, 'cmd' | 'topic' | 'payload' | 'qos'> {
  brokerId?: string;
  brokerCounter?: number;
  messageId?: number | undefined;
  dup?: boolean;
}

/** The part of the persistence of aedes that is used or replaced here. */
export interface Persistence {
  subscriptionsByClient(client: ClientRef): Promise<Subscription[]>;
  addSubscriptions(client: ClientRef, subscriptions: readonly Subscription[]): Promise<void>;
  cleanSubscriptions(client: ClientRef): Promise<void>;
  cleanIncoming(client: ClientRef): Promise<void>;
  incomingGetPacket(client: ClientRef, packet: PublishPacket): Promise<unknown>;
  storeRetained(packet: PublishPacket): Promise<void>;
  createRetainedStreamCombi(filters: readonly string[]): Readable;
}

/** Stored state of persistent sessions, and retained messages. */
export interface SessionStore extends Persistence {
  /** Marks a subscription as granted; others are not stored. */
  grant(subscription: Subscription): void;
  /** Records before CONNACK whether a client continues a session. */
  setResumed(client_id: string, isResumed: boolean): void;
  /** Deletes a session with its queued messages. */
  deleteSession(client_id: string): Promise<void>;
}

/**
 * Replaces the subscriptions of a resumed session that has none: aedes sets "session present" only for a session with
 * subscriptions. It must never be granted.
 */
export const resumedSession = '$SYS/resumed-session';

/**
 * Replaces parts of the persistence of a broker: bounds its memory, and fixes three faults of aedes 1.2, which stores refused
 * subscriptions, dequeues the wrong message when one must not be forwarded, and repeats messages without the DUP flag.
 * @param onFull reports a message that was not stored
 */
export function openSessionStore(
  broker: Aedes,
  onFull: (reason: 'queue_full' | 'retained_full') => void,
): SessionStore {
  const { persistence } = broker as unknown as { persistence: Persistence };
  const addSubscriptions = persistence.addSubscriptions.bind(persistence);
  const subscriptionsByClient = persistence.subscriptionsByClient.bind(persistence);
  const granted = new WeakSet<Subscription>();
  const resumed = new Set<string>();
  const queues = createOutgoingQueues(() => onFull('queue_full'));
  const retained = createRetainedMessages();

  return Object.assign(persistence, queues.methods, {
    grant(subscription: Subscription) {
      granted.add(subscription);
    },
    setResumed(client_id: string, isResumed: boolean) {
      if (isResumed) resumed.add(client_id);
      else resumed.delete(client_id);
    },
    async subscriptionsByClient(client: ClientRef): Promise<Subscription[]> {
      const subscriptions = await subscriptionsByClient(client);
      const isResumed = resumed.delete(client.id);
      return isResumed && subscriptions.length === 0 ? [{ topic: resumedSession, qos: 0 }] : subscriptions;
    },
    addSubscriptions: (client: ClientRef, subscriptions: readonly Subscription[]) =>
      addSubscriptions(
        client,
        subscriptions.filter((subscription) => granted.has(subscription)),
      ),
    async storeRetained(packet: PublishPacket) {
      if (!retained.store(packet)) onFull('retained_full');
    },
    createRetainedStreamCombi: (filters: readonly string[]) => Readable.from(retained.find(filters)),
    async deleteSession(client_id: string) {
      queues.delete(client_id);
      await Promise.all([
        persistence.cleanSubscriptions({ id: client_id }),
        persistence.cleanIncoming({ id: client_id }),
      ]);
    },
  });
}

/** Messages that persistent sessions have not acknowledged yet, by client id. */
function createOutgoingQueues(onFull: () => void) {
  const queues = new Map<string, { packets: QueuedPacket[]; bytes: number }>();

  function enqueue({ clientId }: { clientId: string }, packet: QueuedPacket): void {
    const queue = queues.get(clientId) ?? { packets: [], bytes: 0 };
    if (queue.packets.length >= max_queued || queue.bytes + packet.payload.length > max_queued_bytes) {
      onFull();
      return;
    }
    queue.packets.push({ ...packet, messageId: undefined });
    queue.bytes += packet.payload.length;
    queues.set(clientId, queue);
  }

  const isSame = (one: QueuedPacket, other: QueuedPacket) =>
    one.brokerId === other.brokerId && one.brokerCounter === other.brokerCounter;

  const methods = {
    async outgoingEnqueue(subscriber: { clientId: string }, packet: QueuedPacket) {
      enqueue(subscriber, packet);
    },
    /** Queues a message once per client, at the highest QoS of its matching subscriptions. */
    async outgoingEnqueueCombi(subscriptions: readonly { clientId: string; qos: Qos }[], packet: QueuedPacket) {
      const qosByClient = new Map<string, Qos>();
      for (const { clientId, qos } of subscriptions)
        if (qos >= (qosByClient.get(clientId) ?? 0)) qosByClient.set(clientId, qos);
      for (const [clientId, qos] of qosByClient) enqueue({ clientId }, qos < packet.qos ? { ...packet, qos } : packet);
    },
    /** Stores the packet id of a message, or replaces the message by its PUBREL, which must then be sent again. */
    async outgoingUpdate({ id }: ClientRef, packet: QueuedPacket) {
      const queue = queues.get(id);
      const message = queue?.packets.find((one) => isSame(one, packet));
      if (message !== undefined) {
        message.messageId = packet.messageId;
        return;
      }
      const index = queue?.packets.findIndex(({ messageId }) => messageId === packet.messageId) ?? -1;
      const sent = queue?.packets[index];
      if (queue === undefined || sent === undefined) return;
      queue.bytes -= sent.payload?.length ?? 0;
      queue.packets[index] = packet;
    },
    async outgoingClearMessageId({ id }: ClientRef, packet: QueuedPacket) {
      const queue = queues.get(id);
      if (queue === undefined) return undefined;
      const { messageId } = packet;
      const index = queue.packets.findIndex((one) =>
        messageId === undefined ? isSame(one, packet) : one.messageId === messageId,
      );
      if (index < 0) return undefined;
      const [removed] = queue.packets.splice(index, 1);
      queue.bytes -= removed?.payload?.length ?? 0;
      if (queue.packets.length === 0) queues.delete(id);
      return removed;
    },
    /** A message that has a packet id was sent before: it goes out again with the DUP flag (MQTT 3.1.1 §3.3.1.1). */
    outgoingStream: ({ id }: ClientRef) =>
      Readable.from(
        (queues.get(id)?.packets ?? []).map((packet) =>
          packet.cmd === 'publish' && packet.messageId !== undefined ? { ...packet, dup: true } : packet,
        ),
      ),
  };
  return { methods, delete: (client_id: string) => queues.delete(client_id) };
}
