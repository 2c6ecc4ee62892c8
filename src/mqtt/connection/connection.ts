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
  /** The client has it: only its packet id is left. */
  isReceived: boolean;
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
export type Connection<Origin> = ReturnType<typeof createConnection<Origin>>;

/** Creates the protocol of a connection. */
export function createConnection<Origin>(client: ClientLimits, host: Host<Origin>) {
  const { level } = client;
  const unacknowledged = new Map<number, Unacknowledged<Origin>>();
  const aliases = new Map<number, string>();
  /** Aliases of the first topics that the client gets messages of. */
  const sentAliases = new Map<string, number>();
  /** Packet ids of the client that are not acknowledged. */
  const incoming = new Set<number>();
  let last_packet_id = 0;

  function acknowledge(type: AckPacket['type'], packet_id: number, { reason, text }: Acknowledgement): void {
    const shown = client.wants_problem_information ? text : undefined;
    const bytes = level === 5 ? encodeAck(type, packet_id, reason, shown) : encodeAck(type, packet_id);
    host.write(bytes.length <= client.max_packet_bytes ? bytes : encodeAck(type, packet_id, reason));
  }

  function answer(type: 'suback' | 'unsuback', packet_id: number, codes: readonly number[]): void {
    const bytes = encodeCodes(type, packet_id, codes, level);
    if (bytes.length <= client.max_packet_bytes) host.write(bytes);
    else host.fail(new PacketError('the client takes no packet so large', reasons.too_large));
  }

  function resolveAlias(packet: PublishPacket): void {
    const { topic_alias } = packet.properties;
    if (topic_alias === undefined) return;
    const topic = aliases.get(topic_alias);
    if (topic_alias === 0 || topic_alias > topic_alias_maximum)
      throw new PacketError('invalid topic alias', reasons.invalid_topic_alias);
    if (packet.topic !== '') aliases.set(topic_alias, packet.topic);
    else if (topic === undefined) throw new PacketError('unknown topic alias', reasons.protocol_error);
    else packet.topic = topic;
  }

  async function publish(packet: PublishPacket): Promise<void> {
    const { qos, packet_id } = packet;
    const { acknowledgement, delivered } = await host.publish(packet);
    if (acknowledgement !== undefined && qos > 0) {
      if (qos === 1 || acknowledgement.reason >= reasons.unspecified) incoming.delete(packet_id);
      acknowledge(qos === 1 ? 'puback' : 'pubrec', packet_id, acknowledgement);
    }
    await delivered;
  }

  function startPublish(packet: PublishPacket): Promise<void> {
    resolveAlias(packet);
    if (level === 5 && packet.qos > 0) {
      incoming.add(packet.packet_id);
      if (incoming.size > receive_maximum)
        throw new PacketError('more than the receive maximum', reasons.receive_maximum);
    }
    return publish(packet);
  }

  async function release(packet_id: number): Promise<void> {
    const isKnown = await host.release(packet_id);
    incoming.delete(packet_id);
    acknowledge('pubcomp', packet_id, { reason: isKnown ? reasons.success : reasons.packet_id_not_found });
  }

  /** PUBREC: stored before PUBREL is sent, because the message must not come again. */
  async function receive(packet_id: number, reason: number): Promise<void> {
    const message = unacknowledged.get(packet_id);
    if (reason >= reasons.unspecified || message?.qos === 1) return complete(packet_id);
    if (message !== undefined) {
      await host.received(packet_id, message);
      message.isReceived = true;
    }
    acknowledge('pubrel', packet_id, { reason: message === undefined ? reasons.packet_id_not_found : reasons.success });
  }

  function complete(packet_id: number): void {
    const message = unacknowledged.get(packet_id);
    if (message === undefined) return;
    unacknowledged.delete(packet_id);
    host.acknowledged(message);
    host.hasRoom();
  }

  async function subscribe(packet: SubscribePacket): Promise<void> {
    await host.subscribe(packet, (codes) => answer('suback', packet.packet_id, codes));
  }

  async function unsubscribe(packet_id: number, filters: readonly string[]): Promise<void> {
    answer('unsuback', packet_id, await host.unsubscribe(filters));
  }

  function handlePacket(bytes: Buffer): Promise<void> | undefined {
    const packet = parsePacket(bytes, level);
    switch (packet.type) {
      case 'publish':
        return startPublish(packet);
      case 'puback':
      case 'pubcomp':
        complete(packet.packet_id);
        return undefined;
      case 'pubrec':
        return receive(packet.packet_id, packet.reason);
      case 'pubrel':
        return release(packet.packet_id);
      case 'subscribe':
        return subscribe(packet);
      case 'unsubscribe':
        return unsubscribe(packet.packet_id, packet.filters);
      case 'pingreq':
        host.write(pingresp);
        return undefined;
      case 'disconnect':
        host.disconnect(packet);
        return undefined;
      default:
        throw new PacketError('unexpected packet type', reasons.protocol_error);
    }
  }

  return {
    /** Handles a packet. @returns a promise while the broker is busy with it */
    handle(bytes: Buffer): Promise<void> | undefined {
      try {
        return handlePacket(bytes);
      } catch (error) {
        if (!(error instanceof PacketError)) throw error;
        host.fail(error);
        return undefined;
      }
    },
    /** Reports whether a message of QoS 1 or 2 may be sent. */
    hasRoom: () => unacknowledged.size < client.receive_maximum,
    /** Takes a packet id for a message of QoS 1 or 2. @param former under which it was sent before */
    begin(message: Unacknowledged<Origin>, former?: number): number {
      let packet_id = former ?? 0;
      while (packet_id === 0 || unacknowledged.has(packet_id)) {
        last_packet_id = (last_packet_id % max_packet_id) + 1;
        packet_id = last_packet_id;
      }
      unacknowledged.set(packet_id, message);
      return packet_id;
    },
    /** Sends a message, or leaves it out if it is too large for the client. */
    send(message: OutgoingMessage) {
      const sentAlias = sentAliases.get(message.topic);
      const hasFree = sentAliases.size < Math.min(client.topic_alias_maximum, topic_alias_maximum);
      const topic_alias = sentAlias ?? (hasFree ? sentAliases.size + 1 : undefined);
      const topic = sentAlias === undefined ? message.topic : '';
      const bytes = encodePublish(topic_alias === undefined ? message : { ...message, topic, topic_alias }, level);
      if (bytes.length > client.max_packet_bytes) return complete(message.packet_id);
      if (topic_alias !== undefined) sentAliases.set(message.topic, topic_alias);
      host.write(bytes);
    },
    /** Sends PUBREL for a message that an earlier connection has received. */
    sendRelease(packet_id: number, origin: Origin): void {
      unacknowledged.set(packet_id, { qos: 2, origin, isReceived: true });
      host.write(encodeAck('pubrel', packet_id));
    },
    unacknowledged,
  };
}
