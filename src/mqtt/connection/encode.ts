import type { AckPacket, Level, PublishPacket } from './packets.js';
import type { Reason } from './reasons.js';

/** A message on its way to a client. */
export interface OutgoingMessage extends Omit<PublishPacket, 'type' | 'properties'> {
  /** Encoded properties that are passed on. */
  properties?: Buffer | undefined;
  expiry_s?: number | undefined;
  subscription_ids?: readonly number[] | undefined;
  topic_alias?: number | undefined;
}

const acks = { puback: 0x40, pubrec: 0x50, pubrel: 0x62, pubcomp: 0x70 } as const;
export const pingresp = Buffer.from([0xd0, 0]);

/** The bytes of a variable byte integer. */
function varint(value: number): number[] {
  const bytes: number[] = [];
  let rest = value;
  do {
    bytes.push(rest > 127 ? (rest & 127) | 128 : rest);
    rest = Math.floor(rest / 128);
  } while (rest > 0);
  return bytes;
}

const uint16 = (value: number) => [value >> 8, value & 255];
const uint32 = (value: number) => [(value >>> 24) & 255, (value >>> 16) & 255, (value >>> 8) & 255, value & 255];

function text(content: string): Buffer {
  const length = Buffer.byteLength(content);
  const bytes = Buffer.allocUnsafe(2 + length);
  bytes.writeUInt16BE(length, 0);
  bytes.write(content, 2);
  return bytes;
}

function packet(first: number, parts: readonly Uint8Array[]): Buffer {
  let length = 0;
  for (const part of parts) length += part.length;
  return Buffer.concat([Buffer.from([first, ...varint(length)]), ...parts]);
}

const withLength = (properties: readonly Uint8Array[]) => {
  const bytes = Buffer.concat(properties);
  return Buffer.concat([Buffer.from(varint(bytes.length)), bytes]);
};

const no_properties = Buffer.from([0]);

/** Encodes properties that are passed on. */
export function encodeForwarded(response_topic: string, correlation_data: Buffer): Buffer {
  const correlation = [Buffer.from([0x09, ...uint16(correlation_data.length)]), correlation_data];
  return Buffer.concat([Buffer.from([0x08]), text(response_topic), ...correlation]);
}

/** A PUBLISH to a client; before MQTT 5 without properties. */
export function encodePublish(message: OutgoingMessage, level: Level): Buffer {
  const { topic, payload, qos, retain, dup, packet_id } = message;
  const parts: Uint8Array[] = [text(topic)];
  if (qos > 0) parts.push(Buffer.from(uint16(packet_id)));
  if (level === 5) parts.push(encodeMessageProperties(message));
  parts.push(payload);
  return packet(0x30 | (dup ? 8 : 0) | (qos << 1) | (retain ? 1 : 0), parts);
}

function encodeMessageProperties(message: OutgoingMessage): Buffer {
  const { properties, expiry_s, subscription_ids = [], topic_alias } = message;
  const parts: Uint8Array[] = [];
  if (topic_alias !== undefined) parts.push(Buffer.from([0x23, ...uint16(topic_alias)]));
  if (expiry_s !== undefined) parts.push(Buffer.from([0x02, ...uint32(expiry_s)]));
  for (const id of subscription_ids) parts.push(Buffer.from([0x0b, ...varint(id)]));
  if (properties !== undefined) parts.push(properties);
  return parts.length === 0 ? no_properties : withLength(parts);
}

/** @param reason left out before MQTT 5, and where it is 0 */
export function encodeAck(type: AckPacket['type'], packet_id: number, reason = 0, reason_text?: string): Buffer {
  if (reason === 0) return Buffer.from([acks[type], 2, packet_id >> 8, packet_id & 255]);
  const parts: Uint8Array[] = [Buffer.from([...uint16(packet_id), reason])];
  if (reason_text !== undefined) parts.push(withLength([Buffer.from([0x1f]), text(reason_text)]));
  return packet(acks[type], parts);
}

/** SUBACK, and UNSUBACK of MQTT 5. */
export function encodeCodes(
  type: 'suback' | 'unsuback',
  packet_id: number,
  codes: readonly number[],
  level: Level,
): Buffer {
  const first = type === 'suback' ? 0x90 : 0xb0;
  const id = Buffer.from(uint16(packet_id));
  if (level === 5) return packet(first, [id, no_properties, Buffer.from(codes)]);
  if (type === 'unsuback') return packet(first, [id]);
  return packet(first, [id, Buffer.from(codes.map((code) => Math.min(code, 0x80)))]);
}

/** Limits and lifetimes that a CONNACK of MQTT 5 carries. */
export interface ConnackProperties {
  receive_maximum: number;
  max_packet_bytes: number;
  topic_alias_maximum: number;
  assigned_client_id?: string | undefined;
  session_expiry_s?: number | undefined;
}

/** An accepted login. */
export function encodeConnack(isPresent: boolean, properties?: ConnackProperties): Buffer {
  const head = Buffer.from([isPresent ? 1 : 0, 0]);
  if (properties === undefined) return packet(0x20, [head]);
  const { receive_maximum, max_packet_bytes, topic_alias_maximum, assigned_client_id, session_expiry_s } = properties;
  const parts: Uint8Array[] = [
    Buffer.from([0x21, ...uint16(receive_maximum), 0x27, ...uint32(max_packet_bytes)]),
    Buffer.from([0x22, ...uint16(topic_alias_maximum), 0x25, 1, 0x28, 1, 0x29, 1, 0x2a, 1]),
  ];
  if (assigned_client_id !== undefined) parts.push(Buffer.from([0x12]), text(assigned_client_id));
  if (session_expiry_s !== undefined) parts.push(Buffer.from([0x11, ...uint32(session_expiry_s)]));
  return packet(0x20, [head, withLength(parts)]);
}

/** Reports whether answers have the form of MQTT 5: those to a later version have the last form that is known. */
export function isVersion5(level: number): boolean {
  // the first bit marks bridges of earlier versions
  return level >= 5 && level < 0x80;
}

/** A refused login. @param code of the version of the client */
export function encodeRefusal(code: number, level: number): Buffer {
  return Buffer.from(isVersion5(level) ? [0x20, 3, 0, code, 0] : [0x20, 2, 0, code]);
}

/** A DISCONNECT, which only MQTT 5 lets a server send. */
export function encodeDisconnect(reason: Reason): Buffer {
  return Buffer.from([0xe0, 1, reason]);
}
