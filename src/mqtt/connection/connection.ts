import { encodeAck, encodeCodes, encodePublish, type OutgoingMessage, pingresp } from './encode.js';
import {
  type AckPacket,
  type DisconnectPacket,
  type Level,
  type PublishPacket,
  parsePacket,
  type SubscribePacket,
} from './packets.js';
import { PacketError, type Reason, reasons } from './reasons.js';

/** Messages of QoS 1 and 2 that a client may leave unacknowledged, and topic aliases it may use. */
export const receive_maximum = 100;
export const topic_alias_maximum = 16;
const max_packet_id = 65_535;

/** The answer to a publish of QoS 1 or 2. */
export interface Acknowledgement {
  reason: Reason;
  /** Shown to clients of MQTT 5. */
  text?: string | undefined;
}

/** A handled publish. */
export interface Published {
  /** Absent if the connection is to be closed instead. */
  acknowledgement?: Acknowledgement | undefined;
  /** Resolves when the subscribers have read it; absent if it waits for none. */
  delivered?: Promise<unknown> | undefined;
}

/** A message of QoS 1 or 2 that the client has not acknowledged. `origin` says where it comes from. */
export interface Unacknowledged<Origin> {
  qos: 1 | 2;
  origin: Origin;
}

/** The broker, as the connection of a client calls it. Nothing rejects. */
export interface Host<Origin> {
  write(bytes: Buffer): void;
  /** Stores a message; those of a client resolve in their order. */
  publish(packet: PublishPacket): Promise<Published>;
  /** Forgets a packet id of QoS 2. @returns whether it was known */
  release(packet_id: number): Promise<boolean>;
  /** Grants filters one after the other, calls back with a code for each, and sends what they are to get at once. */
  subscribe(packet: SubscribePacket, granted: (codes: readonly number[]) => void): Promise<void>;
  /** @returns a code for each filter */
  unsubscribe(filters: readonly string[]): Promise<readonly number[]>;
  /** The client has sent PUBREC: stores that only PUBREL is sent from now on. */
  received(packet_id: number, message: Unacknowledged<Origin>): Promise<void>;
  /** The client has acknowledged a message, or refused it. */
  acknowledged(message: Unacknowledged<Origin>): void;
  /** There is room for a message of QoS 1 or 2 again. */
  hasRoom(): void;
  disconnect(packet: DisconnectPacket): void;
  /** Closes the connection for an error of the client. */
  fail(error: PacketError): void;
}

/** Limits that a client has announced in its CONNECT. */
export interface ClientLimits {
  level: Level;
  receive_maximum: number;
  max_packet_bytes: number;
  topic_alias_maximum: number;
  wants_problem_information: boolean;
}

/** The protocol of one connection after its CONNACK: packets in, packets and calls of the host out. */
export class Connection<Origin> {
  // methods and fields of a class, and no map before its first entry: an idle connection holds an eighth of the memory
  private unacknowledgedById: Map<number, Unacknowledged<Origin>> | undefined;
  /** Packet ids of messages that were sent on an earlier connection and have yet to be sent on this one. */
  private reserved: Set<number> | undefined;
  /** Topic aliases of the client. */
  private aliases: Map<number, string> | undefined;
  /** Aliases of the first topics that the client gets messages of. */
  private sentAliases: Map<string, number> | undefined;
  /** Packet ids of the client that are not acknowledged. */
  private incoming: Set<number> | undefined;
  private last_packet_id = 0;

  constructor(
    private readonly client: ClientLimits,
    private readonly host: Host<Origin>,
  ) {}

  /** Handles a packet. @returns a promise while the broker is busy with it */
  handle(bytes: Buffer): Promise<void> | undefined {
    try {
      return this.handlePacket(bytes);
    } catch (error) {
      if (!(error instanceof PacketError)) throw error;
      this.host.fail(error);
      return undefined;
    }
  }

  private handlePacket(bytes: Buffer): Promise<void> | undefined {
    const packet = parsePacket(bytes, this.client.level);
    switch (packet.type) {
      case 'publish':
        return this.startPublish(packet);
      case 'puback':
      case 'pubcomp':
        this.complete(packet.packet_id);
        return undefined;
      case 'pubrec':
        return this.receive(packet.packet_id, packet.reason);
      case 'pubrel':
        return this.release(packet.packet_id);
      case 'subscribe':
        return this.host.subscribe(packet, (codes) => this.answer('suback', packet.packet_id, codes));
      case 'unsubscribe':
        return this.unsubscribe(packet.packet_id, packet.filters);
      case 'pingreq':
        this.host.write(pingresp);
        return undefined;
      case 'disconnect':
        this.host.disconnect(packet);
        return undefined;
      default:
        throw new PacketError('unexpected packet type', reasons.protocol_error);
    }
  }

  /** Reports whether a message of QoS 1 or 2 may be sent. */
  hasRoom(): boolean {
    return (this.unacknowledgedById?.size ?? 0) < this.client.receive_maximum;
  }

  /** Messages of QoS 1 and 2 that the client has not acknowledged, by packet id. */
  unacknowledged(): Iterable<[packet_id: number, message: Unacknowledged<Origin>]> {
    return this.unacknowledgedById ?? [];
  }

  /** Keeps packet ids for the messages that were sent under them on an earlier connection. */
  reserve(packet_ids: readonly number[]): void {
    if (packet_ids.length > 0) this.reserved = new Set(packet_ids);
  }

  /** Takes a packet id for a message of QoS 1 or 2. @param former under which it was sent before */
  begin(message: Unacknowledged<Origin>, former = 0): number {
    this.unacknowledgedById ??= new Map();
    let packet_id = former;
    while (
      packet_id === 0 ||
      this.unacknowledgedById.has(packet_id) ||
      (packet_id !== former && this.reserved?.has(packet_id) === true)
    ) {
      this.last_packet_id = (this.last_packet_id % max_packet_id) + 1;
      packet_id = this.last_packet_id;
    }
    this.unacknowledgedById.set(packet_id, message);
    return packet_id;
  }

  /** Sends a message, or leaves it out if it is too large for the client. */
  send(message: OutgoingMessage): void {
    const { level, max_packet_bytes } = this.client;
    const { aliased, topic_alias } = this.aliasTopic(message);
    const bytes = encodePublish(aliased, level);
    if (bytes.length > max_packet_bytes) {
      this.complete(message.packet_id);
      return;
    }
    if (topic_alias !== undefined) {
      this.sentAliases ??= new Map();
      this.sentAliases.set(message.topic, topic_alias);
    }
    this.host.write(bytes);
  }

  /** Gives a message the alias of its topic, or a new one while the client allows more. */
  private aliasTopic(message: OutgoingMessage): { aliased: OutgoingMessage; topic_alias?: number } {
    const { sentAliases } = this;
    const sentAlias = sentAliases?.get(message.topic);
    const count = sentAliases?.size ?? 0;
    const hasFree = count < Math.min(this.client.topic_alias_maximum, topic_alias_maximum);
    const topic_alias = sentAlias ?? (hasFree ? count + 1 : undefined);
    if (topic_alias === undefined) return { aliased: message };
    const topic = sentAlias === undefined ? message.topic : '';
    return { aliased: { ...message, topic, topic_alias }, topic_alias };
  }

  /** Sends PUBREL for a message that an earlier connection has received. */
  sendRelease(packet_id: number, origin: Origin): void {
    this.unacknowledgedById ??= new Map();
    this.unacknowledgedById.set(packet_id, { qos: 2, origin });
    this.host.write(encodeAck('pubrel', packet_id));
  }

  private acknowledge(type: AckPacket['type'], packet_id: number, { reason, text }: Acknowledgement): void {
    const { level, max_packet_bytes, wants_problem_information } = this.client;
    const shown = wants_problem_information ? text : undefined;
    const bytes = level === 5 ? encodeAck(type, packet_id, reason, shown) : encodeAck(type, packet_id);
    this.host.write(bytes.length <= max_packet_bytes ? bytes : encodeAck(type, packet_id, reason));
  }

  private answer(type: 'suback' | 'unsuback', packet_id: number, codes: readonly number[]): void {
    const bytes = encodeCodes(type, packet_id, codes, this.client.level);
    if (bytes.length <= this.client.max_packet_bytes) this.host.write(bytes);
    else this.host.fail(new PacketError('the client takes no packet so large', reasons.too_large));
  }

  private startPublish(packet: PublishPacket): Promise<void> {
    this.resolveAlias(packet);
    if (this.client.level === 5 && packet.qos > 0) {
      this.incoming ??= new Set();
      this.incoming.add(packet.packet_id);
      if (this.incoming.size > receive_maximum)
        throw new PacketError('more than the receive maximum', reasons.receive_maximum);
    }
    return this.publish(packet);
  }

  private resolveAlias(packet: PublishPacket): void {
    const { topic_alias } = packet.properties;
    if (topic_alias === undefined) return;
    this.aliases ??= new Map();
    const topic = this.aliases.get(topic_alias);
    if (topic_alias === 0 || topic_alias > topic_alias_maximum)
      throw new PacketError('invalid topic alias', reasons.invalid_topic_alias);
    if (packet.topic !== '') this.aliases.set(topic_alias, packet.topic);
    else if (topic === undefined) throw new PacketError('unknown topic alias', reasons.protocol_error);
    else packet.topic = topic;
  }

  private async publish(packet: PublishPacket): Promise<void> {
    const { qos, packet_id } = packet;
    const { acknowledgement, delivered } = await this.host.publish(packet);
    if (acknowledgement !== undefined && qos > 0) {
      if (qos === 1 || acknowledgement.reason >= reasons.unspecified) this.incoming?.delete(packet_id);
      this.acknowledge(qos === 1 ? 'puback' : 'pubrec', packet_id, acknowledgement);
    }
    await delivered;
  }

  private async release(packet_id: number): Promise<void> {
    const isKnown = await this.host.release(packet_id);
    this.incoming?.delete(packet_id);
    this.acknowledge('pubcomp', packet_id, { reason: isKnown ? reasons.success : reasons.packet_id_not_found });
  }

  /** PUBREC: stored before PUBREL is sent, because the message must not come again. */
  private async receive(packet_id: number, reason: number): Promise<void> {
    const message = this.unacknowledgedById?.get(packet_id);
    if (reason >= reasons.unspecified || message?.qos === 1) return this.complete(packet_id);
    if (message !== undefined) await this.host.received(packet_id, message);
    const answer = message === undefined ? reasons.packet_id_not_found : reasons.success;
    this.acknowledge('pubrel', packet_id, { reason: answer });
  }

  private complete(packet_id: number): void {
    const message = this.unacknowledgedById?.get(packet_id);
    if (message === undefined) return;
    this.unacknowledgedById?.delete(packet_id);
    this.reserved?.delete(packet_id);
    this.host.acknowledged(message);
    this.host.hasRoom();
  }

  private async unsubscribe(packet_id: number, filters: readonly string[]): Promise<void> {
    this.answer('unsuback', packet_id, await this.host.unsubscribe(filters));
  }
}
