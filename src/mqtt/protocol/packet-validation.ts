import { isUtf8 } from 'node:buffer';

/** Packet types that clients send (MQTT 3.1.1 §2.2.1). */
const CONNECT = 1;
const PUBLISH = 3;
const PUBACK = 4;
const PUBREC = 5;
const PUBREL = 6;
const PUBCOMP = 7;
const SUBSCRIBE = 8;
const UNSUBSCRIBE = 10;
const PINGREQ = 12;
const DISCONNECT = 14;

class ProtocolError extends Error {}

/**
 * Checks a whole packet for the errors that aedes tolerates: packet id 0, no filter to (un)subscribe, ill-formed UTF-8 or
 * NUL in a string, lengths that do not add up. @returns the error, or undefined
 */
export function findProtocolError(packet: Buffer): string | undefined {
  try {
    checkPacket(packet);
    return undefined;
  } catch (error) {
    if (error instanceof ProtocolError) return error.message;
    throw error;
  }
}

/** Reads protocol name and level of a CONNECT packet. @throws Error for a packet that is too short */
export function readProtocolVersion(packet: Buffer): { name: string; level: number } {
  const reader = createReader(packet);
  return { name: reader.string(), level: reader.byte() };
}

function checkPacket(packet: Buffer): void {
  const [first = 0] = packet;
  const reader = createReader(packet);
  switch (first >> 4) {
    case CONNECT:
      checkConnect(reader);
      break;
    case PUBLISH:
      reader.string();
      if ((first & 0x06) !== 0) reader.packetId();
      break;
    case PUBACK:
    case PUBREC:
    case PUBREL:
    case PUBCOMP:
      reader.packetId();
      reader.end();
      break;
    case SUBSCRIBE:
      checkFilters(reader, true);
      break;
    case UNSUBSCRIBE:
      checkFilters(reader, false);
      break;
    case PINGREQ:
    case DISCONNECT:
      reader.end();
      break;
    default:
      throw new ProtocolError('unexpected packet type');
  }
}

function checkFilters(reader: Reader, hasQos: boolean): void {
  reader.packetId();
  if (reader.isAtEnd()) throw new ProtocolError('no topic filter');
  while (!reader.isAtEnd()) {
    if (reader.string() === '') throw new ProtocolError('empty topic filter');
    if (hasQos && reader.byte() > 2) throw new ProtocolError('invalid QoS');
  }
}

/** Flags of CONNECT (MQTT 3.1.1 §3.1.2.3). */
const username_flag = 0x80;
const password_flag = 0x40;
const will_flag = 0x04;

function checkConnect(reader: Reader): void {
  reader.string();
  reader.byte();
  const flags = reader.byte();
  reader.skip(2);
  reader.string();
  if ((flags & will_flag) !== 0) {
    reader.string();
    reader.binary();
  }
  if ((flags & username_flag) !== 0) reader.string();
  if ((flags & password_flag) !== 0) reader.binary();
  reader.end();
}

type Reader = ReturnType<typeof createReader>;

/** Reads the fields of a packet in order. Every method throws ProtocolError where the packet ends too early. */
function createReader(packet: Buffer) {
  let at = headerSize(packet);

  function take(bytes: number): Buffer {
    if (at + bytes > packet.length) throw new ProtocolError('packet too short');
    at += bytes;
    return packet.subarray(at - bytes, at);
  }

  const number = () => take(2).readUInt16BE(0);
  const binary = () => take(number());
  return {
    byte: () => take(1).readUInt8(0),
    skip: (bytes: number) => void take(bytes),
    binary,
    /** @throws ProtocolError for ill-formed UTF-8 and NUL (MQTT 3.1.1 §1.5.3) */
    string(): string {
      const bytes = binary();
      if (!isUtf8(bytes)) throw new ProtocolError('ill-formed UTF-8');
      if (bytes.includes(0)) throw new ProtocolError('NUL in a string');
      return bytes.toString();
    },
    /** @throws ProtocolError for 0 (MQTT 3.1.1 §2.3.1) */
    packetId(): void {
      if (number() === 0) throw new ProtocolError('packet id 0');
    },
    isAtEnd: () => at === packet.length,
    /** @throws ProtocolError unless everything was read */
    end(): void {
      if (at !== packet.length) throw new ProtocolError('packet too long');
    },
  };
}

/** The first byte, and the bytes of the length, all but the last of which have bit 7 set. */
function headerSize(packet: Buffer): number {
  let at = 1;
  while (((packet[at] ?? 0) & 0x80) !== 0) at++;
  return at + 1;
}
