import { isUtf8 } from 'node:buffer';
import { PacketError, reasons } from './reasons.js';

/** Reads the fields of a packet in their order. Every method throws PacketError where the packet ends too early. */
export class FieldReader {
  private at = 1;

  /** Begins behind the fixed header. */
  constructor(
    private readonly bytes: Buffer,
    private readonly end = bytes.length,
  ) {
    while (((bytes[this.at] ?? 0) & 0x80) !== 0) this.at++;
    this.at++;
  }

  private take(length: number): Buffer {
    const from = this.at;
    if (from + length > this.end) throw new PacketError('packet too short');
    this.at = from + length;
    return this.bytes.subarray(from, this.at);
  }

  get offset(): number {
    return this.at;
  }

  get isAtEnd(): boolean {
    return this.at >= this.end;
  }

  byte(): number {
    return this.take(1).readUInt8(0);
  }

  uint16(): number {
    return this.take(2).readUInt16BE(0);
  }

  uint32(): number {
    return this.take(4).readUInt32BE(0);
  }

  /** A variable byte integer (MQTT 5 §1.5.5); longer than it must be is malformed. */
  varint(): number {
    let value = 0;
    for (let index = 0; index < 4; index++) {
      const byte = this.byte();
      value += (byte & 0x7f) * 128 ** index;
      if ((byte & 0x80) !== 0) continue;
      if (byte === 0 && index > 0) break;
      return value;
    }
    throw new PacketError('malformed length');
  }

  binary(): Buffer {
    return this.take(this.uint16());
  }

  /** @throws PacketError for ill-formed UTF-8 and NUL (MQTT-1.5.4-1, MQTT-1.5.4-2) */
  string(): string {
    const bytes = this.binary();
    if (!isUtf8(bytes)) throw new PacketError('ill-formed UTF-8');
    if (bytes.includes(0)) throw new PacketError('NUL in a string');
    return bytes.toString();
  }

  /** @throws PacketError for 0 (MQTT-2.2.1-3) */
  packetId(): number {
    const packet_id = this.uint16();
    if (packet_id === 0) throw new PacketError('packet id 0', reasons.protocol_error);
    return packet_id;
  }

  rest(): Buffer {
    return this.take(this.end - this.at);
  }

  /** Reads a part with a length before it. */
  part(): FieldReader {
    const length = this.varint();
    const from = this.at;
    this.take(length);
    const reader = new FieldReader(this.bytes, from + length);
    reader.at = from;
    return reader;
  }

  slice(from: number): Buffer {
    return this.bytes.subarray(from, this.at);
  }

  /** @throws PacketError unless everything was read */
  expectEnd(): void {
    if (this.at !== this.end) throw new PacketError('packet too long');
  }
}
