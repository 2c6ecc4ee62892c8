import type { Id } from '../db/ids.js';
import { awaitLater } from '../lib/promises.js';
import type { Acknowledgement, Published } from './connection/connection.js';
import type { PublishPacket, WillPacket } from './connection/packets.js';
import { reasons } from './connection/reasons.js';
import type { Drop, Message, PublishResult } from './ingest.js';
import type { TopicPermissions } from './login/permissions.js';
import type { AcceptedMessage, MessageStore } from './sessions/message-store.js';
import { createReceivedPackets, TooManyPackets } from './sessions/received-packets.js';
import type { Session } from './sessions/session.js';

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

/** Stores a publish, then forwards or discards it. A will has no packet id. */
export type HandlePublish = (session: Session, packet: PublishPacket | WillPacket) => Promise<Published>;

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
  /** Hands a message to the subscribers. @returns a promise while some of them have not read what they have */
  route(message: AcceptedMessage): Promise<unknown> | undefined;
  messageStore: MessageStore;
  rules: PublishRules;
  newId: () => Id;
}

const accepted: Acknowledgement = { reason: reasons.success };
const packetIdOf = (packet: PublishPacket | WillPacket) => ('packet_id' in packet ? packet.packet_id : 0);

/** Creates the handler. Messages of a session are stored concurrently, but acknowledged and forwarded in order. */
export function createPublishHandler({ route, messageStore, rules, newId }: Deps): HandlePublish {
  async function ingest(session: Session, packet: PublishPacket | WillPacket): Promise<Ingested> {
    const { topic, payload, qos } = packet;
    const isWill = !('packet_id' in packet);
    const message = { isWill, topic, payload };
    if (qos !== 2 || isWill)
      return { id: undefined, result: await rules.publish(session, { ...message, id: undefined, isRepeated: false }) };
    session.received ??= createReceivedPackets(newId);
    const { message: id, isRepeated, isDone } = await session.received.receive(packetIdOf(packet));
    if (isDone) return { id, result: 'repeated' };
    return { id, result: await rules.publish(session, { ...message, id, isRepeated }) };
  }

  /** Begins to store a publish for absent clients. @throws what the database throws */
  async function store(
    session: Session,
    packet: PublishPacket | WillPacket,
    ingested: Promise<Ingested>,
  ): Promise<Stored> {
    const { id, result } = await ingested;
    if (result === 'repeated') return { result, messages: [], writes: [] };
    const { topic, payload, qos, retain } = packet;
    // most messages are in no queue, and an id takes as long as the rest of this function
    const nameMessage = (topicOfMessage: string, part = '') =>
      messageStore.isShared(topicOfMessage) ? `${id ?? newId()}${part}` : '';
    const itself: AcceptedMessage = { id: nameMessage(topic), topic, payload, qos, retain };
    if ('drop' in result) {
      rules.dropped(session, result, topic);
      // an empty payload is no stream, but deletes the retained message
      const isDeletion = result.drop === 'invalid' && retain && payload.length === 0;
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

  /** Waits until a publish is stored and hands it to the subscribers. @throws Error if it is not stored: the client sends it again */
  async function settle(
    session: Session,
    packet: PublishPacket | WillPacket,
    storing: Promise<Stored>,
  ): Promise<Published> {
    const { result, messages, writes } = await storing;
    if (result !== 'repeated' && 'drop' in result) {
      if (session.revoked || (result.drop === 'database' && packet.qos > 0)) throw new ReportedError(result.drop);
    }
    await Promise.all(writes);
    if (packet.qos === 2) await session.received?.finish(packetIdOf(packet));
    const delivered: Promise<unknown>[] = [];
    for (const message of messages) {
      const read = awaitLater(route(message));
      if (read !== undefined) delivered.push(read);
    }
    const busy = delivered.length > 0 && { delivered: awaitLater(Promise.all(delivered)) };
    return { acknowledgement: acknowledge(result), ...busy };
  }

  /** Closes the connection, unless the message was of QoS 0: the client sends it again. */
  function report(session: Session, { topic, qos }: PublishPacket | WillPacket, error: unknown): Published {
    if (error instanceof TooManyPackets) rules.protocolError(session, error.message);
    else if (!(error instanceof ReportedError)) rules.dropped(session, { drop: 'database', error }, topic);
    if (qos > 0 || session.revoked)
      session.end(error instanceof TooManyPackets ? reasons.receive_maximum : reasons.busy);
    return {};
  }

  return (session, packet) => {
    const ingested = awaitLater(ingest(session, packet));
    const storing = awaitLater(session.storeQueue.then(() => store(session, packet, ingested)));
    session.storeQueue = storing.then(
      () => undefined,
      () => undefined,
    );
    const published = awaitLater(
      session.publishQueue
        .then(() => settle(session, packet, storing))
        .catch((error: unknown) => report(session, packet, error)),
    );
    session.publishQueue = awaitLater(published.then(() => undefined));
    return published;
  };
}

function acknowledge(result: PublishResult | 'repeated'): Acknowledgement {
  if (result === 'repeated' || !('drop' in result)) return accepted;
  const { drop, field = '', fault } = result;
  if (drop === 'not_allowed') return { reason: reasons.not_authorized };
  return { reason: reasons.invalid_payload, text: JSON.stringify({ [field]: fault }) };
}

/** A failure that was reported as dropped message. */
class ReportedError extends Error {}
