import { Readable } from 'node:stream';
import type { Aedes, AedesPublishPacket, PublishPacket, Subscription } from 'aedes';

const max_queued = 1000;
const max_queued_bytes = 1024 * 1024;
const max_retained = 10_000;
const max_retained_bytes = 16 * 1024 * 1024;

interface ClientRef {
  id: string;
}

interface QueuedPacket extends Pick<AedesPublishPacket, 'cmd' | 'topic' | 'payload' | 'qos'> {
  brokerId?: string;
  brokerCounter?: number;
  messageId?: number | undefined;
}

/** The part of the persistence of aedes that is used or replaced here. */
export interface Persistence {
  addSubscriptions(client: ClientRef, subscriptions: readonly Subscription[]): Promise<void>;
  cleanSubscriptions(client: ClientRef): Promise<void>;
  cleanIncoming(client: ClientRef): Promise<void>;
  incomingGetPacket(client: ClientRef, packet: PublishPacket): Promise<unknown>;
  storeRetained(packet: PublishPacket): Promise<void>;
}

/** Stored state of persistent sessions, and retained messages. */
export interface SessionStore extends Persistence {
  /** Marks a subscription as granted; others are not stored. */
  grant(subscription: Subscription): void;
  /** Deletes a session with its queued messages. */
  deleteSession(client_id: string): Promise<void>;
}

/**
 * Replaces parts of the persistence of a broker: bounds its memory, and fixes two faults of aedes 1.2, which stores refused
 * subscriptions and dequeues the wrong message when one must not be forwarded.
 * @param onFull reports a message that was not stored
 */
export function openSessionStore(
  broker: Aedes,
  onFull: (reason: 'queue_full' | 'retained_full') => void,
): SessionStore {
  const { persistence } = broker as unknown as { persistence: Persistence };
  const addSubscriptions = persistence.addSubscriptions.bind(persistence);
  const storeRetained = persistence.storeRetained.bind(persistence);
  const granted = new WeakSet<Subscription>();
  const queues = createOutgoingQueues(() => onFull('queue_full'));
  const retained = new Map<string, number>();
  let retained_bytes = 0;

  return Object.assign(persistence, queues.methods, {
    grant(subscription: Subscription) {
      granted.add(subscription);
    },
    addSubscriptions: (client: ClientRef, subscriptions: readonly Subscription[]) =>
      addSubscriptions(
        client,
        subscriptions.filter((subscription) => granted.has(subscription)),
      ),
    async storeRetained(packet: PublishPacket) {
      const previous = retained.get(packet.topic);
      const size = packet.payload.length === 0 ? 0 : packet.payload.length + packet.topic.length;
      const new_total = retained_bytes - (previous ?? 0) + size;
      if (size > 0 && (new_total > max_retained_bytes || (previous === undefined && retained.size >= max_retained))) {
        onFull('retained_full');
        return;
      }
      retained_bytes = new_total;
      if (size === 0) retained.delete(packet.topic);
      else retained.set(packet.topic, size);
      await storeRetained(packet);
    },
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
    async outgoingEnqueueCombi(subscribers: readonly { clientId: string }[], packet: QueuedPacket) {
      for (const subscriber of subscribers) enqueue(subscriber, packet);
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
    outgoingStream: ({ id }: ClientRef) => Readable.from([...(queues.get(id)?.packets ?? [])]),
  };
  return { methods, delete: (client_id: string) => queues.delete(client_id) };
}
