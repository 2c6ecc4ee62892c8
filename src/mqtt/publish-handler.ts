import type { Aedes, Client, PublishPacket } from 'aedes';
import type { Drop, Message, PublishResult } from './ingest.js';
import type { SessionStore } from './persistence.js';
import type { Session } from './session.js';

/** Subscribers cannot reach it, not even with a restored session. */
const discardTopic = '$SYS/nowhere';

export interface PublishRules {
  /** Stores the streams that a message holds. Never rejects. */
  publish(session: Session, message: Message): Promise<PublishResult>;
  published(): void;
  dropped(session: Session | undefined, drop: Drop): void;
  /** Reports a packet that closes the connection. */
  protocolError(session: Session, error: string): void;
  /** Reports an error that no caller awaits. */
  failed(error: unknown): void;
}

/** Stores a publish, then forwards or discards it; `done` acknowledges it, or with an error closes the connection. */
export type HandlePublish = (
  client: Client,
  session: Session,
  packet: PublishPacket,
  done: (error?: Error | null) => void,
) => void;

/** Creates the handler. Messages of a session are stored concurrently, but acknowledged and forwarded in order. */
export function createPublishHandler(broker: Aedes, store: SessionStore, rules: PublishRules): HandlePublish {
  async function ingest(client: Client, session: Session, packet: PublishPacket): Promise<PublishResult> {
    const isRepeated = packet.qos === 2 && (await store.incomingGetPacket(client, packet).catch(() => undefined));
    if (isRepeated) return { forward: 'itself' };
    const payload = typeof packet.payload === 'string' ? Buffer.from(packet.payload) : packet.payload;
    return rules.publish(session, { topic: packet.topic, payload });
  }

  /** @throws Error if the message was not stored: without an acknowledgement the client resends it */
  function applyResult(session: Session, packet: PublishPacket, result: PublishResult): void {
    if ('drop' in result) {
      rules.dropped(session, result);
      if (session.revoked || (result.drop === 'database' && packet.qos > 0)) throw new Error(result.drop);
      // an empty payload is no stream, but deletes the retained message
      if (result.drop === 'invalid' && packet.retain && packet.payload.length === 0) void store.storeRetained(packet);
    } else {
      rules.published();
      if (result.forward === 'itself') return;
      const { qos, retain } = packet;
      for (const message of result.forward)
        broker.publish({ cmd: 'publish', dup: false, qos, retain, ...message }, () => undefined);
    }
    packet.topic = discardTopic;
    packet.payload = Buffer.alloc(0);
    packet.retain = false;
  }

  return (client, session, packet, done) => {
    const ingested = ingest(client, session, packet);
    session.publishQueue = session.publishQueue
      .then(() => ingested)
      .then((result) => applyResult(session, packet, result))
      .then(() => done(), done)
      .catch(rules.failed);
  };
}
