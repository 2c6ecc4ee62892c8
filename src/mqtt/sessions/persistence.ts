import { Readable } from 'node:stream';
import type { Client, PublishPacket, Subscription } from 'aedes';
import { messageIdOf } from '../protocol/message-ids.js';
import type { AccountSessions } from './account-sessions.js';
import type { RetainedMessages } from './retained-messages.js';
import type { Session } from './session.js';
import type { OutgoingPacket } from './session-queue.js';

/** A message of QoS 1 or 2, or a PUBREL. */
type SentPacket = OutgoingPacket | { cmd: 'pubrel'; messageId: number };

/**
 * Replaces the subscriptions of a resumed session that has none: aedes sets "session present" only for a session with
 * subscriptions. It must never be granted.
 */
export const resumedSession = '$SYS/resumed-session';

interface Deps {
  sessions: AccountSessions;
  retained: RetainedMessages;
  sessionOf: (client: Client) => Session | undefined;
}

/**
 * Creates the persistence of a broker for aedes 1.2. It asks for subscriptions, retained messages and packet ids; messages
 * are stored before they are acknowledged (`publish-handler.ts`), and queues are read by `account-broker.ts`.
 */
export function createPersistence({ sessions, retained, sessionOf }: Deps) {
  const nothing = async () => undefined;
  const noDocuments = () => Readable.from([]);
  const packetIdOf = ({ messageId }: PublishPacket) => messageId ?? 0;
  const notFound = () => {
    throw new Error('no such packet');
  };

  return {
    // aedes demands an AsyncFunction
    async setup() {},
    subscriptionsByTopic: async () => [],
    async subscriptionsByClient({ id }: { id: string }): Promise<Subscription[]> {
      const record = sessions.find(id);
      const [session] = [...(record?.live ?? [])].slice(-1);
      if (record === undefined || session === undefined || !session.isResumed) return [];
      const { subscriptions } = record.state;
      return subscriptions.length === 0 ? [{ topic: resumedSession, qos: 0 }] : [...subscriptions];
    },
    addSubscriptions: nothing,
    async removeSubscriptions(client: Client, filters: readonly string[]) {
      const session = sessionOf(client);
      if (session === undefined) return;
      for (const filter of filters) session.subscriptions.delete(filter);
      await sessions.saveSubscriptions(session);
    },
    cleanSubscriptions: nothing,
    storeRetained: nothing,
    createRetainedStreamCombi: (filters: readonly string[]) => Readable.from(retainedPackets(retained, filters)),
    outgoingEnqueueCombi: nothing,
    outgoingStream: noDocuments,
    async outgoingUpdate(client: Client, packet: SentPacket) {
      const queue = sessionOf(client)?.queue;
      if (packet.cmd === 'pubrel') await queue?.receive(packet.messageId);
      else await queue?.send(packet, messageIdOf(packet));
    },
    async outgoingClearMessageId(client: Client, packet: { messageId: number }) {
      const { queue, deviceFeed } = sessionOf(client) ?? {};
      // of a message that two filters cover, aedes takes back the second copy
      if (messageIdOf(packet) !== undefined) return undefined;
      if (deviceFeed?.acknowledge(packet.messageId) !== true) queue?.acknowledge(packet.messageId);
      return undefined;
    },
    async incomingGetPacket(client: Client, packet: PublishPacket) {
      const received = sessionOf(client)?.received;
      const packet_id = packetIdOf(packet);
      if (received?.has(packet_id) !== true || received.isWaitingToBeForwarded(packet_id)) notFound();
      // a repetition is acknowledged and not forwarded
      sessionOf(client)?.inputMemory?.finishOldest();
      return packet;
    },
    async incomingStorePacket(client: Client, packet: PublishPacket) {
      sessionOf(client)?.received?.setForwarded(packetIdOf(packet));
    },
    async incomingDelPacket(client: Client, packet: PublishPacket) {
      await sessionOf(client)?.received?.release(packetIdOf(packet));
    },
    putWill: nothing,
    delWill: nothing,
    streamWill: noDocuments,
  };
}

async function* retainedPackets(retained: RetainedMessages, filters: readonly string[]): AsyncIterable<PublishPacket> {
  for await (const message of retained.find(filters)) yield { ...message, cmd: 'publish', dup: false, retain: true };
}
