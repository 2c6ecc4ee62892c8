import { Readable } from 'node:stream';
import type { Aedes, AedesPublishPacket, PublishPacket, Subscription } from 'aedes';

const most_queued = 1000;
const most_queued_bytes = 1024 * 1024;
const most_retained = 10_000;
const most_retained_bytes = 16 * 1024 * 1024;

interface ById {
  id: string;
}

interface Queued extends Pick<AedesPublishPacket, 'cmd' | 'topic' | 'payload' | 'qos'> {
  brokerId?: string;
  brokerCounter?: number;
  messageId?: number | undefined;
}

/** What aedes keeps its sessions in, as far as it is used or replaced here. */
export interface Persistence {
  addSubscriptions(client: ById, subscriptions: readonly Subscription[]): Promise<void>;
  cleanSubscriptions(client: ById): Promise<void>;
  cleanIncoming(client: ById): Promise<void>;
  incomingGetPacket(client: ById, packet: PublishPacket): Promise<unknown>;
  storeRetained(packet: PublishPacket): Promise<void>;
}

/** The sessions of clients that stay when their connection ends. */
export interface Sessions extends Persistence {
  /** Marks a subscription as granted: no other is kept. */
  grant(subscription: Subscription): void;
  /** Forgets a session with all that waits for it. */
  forget(client_id: string): Promise<void>;
}

/**
 * Bounds what a broker's memory holds for clients that are away, and repairs what aedes does there: it keeps refused
 * subscriptions, and takes the wrong message off a queue when one may not be forwarded.
 * @param full told of what is not kept any more
 */
export function boundSessions(broker: Aedes, full: (reason: 'queue_full' | 'retained_full') => void): Sessions {
  const { persistence } = broker as unknown as { persistence: Persistence };
  const addSubscriptions = persistence.addSubscriptions.bind(persistence);
  const storeRetained = persistence.storeRetained.bind(persistence);
  const granted = new WeakSet<Subscription>();
  const queues = outgoingQueues(() => full('queue_full'));
  const retained = new Map<string, number>();
  let retained_bytes = 0;

  return Object.assign(persistence, queues.methods, {
    grant(subscription: Subscription) {
      granted.add(subscription);
    },
    addSubscriptions: (client: ById, subscriptions: readonly Subscription[]) =>
      addSubscriptions(
        client,
        subscriptions.filter((one) => granted.has(one)),
      ),
    async storeRetained(packet: PublishPacket) {
      const before = retained.get(packet.topic);
      const size = packet.payload.length === 0 ? 0 : packet.payload.length + packet.topic.length;
      const after_bytes = retained_bytes - (before ?? 0) + size;
      if (size > 0 && (after_bytes > most_retained_bytes || (before === undefined && retained.size >= most_retained))) {
        full('retained_full');
        return;
      }
      retained_bytes = after_bytes;
      if (size === 0) retained.delete(packet.topic);
      else retained.set(packet.topic, size);
      await storeRetained(packet);
    },
    async forget(client_id: string) {
      queues.forget(client_id);
      await Promise.all([
        persistence.cleanSubscriptions({ id: client_id }),
        persistence.cleanIncoming({ id: client_id }),
      ]);
    },
  });
}

/** What waits to be sent to or acknowledged by each client with a lasting session. */
function outgoingQueues(full: () => void) {
  const queues = new Map<string, { list: Queued[]; bytes: number }>();

  function enqueue({ clientId }: { clientId: string }, packet: Queued): void {
    const queue = queues.get(clientId) ?? { list: [], bytes: 0 };
    if (queue.list.length >= most_queued || queue.bytes + packet.payload.length > most_queued_bytes) {
      full();
      return;
    }
    queue.list.push({ ...packet, messageId: undefined });
    queue.bytes += packet.payload.length;
    queues.set(clientId, queue);
  }

  const isSame = (one: Queued, other: Queued) =>
    one.brokerId === other.brokerId && one.brokerCounter === other.brokerCounter;

  const methods = {
    async outgoingEnqueue(subscriber: { clientId: string }, packet: Queued) {
      enqueue(subscriber, packet);
    },
    async outgoingEnqueueCombi(subscribers: readonly { clientId: string }[], packet: Queued) {
      for (const subscriber of subscribers) enqueue(subscriber, packet);
    },
    /** Notes the id a message is sent under, or that its PUBREL is what must be sent again. */
    async outgoingUpdate({ id }: ById, packet: Queued) {
      const queue = queues.get(id);
      const message = queue?.list.find((one) => isSame(one, packet));
      if (message !== undefined) {
        message.messageId = packet.messageId;
        return;
      }
      const index = queue?.list.findIndex(({ messageId }) => messageId === packet.messageId) ?? -1;
      const sent = queue?.list[index];
      if (queue === undefined || sent === undefined) return;
      queue.bytes -= sent.payload?.length ?? 0;
      queue.list[index] = packet;
    },
    async outgoingClearMessageId({ id }: ById, packet: Queued) {
      const queue = queues.get(id);
      if (queue === undefined) return undefined;
      const { messageId } = packet;
      const index = queue.list.findIndex((one) =>
        messageId === undefined ? isSame(one, packet) : one.messageId === messageId,
      );
      if (index < 0) return undefined;
      const [removed] = queue.list.splice(index, 1);
      queue.bytes -= removed?.payload?.length ?? 0;
      if (queue.list.length === 0) queues.delete(id);
      return removed;
    },
    outgoingStream: ({ id }: ById) => Readable.from([...(queues.get(id)?.list ?? [])]),
  };
  return { methods, forget: (client_id: string) => queues.delete(client_id) };
}
