import mongoose from 'mongoose';

const { BSON } = mongoose.mongo;

// element types (bsonspec.org)
export const DOUBLE = 1;
export const STRING = 2;
export const DOCUMENT = 3;
export const ARRAY = 4;
export const BINARY = 5;
export const UNDEFINED = 6;
export const OBJECT_ID = 7;
export const BOOLEAN = 8;
export const DATE = 9;
export const NULL = 10;
export const INT32 = 16;
export const INT64 = 18;

/** The same bytes as a Buffer, not copied. */
export function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Where the key that begins at `start` ends. */
export function endOfKey(source: Buffer, start: number): number {
  let end = start;
  while (source[end]) end++;
  return end;
}

/** Where the value that begins at `at` ends (bsonspec.org). @throws Error for a type that BSON does not know */
export function endOfValue(source: Buffer, type: number, at: number): number {
  switch (type) {
    case NULL:
    case UNDEFINED:
    case 0x7f: // largest key
    case 0xff: // smallest key
      return at;
    case BOOLEAN:
      return at + 1;
    case INT32:
      return at + 4;
    case DOUBLE:
    case DATE:
    case INT64:
    case 0x11: // timestamp
      return at + 8;
    case OBJECT_ID:
      return at + 12;
    case 0x13: // decimal
      return at + 16;
    case DOCUMENT:
    case ARRAY:
    case 0x0f: // code with scope
      return at + source.readInt32LE(at);
    case STRING:
    case 0x0d: // code
    case 0x0e: // symbol
      return at + 4 + source.readInt32LE(at);
    case BINARY:
      return at + 5 + source.readInt32LE(at);
    case 0x0c: // pointer
      return at + 16 + source.readInt32LE(at);
    case 0x0b: // regular expression
      return endOfKey(source, endOfKey(source, at) + 1) + 1;
    default:
      throw new Error(`no BSON type: ${type}`);
  }
}

/** Where a value stands in its buffer. */
export interface Element {
  type: number;
  start: number;
  end: number;
}

/** The names that our code looks for, which are few. */
const encodedNames = new Map<string, Buffer>();

function bytesOf(name: string): Buffer {
  const known = encodedNames.get(name) ?? Buffer.from(name);
  encodedNames.set(name, known);
  return known;
}

/** The element called `name`, a name of ours, of the document at `at`. */
export function elementOf(source: Buffer, at: number, name: string): Element | undefined {
  const key = bytesOf(name);
  let i = at + 4;
  for (let type = source[i]; type; type = source[i]) {
    const key_end = endOfKey(source, i + 1);
    const end = endOfValue(source, type, key_end + 1);
    if (isKey(key, source, i + 1, key_end)) return { type, start: key_end + 1, end };
    i = end;
  }
  return undefined;
}

/** The number of an element; undefined if it is none. */
export function numberOf(source: Buffer, element: Element | undefined): number | undefined {
  if (element?.type === INT32) return source.readInt32LE(element.start);
  if (element?.type === DOUBLE) return source.readDoubleLE(element.start);
  return element?.type === INT64 ? longAt(source, element.start) : undefined;
}

/** The text of an element; undefined if it is none. */
export function textOf(source: Buffer, element: Element | undefined): string | undefined {
  return element?.type === STRING ? source.toString('utf8', element.start + 4, element.end - 1) : undefined;
}

/** The keys of a document, as Latin-1. */
export function keysOf(source: Buffer): Set<string> {
  const keys = new Set<string>();
  let i = 4;
  for (let type = source[i]; type; type = source[i]) {
    const end = endOfKey(source, i + 1);
    keys.add(source.toString('latin1', i + 1, end));
    i = endOfValue(source, type, end + 1);
  }
  return keys;
}

/** Whether `key` stands from `start` to `end`. */
export function isKey(key: Buffer, source: Buffer, start: number, end: number): boolean {
  if (key.length !== end - start) return false;
  for (let i = 0; i < key.length; i++) if (key[i] !== source[start + i]) return false;
  return true;
}

/** A signed integer of 64 bits, as near as a double comes. */
export function longAt(source: Buffer, at: number): number {
  return source.readInt32LE(at + 4) * 0x1_0000_0000 + source.readUInt32LE(at);
}

/** The number at the top of a document under `key`. */
export function getNumber(bson: Uint8Array, key: string): number | undefined {
  const source = asBuffer(bson);
  return numberOf(source, elementOf(source, 0, key));
}

/** The text at the top of a document under `key`. */
export function getString(bson: Uint8Array, key: string): string | undefined {
  const source = asBuffer(bson);
  return textOf(source, elementOf(source, 0, key));
}

/** The bytes, not copied, of the embedded document at the top of a document under `key`. */
export function getDocument(bson: Uint8Array, key: string): Buffer | undefined {
  const source = asBuffer(bson);
  const found = elementOf(source, 0, key);
  return found?.type === DOCUMENT ? source.subarray(found.start, found.end) : undefined;
}

/** The value of one element, decoded by the driver. */
export function decode(source: Buffer, type: number, at: number, end: number): unknown {
  const document = Buffer.alloc(end - at + 8);
  document.writeInt32LE(document.length);
  document[4] = type;
  document[5] = 0x76;
  source.copy(document, 7, at, end);
  return BSON.deserialize(document, { promoteValues: false }).v;
}
