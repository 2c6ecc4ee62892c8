import mongoose from 'mongoose';
import type { MemberWriter } from '../schema/projection.js';
import { bsonType, decode, endOfKey, endOfValue, readKeys, readLong, toBuffer } from './bson.js';
import { type Escapes, isNoncharacter, noncharacter_byte } from './escapes.js';

const { BSON } = mongoose.mongo;

const uuid_subtype = 4;
/** Size of the buffer after the first one is full. */
const growth_bytes = 320 * 1024;
const item = Buffer.from('item');

/** Walks BSON and writes it as text; subclasses add what surrounds a value and escape text. */
export abstract class Writer implements MemberWriter {
  protected bytes: Buffer = Buffer.alloc(0);
  length = 0;
  readonly #encodedKeys = new Map<string, Buffer>();
  #capacity: number;

  /** @param capacity bytes of the first buffer */
  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  abstract openRoot(name: Buffer): void;
  /** Begins the member whose key is `source` from `start` to `end`. @returns true if the key can name an element */
  abstract openMember(source: Uint8Array, start: number, end: number): boolean;
  abstract openItem(name: Buffer): void;
  /** Ends a member, an item or the root; `named` is the result of `openMember`. */
  abstract closeMember(source: Uint8Array, start: number, end: number, named: boolean): void;
  abstract openContainer(type: number): void;
  abstract closeContainer(type: number): void;
  abstract writeText(source: Uint8Array, start: number, end: number): void;
  /** Writes text that needs no escape. */
  abstract writePlainText(source: Uint8Array, end: number): void;
  abstract writeNull(): void;

  /** Begins again. @returns the bytes written so far, valid until the next write */
  rewind(): Buffer {
    const written = this.bytes.subarray(0, this.length);
    this.length = 0;
    return written;
  }

  /** Removes and returns the bytes written so far. */
  take(): Buffer {
    const taken = this.bytes.subarray(0, this.length);
    this.#capacity = Math.min(this.bytes.length, growth_bytes);
    this.bytes = Buffer.alloc(0);
    this.length = 0;
    return taken;
  }

  writeRaw(bytes: Uint8Array): void {
    this.copy(bytes, 0, bytes.length);
  }

  /** Begins a member whose key can name an element. */
  openNamed(name: Buffer): void {
    this.openMember(name, 0, name.length);
  }

  /** Ends what `openNamed`, `openItem` or `openRoot` began. */
  closeNamed(name: Buffer): void {
    this.closeMember(name, 0, name.length, true);
  }

  member(key: string, value: unknown): void {
    const name = this.#encodeKey(key);
    const named = this.openMember(name, 0, name.length);
    this.writeValue(value);
    this.closeMember(name, 0, name.length, named);
  }

  stored(key: string, source: Uint8Array, type: number, at: number): void {
    const name = this.#encodeKey(key);
    const named = this.openMember(name, 0, name.length);
    this.writeBson(toBuffer(source), type, at);
    this.closeMember(name, 0, name.length, named);
  }

  ascii(key: string, bytes: Uint8Array, length: number): void {
    const name = this.#encodeKey(key);
    const named = this.openMember(name, 0, name.length);
    this.writePlainText(bytes, length);
    this.closeMember(name, 0, name.length, named);
  }

  merged(key: string, base: Uint8Array | undefined, own: Uint8Array | undefined): void {
    if (base === undefined && own === undefined) return;
    const name = this.#encodeKey(key);
    const named = this.openMember(name, 0, name.length);
    this.writeMerged(base, own);
    this.closeMember(name, 0, name.length, named);
  }

  /** Writes the document `base` overridden by `own`. */
  writeMerged(base: Uint8Array | undefined, own: Uint8Array | undefined): void {
    this.openContainer(bsonType.document);
    if (base !== undefined) this.#writeMembers(toBuffer(base), 0, own && readKeys(toBuffer(own)));
    if (own !== undefined) this.#writeMembers(toBuffer(own), 0);
    this.closeContainer(bsonType.document);
  }

  /** Writes a plain value as JSON.stringify does: members that are undefined are left out. */
  writeValue(value: unknown): void {
    if (typeof value === 'string') this.#writeString(value);
    else if (typeof value === 'number') this.#writeNumber(value);
    else if (typeof value === 'boolean') this.writeAscii(value ? 'true' : 'false');
    else if (typeof value !== 'object' || value === null) this.writeNull();
    else if (Array.isArray(value)) {
      this.openContainer(bsonType.array);
      for (const inner of value) {
        this.openItem(item);
        this.writeValue(inner);
        this.closeNamed(item);
      }
      this.closeContainer(bsonType.array);
    } else {
      this.openContainer(bsonType.document);
      for (const [key, inner] of Object.entries(value)) if (inner !== undefined) this.member(key, inner);
      this.closeContainer(bsonType.document);
    }
  }

  /** Writes a stored document as it is. */
  writeDocument(source: Buffer, at = 0): void {
    this.openContainer(bsonType.document);
    this.#writeMembers(source, at);
    this.closeContainer(bsonType.document);
  }

  /** Writes one member whose key is `source` from `start` to `end`. @returns the end of its value */
  writeElement(source: Buffer, type: number, start: number, end: number): number {
    const named = this.openMember(source, start, end);
    const next = this.writeBson(source, type, end + 1);
    this.closeMember(source, start, end, named);
    return next;
  }

  /** Writes the members of the document at `at` but those in `except`, which holds keys decoded as Latin-1. */
  #writeMembers(source: Buffer, at: number, except?: ReadonlySet<string>): void {
    let i = at + 4;
    for (let type = source[i]; type; type = source[i]) {
      const start = i + 1;
      const end = endOfKey(source, start);
      i = except?.has(source.toString('latin1', start, end))
        ? endOfValue(source, type, end + 1)
        : this.writeElement(source, type, start, end);
    }
  }

  writeArray(source: Buffer, at: number): void {
    this.openContainer(bsonType.array);
    let i = at + 4;
    for (let type = source[i]; type; type = source[i]) {
      this.openItem(item);
      i = this.writeBson(source, type, endOfKey(source, i + 1) + 1);
      this.closeNamed(item);
    }
    this.closeContainer(bsonType.array);
  }

  /** Writes the value at `at`. @returns its end */
  writeBson(source: Buffer, type: number, at: number): number {
    switch (type) {
      case bsonType.double:
        this.#writeNumber(source.readDoubleLE(at));
        return at + 8;
      case bsonType.string: {
        const end = at + 4 + source.readInt32LE(at);
        this.writeText(source, at + 4, end - 1);
        return end;
      }
      case bsonType.document:
        this.writeDocument(source, at);
        return at + source.readInt32LE(at);
      case bsonType.array:
        this.writeArray(source, at);
        return at + source.readInt32LE(at);
      case bsonType.boolean:
        this.writeAscii(source[at] === 1 ? 'true' : 'false');
        return at + 1;
      case bsonType.null:
      case bsonType.undefined:
        this.writeNull();
        return at;
      case bsonType.int32:
        this.#writeInteger(source.readInt32LE(at));
        return at + 4;
      case bsonType.int64:
        this.#writeLong(source, at);
        return at + 8;
      default:
        return this.#writeExtendedType(source, type, at);
    }
  }

  #writeLong(source: Buffer, at: number): void {
    const value = readLong(source, at);
    if (Number.isSafeInteger(value)) this.#writeNumber(value);
    else this.writeAscii(source.readBigInt64LE(at).toString());
  }

  /** Writes types that JSON lacks, as text. */
  #writeExtendedType(source: Buffer, type: number, at: number): number {
    const end = endOfValue(source, type, at);
    if (type === bsonType.objectId) {
      this.#writeString(source.toString('hex', at, end));
    } else if (type === bsonType.date) {
      const date = new Date(readLong(source, at));
      if (Number.isNaN(date.getTime())) this.writeNull();
      else this.#writeString(date.toISOString());
    } else if (type === bsonType.binary) {
      this.#writeString(readBinary(source, at, end));
    } else {
      this.#writeString(BSON.EJSON.stringify(decode(source, type, at, end)));
    }
    return end;
  }

  #writeString(text: string): void {
    const encoded = Buffer.from(text);
    this.writeText(encoded, 0, encoded.length);
  }

  /** Writes as JSON does: NaN and infinities are null, -0 is 0. */
  #writeNumber(value: number): void {
    if ((value | 0) === value) this.#writeInteger(value);
    else if (Number.isFinite(value)) this.writeAscii(String(value));
    else this.writeNull();
  }

  /** Writes a 32-bit integer, without a string. */
  #writeInteger(value: number): void {
    this.reserve(11);
    let rest = value;
    if (value < 0) {
      this.bytes[this.length++] = 0x2d;
      rest = -value;
    }
    let digits = 1;
    for (let limit = 10; limit <= rest; limit *= 10) digits++;
    this.length += digits;
    for (let i = this.length - 1; digits > 0; i--, digits--) {
      const tens = Math.floor(rest / 10);
      this.bytes[i] = 0x30 + rest - tens * 10;
      rest = tens;
    }
  }

  protected writeAscii(text: string): void {
    this.reserve(text.length);
    for (let i = 0; i < text.length; i++) this.bytes[this.length++] = text.charCodeAt(i);
  }

  protected copy(source: Uint8Array, start: number, end: number): void {
    this.reserve(end - start);
    const bytes = this.bytes;
    let length = this.length;
    for (let i = start; i < end; i++) bytes[length++] = source[i] as number;
    this.length = length;
  }

  protected writeEscaped(source: Uint8Array, start: number, end: number, escapes: Escapes): void {
    this.reserve(end - start);
    let bytes = this.bytes;
    let length = this.length;
    for (let i = start; i < end; i++) {
      const byte = source[i] as number;
      const replacement = escapes[byte];
      if (replacement === undefined || (byte === noncharacter_byte && !isNoncharacter(source, i))) {
        bytes[length++] = byte;
        continue;
      }
      if (byte === noncharacter_byte) i += 2;
      this.length = length;
      this.reserve(replacement.length + end - i);
      bytes = this.bytes;
      for (let j = 0; j < replacement.length; j++) bytes[length++] = replacement[j] as number;
    }
    this.length = length;
  }

  protected reserve(count: number): void {
    if (this.length + count > this.bytes.length) this.#grow(this.length + count);
  }

  #grow(min_bytes: number): void {
    const usual = this.bytes.length === 0 ? this.#capacity : growth_bytes;
    const larger = Buffer.allocUnsafe(Math.max(min_bytes, this.bytes.length * 2, usual));
    this.bytes.copy(larger, 0, 0, this.length);
    this.bytes = larger;
  }

  /** Encodes each key once: those of computed members are few and the same for every document. */
  #encodeKey(key: string): Buffer {
    let encoded = this.#encodedKeys.get(key);
    if (encoded === undefined) {
      encoded = Buffer.from(key);
      this.#encodedKeys.set(key, encoded);
    }
    return encoded;
  }
}

function readBinary(source: Buffer, at: number, end: number): string {
  const bytes = source.subarray(at + 5, end);
  const isUuid = source[at + 4] === uuid_subtype && bytes.length === 16;
  return isUuid ? new BSON.UUID(bytes).toString() : bytes.toString('base64');
}
