import type { FieldReader } from './field-reader.js';
import { PacketError, reasons } from './reasons.js';

/** The properties of a packet (MQTT 5 §2.2.2) that the service uses. */
export interface Properties {
  message_expiry_s?: number;
  response_topic?: string;
  correlation_data?: Buffer;
  subscription_id?: number;
  session_expiry_s?: number;
  authentication_method?: string;
  wants_problem_information?: number;
  will_delay_s?: number;
  receive_maximum?: number;
  topic_alias_maximum?: number;
  topic_alias?: number;
  max_packet_bytes?: number;
  /**
   * Properties that subscribers get unchanged, encoded: payload format, content type, response topic, correlation data, user
   * properties.
   */
  forwarded?: Buffer;
}

type Kind = 'byte' | 'uint16' | 'uint32' | 'varint' | 'string' | 'binary' | 'pair';
type Holder = 'connect' | 'will' | 'publish' | 'ack' | 'subscribe' | 'unsubscribe' | 'disconnect';

interface Declaration {
  kind: Kind;
  holders: readonly Holder[];
  name?: Exclude<keyof Properties, 'forwarded'>;
  /** Smallest and largest value. */
  range?: readonly [number, number];
  isForwarded?: true;
}

const messages = ['publish', 'will'] as const;
const flag = [0, 1] as const;
const user_property = 0x26;
const topic_alias = 0x23;
const authentication_data = 0x16;

const declarations: ReadonlyMap<number, Declaration> = new Map<number, Declaration>([
  [0x01, { kind: 'byte', holders: messages, range: flag, isForwarded: true }],
  [0x02, { kind: 'uint32', holders: messages, name: 'message_expiry_s' }],
  [0x03, { kind: 'string', holders: messages, isForwarded: true }],
  [0x08, { kind: 'string', holders: messages, name: 'response_topic', isForwarded: true }],
  [0x09, { kind: 'binary', holders: messages, name: 'correlation_data', isForwarded: true }],
  [0x0b, { kind: 'varint', holders: ['subscribe'], name: 'subscription_id', range: [1, 268_435_455] }],
  [0x11, { kind: 'uint32', holders: ['connect', 'disconnect'], name: 'session_expiry_s' }],
  [0x15, { kind: 'string', holders: ['connect'], name: 'authentication_method' }],
  [authentication_data, { kind: 'binary', holders: ['connect'] }],
  [0x17, { kind: 'byte', holders: ['connect'], name: 'wants_problem_information', range: flag }],
  [0x18, { kind: 'uint32', holders: ['will'], name: 'will_delay_s' }],
  [0x19, { kind: 'byte', holders: ['connect'], range: flag }],
  [0x1f, { kind: 'string', holders: ['ack', 'disconnect'] }],
  [0x21, { kind: 'uint16', holders: ['connect'], name: 'receive_maximum', range: [1, 65_535] }],
  [0x22, { kind: 'uint16', holders: ['connect'], name: 'topic_alias_maximum' }],
  [topic_alias, { kind: 'uint16', holders: ['publish'], name: 'topic_alias' }],
  [
    user_property,
    {
      kind: 'pair',
      holders: ['connect', 'will', 'publish', 'ack', 'subscribe', 'unsubscribe', 'disconnect'],
      isForwarded: true,
    },
  ],
  [0x27, { kind: 'uint32', holders: ['connect'], name: 'max_packet_bytes', range: [1, 0xff_ff_ff_ff] }],
]);

const max_user_properties = 32;
/** Limit of all properties of a packet (reference/mqtt.md#packet-limits). */
const max_bytes = 8 * 1024;

const protocolError = (text: string) => new PacketError(text, reasons.protocol_error);

/** Reads the properties of a packet. @throws PacketError if one is given twice, unknown or out of its range */
export function readProperties(fields: FieldReader, holder: Holder): Properties {
  const reader = fields.part();
  const properties: Properties = {};
  const found = new Set<number>();
  const forwarded: Buffer[] = [];
  const start = reader.offset;
  let users = 0;
  while (!reader.isAtEnd) {
    const from = reader.offset;
    const id = reader.varint();
    const declaration = declarations.get(id);
    if (declaration === undefined) throw new PacketError('unknown property');
    if (!declaration.holders.includes(holder)) throw protocolError('property of another packet');
    if (id === user_property) users++;
    else if (found.has(id)) throw protocolError('property given twice');
    found.add(id);
    const value = readValue(reader, declaration);
    if (declaration.name !== undefined) Object.assign(properties, { [declaration.name]: value });
    if (declaration.isForwarded) forwarded.push(reader.slice(from));
  }
  if (users > max_user_properties || reader.offset - start > max_bytes)
    throw new PacketError('too many properties', reasons.too_large);
  if (found.has(authentication_data) && properties.authentication_method === undefined)
    throw protocolError('authentication data without a method');
  if (/[+#]/.test(properties.response_topic ?? '')) throw protocolError('response topic with a wildcard');
  if (forwarded.length > 0 && messages.includes(holder as 'will')) properties.forwarded = Buffer.concat(forwarded);
  return properties;
}

function readValue(reader: FieldReader, { kind, range }: Declaration): number | string | Buffer {
  if (kind === 'pair') {
    reader.string();
    return reader.string();
  }
  const value = reader[kind]();
  if (range !== undefined && (Number(value) < range[0] || Number(value) > range[1]))
    throw protocolError('property out of range');
  return value;
}
