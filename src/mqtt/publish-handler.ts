import { LRUCache } from 'lru-cache';
import type { Id } from '../db/ids.js';
import { awaitLater } from '../lib/promises.js';
import type { Acknowledgement, Published } from './connection/connection.js';
import type { PublishPacket, WillPacket } from './connection/packets.js';
import { PacketError, reasons } from './connection/reasons.js';
import { findDeviceOf } from './protocol/topics.js';
import type { BrokerDeps } from './sessions/broker-deps.js';
import type { PublishResult } from './sessions/ingest.js';
import type { AcceptedMessage, MessageStore, MessageToStore } from './sessions/message-store.js';
import { createReceivedPackets } from './sessions/received-packets.js';
import type { Session } from './sessions/session.js';
import { optionsOf } from './store/messages.js';

/** A message of a client. A will has no packet id. */
type ClientMessage = PublishPacket | WillPacket;

/** A publish whose streams are stored, or which is dropped. */
interface Ingested {
  /** Names a message that may be repeated. */
  id: Id | undefined;
  /** A repeated message that is stored already forwards nothing. */
  result: PublishResult;
}

/** A publish that is being stored for absent clients. */
interface Stored extends Ingested {
  /** Messages for the subscribers. */
  messages: AcceptedMessage[];
  /** False where there is no room to retain a message. */
  writes: Promise<boolean>[];
}

/** The subscribers that have got a message: how many, and a promise while some have not read what they have. */
export interface Routed {
  count: number;
  read: Promise<unknown> | undefined;
}

interface Deps extends Pick<BrokerDeps, 'clock' | 'rules' | 'db'> {
  /** Hands a message to the subscribers of this process. */
  route(message: AcceptedMessage): Routed;
  messageStore: MessageStore;
}

const accepted: Acknowledgement = { reason: reasons.success };
const unwanted: Acknowledgement = { reason: reasons.no_matching_subscribers };
const max_text_bytes = 400;
const max_unrecorded = 1000;
const packetIdOf = (packet: ClientMessage) => ('packet_id' in packet ? packet.packet_id : 0);

/** Handles what clients publish. Messages of a session are stored concurrently, but acknowledged and forwarded in order. */
export class PublishHandler {
  /** Messages that the subscribers have got, though the database did not confirm that they are stored: they are repeated. */
  private readonly unrecorded = new LRUCache<string, true>({ max: max_unrecorded });

  constructor(private readonly deps: Deps) {}

  /** Stores a publish, then forwards or discards it. */
  handle(session: Session, packet: ClientMessage): Promise<Published> {
    const ingested = awaitLater(this.ingest(session, packet));
    const storing = awaitLater(session.storeQueue.then(() => this.store(session, packet, ingested)));
    session.storeQueue = storing.then(
      () => undefined,
      () => undefined,
    );
    const published = awaitLater(
      session.publishQueue
        .then(() => this.settle(session, packet, storing))
        .catch((error: unknown) => this.report(session, packet, error)),
    );
    session.publishQueue = awaitLater(published.then(() => undefined));
    return published;
  }

  private async ingest(session: Session, packet: ClientMessage): Promise<Ingested> {
    const { rules, db } = this.deps;
    const { topic, payload, qos } = packet;
    const isWill = !('packet_id' in packet);
    const { correlation_data } = packet.properties;
    const message = { isWill, topic, payload, correlation_data };
    if (qos !== 2 || isWill)
      return { id: undefined, result: await rules.publish(session, { ...message, id: undefined, isRepeated: false }) };
    session.received ??= createReceivedPackets(db.newId);
    const { message: id, isRepeated, isDone } = await session.received.receive(packetIdOf(packet));
    if (isDone || this.unrecorded.has(String(id))) return { id, result: { forward: [] } };
    return { id, result: await rules.publish(session, { ...message, id, isRepeated }) };
  }

  /** Begins to store a publish for absent clients. @throws what the database throws */
  private async store(session: Session, packet: ClientMessage, ingested: Promise<Ingested>): Promise<Stored> {
    const { clock, messageStore, rules, db } = this.deps;
    const { id, result } = await ingested;
    const stored: Stored = { id, result, messages: [], writes: [] };
    const { topic, payload, qos, retain, properties } = packet;
    const { message_expiry_s, forwarded } = properties;
    const expires_at = message_expiry_s === undefined ? undefined : new Date(clock() + message_expiry_s * 1000);
    const options = optionsOf({ properties: forwarded, expires_at });
    const itself: MessageToStore = { topic, payload, qos, retain, sender: session.client_id, ...options };
    if ('drop' in result) {
      rules.dropped(session, result, topic);
      // an empty payload is no stream, but deletes the retained message
      const isDeletion = result.drop === 'invalid' && retain && payload.length === 0;
      if (isDeletion) stored.writes.push(awaitLater(messageStore.retain(itself)));
      return stored;
    }
    const contents = result.forward === 'itself' ? [itself] : result.forward.map((part) => ({ ...itself, ...part }));
    for (const [index, content] of contents.entries()) {
      const part = result.forward === 'itself' ? '' : ` ${index}`;
      const { message, writes } = await messageStore.store(content, () => `${id ?? db.newId()}${part}`);
      stored.messages.push(message);
      stored.writes.push(...writes);
    }
    return stored;
  }

  /** Waits until a publish is stored and hands it to the subscribers. @throws Error if it is not stored: the client sends it again */
  private async settle(session: Session, packet: ClientMessage, storing: Promise<Stored>): Promise<Published> {
    const { id, result, messages, writes } = await storing;
    if ('drop' in result && (session.revoked || (result.drop === 'database' && packet.qos > 0)))
      throw new ReportedError(result.drop);
    const outcomes = await Promise.all(writes);
    // also if there is none: the message was repeated
    const isOfService = messages.every(({ topic }) => findDeviceOf(topic) !== undefined);
    const refusal = findRefusal(result, !isOfService && outcomes.includes(false));
    const failure = packet.qos === 2 ? await record(session, packet, refusal) : undefined;
    const busy: Promise<unknown>[] = [];
    let isWanted = isOfService;
    for (const message of messages) {
      const { count, read } = this.deps.route(message);
      if (read !== undefined) busy.push(read);
      // others may be for clients that are absent or elsewhere
      isWanted ||= count > 0 || message.id !== '';
    }
    // the client repeats it; the database may know nevertheless that it is stored
    if (failure !== undefined) {
      if (messages.length > 0) this.unrecorded.set(String(id), true);
      throw failure.error;
    }
    const delivered = busy.length > 0 && { delivered: awaitLater(Promise.all(busy)) };
    return { acknowledgement: refusal ?? (isWanted ? accepted : unwanted), ...delivered };
  }

  /** Closes the connection, unless the message was of QoS 0: the client sends it again. */
  private report(session: Session, { topic, qos }: ClientMessage, error: unknown): Published {
    const { rules } = this.deps;
    if (error instanceof PacketError) rules.protocolError(session, error.message);
    else if (!(error instanceof ReportedError)) rules.dropped(session, { drop: 'database', error }, topic);
    if (qos > 0 || session.revoked) session.end(error instanceof PacketError ? error.reason : reasons.busy);
    return {};
  }
}

/** Records that a message of QoS 2 is stored. @returns why that is not certain */
async function record(
  { received, connect }: Session,
  packet: ClientMessage,
  refusal: Acknowledgement | undefined,
): Promise<{ error: unknown } | undefined> {
  try {
    // after a refusal of MQTT 5 there is no PUBREL
    const isOver = refusal !== undefined && connect.level === 5;
    await received?.[isOver ? 'release' : 'finish'](packetIdOf(packet));
    return undefined;
  } catch (error) {
    return { error };
  }
}

/** The reason why a message is not stored, or not retained, for a client of MQTT 5. */
function findRefusal(result: PublishResult, isFull: boolean): Acknowledgement | undefined {
  if (!('drop' in result)) return isFull ? { reason: reasons.quota } : undefined;
  const { drop, field = '', fault, details = { [field]: fault } } = result;
  if (drop !== 'invalid') return { reason: drop === 'not_allowed' ? reasons.not_authorized : reasons.unspecified };
  const text = Buffer.from(JSON.stringify(details));
  let end = Math.min(text.length, max_text_bytes);
  // not inside a character
  while (((text[end] ?? 0) & 0xc0) === 0x80) end--;
  return { reason: reasons.invalid_payload, text: text.toString('utf8', 0, end) };
}

/** A failure that was reported as dropped message. */
class ReportedError extends Error {}
