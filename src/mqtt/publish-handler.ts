import type { Aedes, PublishPacket } from 'aedes';
import type { Id } from '../db/ids.js';
import { awaitLater } from '../lib/promises.js';
import type { Drop, Message, PublishResult } from './ingest.js';
import type { TopicPermissions } from './login/permissions.js';
import { setMessageId } from './protocol/message-ids.js';
import type { AcceptedMessage, MessageStore } from './sessions/message-store.js';
import { createReceivedPackets, TooManyPackets } from './sessions/received-packets.js';
import type { Session } from './sessions/session.js';

/** Subscribers cannot reach it, not even with a restored session. */
const discardTopic = '$SYS/nowhere';

/** A message of a client that may have been stored before. */
export interface RepeatedMessage extends Message {
  /** Names a message that may be repeated: its streams get ids that derive from it. */
  id: Id | undefined;
  /** Streams that are stored already are not stored again. */
  isRepeated: boolean;
  isWill: boolean;
}

/** The session of a dropped message, or what is known without one. */
export type Sender =
  | Session
  | { account: string; client_id?: string | undefined; permissions?: TopicPermissions | undefined };

export interface PublishRules {
  /** Stores the streams that a message holds. Never rejects. */
  publish(session: Session, message: RepeatedMessage): Promise<PublishResult>;
  published(): void;
  /** Counts and reports a message that is not stored, or not delivered to a session. */
  dropped(sender: Sender, drop: Drop, topic?: string): void;
  /** Reports a packet that closes the connection. */
  protocolError(session: Session, error: string): void;
  /** Reports an error that no caller awaits. */
  failed(error: unknown): void;
}

/** Stores a publish, then forwards or discards it; `done` acknowledges it, or with an error closes the connection. */
export type HandlePublish = (
  session: Session,
  packet: PublishPacket,
  done: (error?: Error | null) => void,
  isWill?: boolean,
) => void;

/** A publish whose streams are stored, or which is dropped. */
interface Ingested {
  /** Names a message that may be repeated. */
  id: Id | undefined;
  result: PublishResult | 'repeated';
}

/** A publish that is being stored for absent clients. */
interface Stored {
  result: PublishResult | 'repeated';
  /** Messages for the subscribers. */
  messages: readonly AcceptedMessage[];
  writes: readonly Promise<unknown>[];
}

interface Deps {
  broker: Aedes;
  messageStore: MessageStore;
  rules: PublishRules;
  newId: () => Id;
}

const payloadOf = ({ payload }: PublishPacket) => (typeof payload === 'string' ? Buffer.from(payload) : payload);
const packetIdOf = ({ messageId }: PublishPacket) => messageId ?? 0;

/** Creates the handler. Messages of a session are stored concurrently, but acknowledged and forwarded in order. */
export function createPublishHandler({ broker, messageStore, rules, newId }: Deps): HandlePublish {
  async function ingest(session: Session, packet: PublishPacket, isWill: boolean): Promise<Ingested> {
    const message = { isWill, topic: packet.topic, payload: payloadOf(packet) };
    // a will has no packet id
    if (packet.qos !== 2 || isWill)
      return { id: undefined, result: await rules.publish(session, { ...message, id: undefined, isRepeated: false }) };
    session.received ??= createReceivedPackets(newId);
    const { message: id, isRepeated, isDone } = await session.received.receive(packetIdOf(packet));
    if (isDone) return { id, result: 'repeated' };
    return { id, result: await rules.publish(session, { ...message, id, isRepeated }) };
  }

  /** Begins to store a publish for absent clients. @throws what the database throws */
  async function store(session: Session, packet: PublishPacket, ingested: Promise<Ingested>): Promise<Stored> {
    const { id, result } = await ingested;
    if (result === 'repeated') return { result, messages: [], writes: [] };
    const { topic, qos, retain } = packet;
    // most messages are in no queue, and an id takes as long as the rest of this function
    const nameMessage = (topicOfMessage: string, part = '') =>
      messageStore.isShared(topicOfMessage) ? `${id ?? newId()}${part}` : '';
    const itself: AcceptedMessage = { id: nameMessage(topic), topic, payload: payloadOf(packet), qos, retain };
    if ('drop' in result) {
      rules.dropped(session, result, topic);
      // an empty payload is no stream, but deletes the retained message
      const isDeletion = result.drop === 'invalid' && retain && itself.payload.length === 0;
      return { result, messages: [], writes: isDeletion ? [awaitLater(messageStore.retain(itself))] : [] };
    }
    rules.published();
    const messages =
      result.forward === 'itself'
        ? [itself]
        : result.forward.map((message, index) => ({
            ...itself,
            ...message,
            id: nameMessage(message.topic, ` ${index}`),
          }));
    const writes: Promise<unknown>[] = [];
    for (const message of messages) writes.push(...(await messageStore.store(message)));
    return { result, messages, writes };
  }

  /** Waits until a publish is stored and lets aedes go on. @throws Error if it is not: the client then sends it again */
  async function settle(session: Session, packet: PublishPacket, storing: Promise<Stored>): Promise<void> {
    const { result, messages, writes } = await storing;
    if (result !== 'repeated' && 'drop' in result) {
      if (session.revoked || (result.drop === 'database' && packet.qos > 0)) throw new ReportedError(result.drop);
    }
    await Promise.all(writes);
    if (packet.qos === 2) await session.received?.finish(packetIdOf(packet));
    if (result === 'repeated') return;
    if ('forward' in result && result.forward === 'itself') {
      for (const { id } of messages) setMessageId(packet, id);
      return;
    }
    packet.topic = discardTopic;
    packet.payload = Buffer.alloc(0);
    packet.retain = false;
    for (const { id, ...message } of messages) {
      const forwarded: PublishPacket = { ...message, cmd: 'publish', dup: false };
      setMessageId(forwarded, id);
      broker.publish(forwarded, () => undefined);
    }
  }

  function report(session: Session, packet: PublishPacket, error: unknown): void {
    if (error instanceof TooManyPackets) rules.protocolError(session, error.message);
    else if (!(error instanceof ReportedError)) rules.dropped(session, { drop: 'database', error }, packet.topic);
    if (packet.qos > 0 || session.revoked) throw error;
  }

  return (session, packet, done, isWill = false) => {
    const ingested = awaitLater(ingest(session, packet, isWill));
    const storing = awaitLater(session.storeQueue.then(() => store(session, packet, ingested)));
    session.storeQueue = storing.then(
      () => undefined,
      () => undefined,
    );
    session.publishQueue = session.publishQueue
      .then(() => settle(session, packet, storing))
      .catch((error: unknown) => report(session, packet, error))
      .then(() => done(), done)
      .catch(rules.failed);
  };
}

/** A failure that was reported as dropped message. */
class ReportedError extends Error {}
