import mongoose from 'mongoose';

const { BSON, UUID } = mongoose.mongo;

/** Element types (bsonspec.org). */
export const bsonType = {
  double: 1,
  string: 2,
  document: 3,
  array: 4,
  binary: 5,
  undefined: 6,
  objectId: 7,
  boolean: 8,
  date: 9,
  null: 10,
  regex: 11,
  dbPointer: 12,
  code: 13,
  symbol: 14,
  codeWithScope: 15,
  int32: 16,
  timestamp: 17,
  int64: 18,
  decimal128: 19,
  maxKey: 127,
  minKey: 255,
} as const;

/** Returns the same bytes as a Buffer, not copied. */
export function toBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Returns the end of the key that begins at `start`: the position of its NUL. */
export function endOfKey(source: Buffer, start: number): number {
  let end = start;
  while (source[end]) end++;
  return end;
}

/** Returns the end of the value that begins at `at`. @throws Error for an unknown type */
export function endOfValue(source: Buffer, type: number, at: number): number {
  switch (type) {
    case bsonType.null:
    case bsonType.undefined:
    case bsonType.maxKey:
    case bsonType.minKey:
      return at;
    case bsonType.boolean:
      return at + 1;
    case bsonType.int32:
      return at + 4;
    case bsonType.double:
    case bsonType.date:
    case bsonType.int64:
    case bsonType.timestamp:
      return at + 8;
    case bsonType.objectId:
      return at + 12;
    case bsonType.decimal128:
      return at + 16;
    case bsonType.document:
    case bsonType.array:
    case bsonType.codeWithScope:
      return at + source.readInt32LE(at);
    case bsonType.string:
    case bsonType.code:
    case bsonType.symbol:
      return at + 4 + source.readInt32LE(at);
    case bsonType.binary:
      return at + 5 + source.readInt32LE(at);
    case bsonType.dbPointer:
      return at + 16 + source.readInt32LE(at);
    case bsonType.regex:
      return endOfKey(source, endOfKey(source, at) + 1) + 1;
    default:
      throw new Error(`unknown BSON type: ${type}`);
  }
}

/** A value's type and position in its buffer. */
export interface BsonElement {
  type: number;
  start: number;
  end: number;
}

/** Finds the element `name`, a key decoded as Latin-1, in the document at `at`. */
export function findElement(source: Buffer, at: number, name: string): BsonElement | undefined {
  let i = at + 4;
  for (let type = source[i]; type; type = source[i]) {
    const keyEnd = endOfKey(source, i + 1);
    const end = endOfValue(source, type, keyEnd + 1);
    if (isLatinKey(name, source, i + 1, keyEnd)) return { type, start: keyEnd + 1, end };
    i = end;
  }
  return undefined;
}

/** Returns the number of an element; undefined for other types. */
export function readNumber(source: Buffer, element: BsonElement | undefined): number | undefined {
  if (element?.type === bsonType.int32) return source.readInt32LE(element.start);
  if (element?.type === bsonType.double) return source.readDoubleLE(element.start);
  return element?.type === bsonType.int64 ? readLong(source, element.start) : undefined;
}

/** Returns the text of an element; undefined for other types. */
export function readText(source: Buffer, element: BsonElement | undefined): string | undefined {
  return element?.type === bsonType.string ? source.toString('utf8', element.start + 4, element.end - 1) : undefined;
}

/** Returns the keys of a document, decoded as Latin-1. */
export function readKeys(source: Buffer): Set<string> {
  const keys = new Set<string>();
  let i = 4;
  for (let type = source[i]; type; type = source[i]) {
    const end = endOfKey(source, i + 1);
    keys.add(source.toString('latin1', i + 1, end));
    i = endOfValue(source, type, end + 1);
  }
  return keys;
}

/** Compares `key` with the bytes from `start` to `end`. */
export function isKey(key: Uint8Array, source: Uint8Array, start: number, end: number): boolean {
  if (key.length !== end - start) return false;
  for (let i = 0; i < key.length; i++) if (key[i] !== source[start + i]) return false;
  return true;
}

/** Hashes the bytes of a key, cheaply. @returns 0 to 255 */
export function hashKey(source: Uint8Array, start: number, end: number): number {
  return start === end ? 0 : ((end - start) * 5 + (source[start] as number) * 3 + (source[end - 1] as number)) & 255;
}

function isLatinKey(key: string, source: Buffer, start: number, end: number): boolean {
  if (key.length !== end - start) return false;
  for (let i = 0; i < key.length; i++) if (key.charCodeAt(i) !== source[start + i]) return false;
  return true;
}

/** Reads a signed 64-bit integer as the nearest double. */
export function readLong(source: Buffer, at: number): number {
  return source.readInt32LE(at + 4) * 0x1_0000_0000 + source.readUInt32LE(at);
}

/** Returns the number at a path of keys. */
export function getNumber(bson: Uint8Array, key: string, ...path: string[]): number | undefined {
  const source = toBuffer(bson);
  return readNumber(source, findAtKeys(source, findElement(source, 0, key), path));
}

/** Follows keys, or indexes of arrays, from an element. @returns undefined if one of them does not exist */
export function findAtKeys(
  source: Buffer,
  from: BsonElement | undefined,
  keys: readonly string[],
): BsonElement | undefined {
  let element = from;
  for (const key of keys) {
    if (element?.type !== bsonType.document && element?.type !== bsonType.array) return undefined;
    element = findElement(source, element.start, key);
  }
  return element;
}

/** Returns the text under the top-level `key`. */
export function getString(bson: Uint8Array, key: string): string | undefined {
  const source = toBuffer(bson);
  return readText(source, findElement(source, 0, key));
}

/** Returns the timestamp under the top-level `key` as 16 hexadecimal digits: 8 of the seconds, 8 of the increment. */
export function getTimestamp(bson: Uint8Array, key: string): string | undefined {
  const source = toBuffer(bson);
  const element = findElement(source, 0, key);
  return element?.type === bsonType.timestamp
    ? source.readBigUInt64LE(element.start).toString(16).padStart(16, '0')
    : undefined;
}

/** Reads an internal id of a stored document. @throws Error if it has none */
export function getId(bson: Uint8Array, key: string): InstanceType<typeof UUID> {
  const source = toBuffer(bson);
  const element = findElement(source, 0, key);
  if (element === undefined) throw new Error(`no ${key}`);
  // length and subtype precede the bytes of a binary value
  return new UUID(Buffer.from(source.subarray(element.start + 5, element.end)));
}

/** Reads a list of internal ids of a stored document; empty if it has none. */
export function getIds(bson: Uint8Array, key: string): InstanceType<typeof UUID>[] {
  const source = toBuffer(bson);
  const list = findElement(source, 0, key);
  if (list?.type !== bsonType.array) return [];
  const items = source.subarray(list.start, list.end);
  return [...readKeys(items)].map((index) => getId(items, index));
}

/** Returns the bytes, not copied, of the embedded document under the top-level `key`. */
export function getDocument(bson: Uint8Array, key: string): Buffer | undefined {
  const source = toBuffer(bson);
  const element = findElement(source, 0, key);
  return element?.type === bsonType.document ? source.subarray(element.start, element.end) : undefined;
}

/** Decodes one value with the driver's own BSON library. */
export function decode(source: Buffer, type: number, at: number, end: number): unknown {
  const document = Buffer.alloc(end - at + 8);
  document.writeInt32LE(document.length);
  document[4] = type;
  document[5] = 0x76;
  source.copy(document, 7, at, end);
  return BSON.deserialize(document, { promoteValues: false }).v;
}
