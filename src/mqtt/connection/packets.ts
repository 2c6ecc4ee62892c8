import { FieldReader } from './field-reader.js';
import { type Properties, readProperties } from './properties.js';
import { PacketError, reasons } from './reasons.js';

export type Qos = 0 | 1 | 2;
/** Protocol levels of MQTT 3.1, 3.1.1 and 5. */
export type Level = 3 | 4 | 5;

/** A message as a client publishes it. */
export interface PublishPacket {
  type: 'publish';
  /** Empty if the topic alias stands for it. */
  topic: string;
  payload: Buffer;
  qos: Qos;
  retain: boolean;
  dup: boolean;
  /** 0 at QoS 0. */
  packet_id: number;
  properties: Properties;
}

/** The last will in a CONNECT. */
export type WillPacket = Pick<PublishPacket, 'topic' | 'payload' | 'qos' | 'retain' | 'properties'>;

export interface ConnectPacket {
  type: 'connect';
  level: Level;
  client_id: string;
  clean: boolean;
  keep_alive_s: number;
  username: string;
  password: Buffer;
  will: WillPacket | undefined;
  properties: Properties;
}

/** PUBACK, PUBREC, PUBREL or PUBCOMP. */
export interface AckPacket {
  type: 'puback' | 'pubrec' | 'pubrel' | 'pubcomp';
  packet_id: number;
  reason: number;
}

/** A filter of a SUBSCRIBE with its options. */
export interface RequestedFilter {
  filter: string;
  qos: Qos;
  no_local: boolean;
  retain_as_published: boolean;
  retain_handling: 0 | 1 | 2;
}

export interface SubscribePacket {
  type: 'subscribe';
  packet_id: number;
  filters: readonly RequestedFilter[];
  properties: Properties;
}

export interface DisconnectPacket {
  type: 'disconnect';
  reason: number;
  properties: Properties;
}

const types = [
  '',
  'connect',
  '',
  'publish',
  'puback',
  'pubrec',
  'pubrel',
  'pubcomp',
  'subscribe',
  '',
  'unsubscribe',
  '',
  'pingreq',
  '',
  'disconnect',
  '',
] as const;
/** The flags of these are 2 (MQTT 5 §2.1.3); MQTT 3.1 has a DUP flag instead. */
const flaggedTypes: ReadonlySet<string> = new Set(['pubrel', 'subscribe', 'unsubscribe']);
const dup_flag = 0x08;
const no_properties: Properties = {};

/** Parses a whole packet of a client. @throws PacketError if it is malformed or against the protocol */
export function parsePacket(bytes: Buffer, level: Level) {
  const [first = 0] = bytes;
  const type = types[first >> 4] ?? '';
  const fields = new FieldReader(bytes);
  if (type === 'publish') return readPublish(fields, first, level);
  const flags = level === 3 ? first & 0x0f & ~dup_flag : first & 0x0f;
  if (type === '') throw new PacketError('unexpected packet type', reasons.protocol_error);
  if (flags !== (flaggedTypes.has(type) ? 2 : 0)) throw new PacketError('invalid flags');
  switch (type) {
    case 'connect':
      return readConnect(fields);
    case 'subscribe':
      return readSubscribe(fields, level);
    case 'unsubscribe':
      return readUnsubscribe(fields, level);
    case 'pingreq':
      fields.expectEnd();
      return { type };
    case 'disconnect':
      return { type, ...readReason(fields, level, 'disconnect') };
    default:
      return { type, packet_id: fields.packetId(), reason: readReason(fields, level, 'ack').reason };
  }
}

/** The reason code and the properties of MQTT 5, which may be left out. */
function readReason(fields: FieldReader, level: Level, holder: 'ack' | 'disconnect') {
  const reason = level < 5 || fields.isAtEnd ? 0 : fields.byte();
  const properties = level < 5 || fields.isAtEnd ? no_properties : readProperties(fields, holder);
  fields.expectEnd();
  return { reason, properties };
}

function readPublish(fields: FieldReader, first: number, level: Level): PublishPacket {
  const qos = (first >> 1) & 3;
  const dup = (first & dup_flag) !== 0;
  if (qos === 3) throw new PacketError('invalid QoS');
  if (level === 5 && dup && qos === 0) throw new PacketError('DUP at QoS 0');
  const topic = fields.string();
  const packet_id = qos === 0 ? 0 : fields.packetId();
  const properties = level === 5 ? readProperties(fields, 'publish') : no_properties;
  if (/[+#]/.test(topic)) throw new PacketError('topic with a wildcard');
  if (topic === '' && properties.topic_alias === undefined)
    throw new PacketError('empty topic', reasons.protocol_error);
  const retain = (first & 1) !== 0;
  return { type: 'publish', topic, payload: fields.rest(), qos: qos as Qos, retain, dup, packet_id, properties };
}

function readSubscribe(fields: FieldReader, level: Level): SubscribePacket {
  const packet_id = fields.packetId();
  const properties = level === 5 ? readProperties(fields, 'subscribe') : no_properties;
  const filters = readFilters(fields, (filter) => {
    const options = fields.byte();
    const retain_handling = ((options >> 4) & 3) as 0 | 1 | 2;
    if ((options & 3) === 3) throw new PacketError('invalid QoS');
    if ((options & (level === 5 ? 0xc0 : 0xfc)) !== 0) throw new PacketError('invalid QoS');
    if ((options & 0x30) === 0x30) throw new PacketError('invalid retain handling', reasons.protocol_error);
    const no_local = (options & 4) !== 0;
    if (no_local && filter.startsWith('$share/'))
      throw new PacketError('no local on a shared subscription', reasons.protocol_error);
    const retain_as_published = (options & 8) !== 0;
    return { filter, qos: (options & 3) as Qos, no_local, retain_as_published, retain_handling };
  });
  return { type: 'subscribe', packet_id, filters, properties };
}

function readUnsubscribe(fields: FieldReader, level: Level) {
  const packet_id = fields.packetId();
  if (level === 5) readProperties(fields, 'unsubscribe');
  return { type: 'unsubscribe' as const, packet_id, filters: readFilters(fields, (filter) => filter) };
}

function readFilters<Entry>(fields: FieldReader, readEntry: (filter: string) => Entry): Entry[] {
  const entries: Entry[] = [];
  if (fields.isAtEnd) throw new PacketError('no topic filter', reasons.protocol_error);
  while (!fields.isAtEnd) {
    const filter = fields.string();
    if (filter === '') throw new PacketError('empty topic filter', reasons.protocol_error);
    entries.push(readEntry(filter));
  }
  return entries;
}

/** Flags of CONNECT (MQTT 5 §3.1.2.3). */
const username_flag = 0x80;
const password_flag = 0x40;
const will_retain_flag = 0x20;
const will_flag = 0x04;
const clean_flag = 0x02;
/** Set in the level by bridges of mosquitto. */
const bridge_flag = 0x80;

/** Reads the protocol name and level of a CONNECT. @throws PacketError for a packet that is too short */
export function readProtocol(bytes: Buffer): { name: string; level: number } {
  const fields = new FieldReader(bytes);
  return { name: fields.string(), level: fields.byte() & ~bridge_flag };
}

function readConnect(fields: FieldReader): ConnectPacket {
  fields.string();
  const level = (fields.byte() & ~bridge_flag) as Level;
  const flags = fields.byte();
  const hasWill = (flags & will_flag) !== 0;
  const will_qos = (flags >> 3) & 3;
  if ((flags & 1) !== 0 || will_qos === 3) throw new PacketError('invalid CONNECT flags');
  if (!hasWill && (will_qos > 0 || (flags & will_retain_flag) !== 0)) throw new PacketError('invalid CONNECT flags');
  // MQTT 5 allows a password without a username
  if (level < 5 && (flags & (username_flag | password_flag)) === password_flag)
    throw new PacketError('password without username');
  const keep_alive_s = fields.uint16();
  const properties = level === 5 ? readProperties(fields, 'connect') : no_properties;
  const client_id = fields.string();
  const will = hasWill
    ? readWill(fields, { level, qos: will_qos as Qos, retain: (flags & will_retain_flag) !== 0 })
    : undefined;
  const username = (flags & username_flag) === 0 ? '' : fields.string();
  const password = (flags & password_flag) === 0 ? Buffer.alloc(0) : Buffer.from(fields.binary());
  fields.expectEnd();
  const clean = (flags & clean_flag) !== 0;
  return { type: 'connect', level, client_id, clean, keep_alive_s, username, password, will, properties };
}

function readWill(
  fields: FieldReader,
  { level, ...delivery }: Pick<WillPacket, 'qos' | 'retain'> & { level: Level },
): WillPacket {
  const properties = level === 5 ? readProperties(fields, 'will') : no_properties;
  const topic = fields.string();
  // a view would keep the whole chunk as long as the connection lasts
  return { ...delivery, properties, topic, payload: Buffer.from(fields.binary()) };
}
