import mongoose from 'mongoose';
import type { MemberWriter, StoredMembers } from '../schema/projection.js';
import { namesElement } from '../schema/xml-names.js';
import {
  ARRAY,
  asBuffer,
  BINARY,
  BOOLEAN,
  DATE,
  DOCUMENT,
  DOUBLE,
  decode,
  type Element,
  elementOf,
  endOfKey,
  endOfValue,
  INT32,
  INT64,
  isKey,
  keysOf,
  longAt,
  NULL,
  numberOf,
  OBJECT_ID,
  STRING,
  textOf,
  UNDEFINED,
} from './bson.js';

const { BSON } = mongoose.mongo;

export type Format = 'json' | 'xml';

/** How stored documents of one type are shown. */
export interface Projection<Context = unknown> {
  /** XML element name of one object: `device` */
  element: string;
  /** top-level stored keys that are never shown */
  hidden: ReadonlySet<string>;
  /** top-level stored keys handed to `finish` instead of being printed */
  computed?: ReadonlySet<string>;
  /** prints computed members at the end of the object */
  printComputed?: (stored: StoredMembers, out: MemberWriter, context: Context) => void;
}

/** Prints a list whose documents arrive one at a time: header + everything taken + footer is the whole. */
export interface ListPrinter {
  /** How many documents were appended. */
  readonly count: number;
  /** Bytes waiting to be taken. */
  readonly size: number;
  append(bson: Uint8Array): void;
  /** The bytes waiting. */
  take(): Buffer;
  /** The bytes before the first document; can be asked for last, as a total may be known late. */
  header(total_documents: number, metadata?: object): Buffer;
  /** What is still waiting and the bytes after the last document. */
  footer(): Buffer;
}

const UUID = 4; // subtype of binary

// bytes: what a list begins with, and what it goes on with once it proves long
const SHORT = 16 * 1024;
const LONG = 320 * 1024;

// what Columns makes of a top-level key, besides the slots 0, 1, … of computed ones
const SHOWN = -2;
const HIDDEN = -1;

const ITEM = Buffer.from('item');
const RESPONSE = Buffer.from('response');
const RESULT = Buffer.from('result');
const DETAILS = Buffer.from('details');
const PROLOG = '<?xml version="1.0" encoding="UTF-8"?>';

/** What stands for a byte; undefined: the byte itself. */
type Escapes = readonly (Buffer | undefined)[];

const REPLACEMENT = Buffer.from('\uFFFD');
const NONCHARACTER = 0xef; // U+FFFE and U+FFFF are EF BF BE and EF BF BF

const IN_JSON = escapes((text) => {
  const quoted = JSON.stringify(text).slice(1, -1);
  return quoted === text ? undefined : quoted;
});
const IN_XML_TEXT = escapes((text) => {
  if (text === '&') return '&amp;';
  if (text === '<') return '&lt;';
  if (text === '>') return '&gt;';
  if (text === '\r') return '&#13;'; // a parser would make it \n
  return text < ' ' && text !== '\t' && text !== '\n' ? '\uFFFD' : undefined;
}, REPLACEMENT);
const IN_XML_ATTRIBUTE = escapes((text) => {
  if (text === '"') return '&quot;';
  if (text === '\t') return '&#9;';
  if (text === '\n') return '&#10;';
  return IN_XML_TEXT[text.charCodeAt(0)]?.toString();
}, REPLACEMENT);

function escapes(replace: (text: string) => string | undefined, noncharacter?: Buffer): Escapes {
  const table: (Buffer | undefined)[] = Array.from({ length: 256 }, (_, byte) => {
    const text = byte < 0x80 ? replace(String.fromCharCode(byte)) : undefined;
    return text === undefined ? undefined : Buffer.from(text);
  });
  table[NONCHARACTER] = noncharacter;
  return table;
}

/** Walks BSON and prints it; the formats differ in what surrounds a value and in how text is escaped. */
abstract class Printer implements MemberWriter {
  protected bytes: Buffer = Buffer.alloc(0);
  length = 0;
  readonly #keys = new Map<string, Buffer>();

  /** bytes to begin with */
  #capacity: number;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  abstract root(name: Buffer): void;
  /** Begins a member whose key stands from `start` to `end`; whether the key could name it. */
  abstract open(source: Uint8Array, start: number, end: number): boolean;
  abstract openItem(name: Buffer): void;
  /** Ends what was opened or is the root; `named` is what `open` answered. */
  abstract close(source: Uint8Array, start: number, end: number, named: boolean): void;
  abstract begin(type: number): void;
  abstract end(type: number): void;
  abstract text(source: Uint8Array, start: number, end: number): void;
  abstract nothing(): void;

  take(): Buffer {
    const taken = this.bytes.subarray(0, this.length);
    this.#capacity = Math.min(this.bytes.length, LONG);
    this.bytes = Buffer.alloc(0);
    this.length = 0;
    return taken;
  }

  member(key: string, value: string | number | boolean | null): void {
    const name = this.#key(key);
    const named = this.open(name, 0, name.length);
    if (typeof value === 'string') this.string(value);
    else if (typeof value === 'number') this.number(value);
    else if (value === null) this.nothing();
    else this.ascii(value ? 'true' : 'false');
    this.close(name, 0, name.length, named);
  }

  merged(key: string, base: Uint8Array | undefined, own: Uint8Array | undefined): void {
    if (base === undefined && own === undefined) return;
    const name = this.#key(key);
    const named = this.open(name, 0, name.length);
    this.begin(DOCUMENT);
    if (base !== undefined) this.members(asBuffer(base), 0, own && keysOf(asBuffer(own)));
    if (own !== undefined) this.members(asBuffer(own), 0);
    this.end(DOCUMENT);
    this.close(name, 0, name.length, named);
  }

  /** The members of the document at `at`, without those in `except`; keys are compared as Latin-1. */
  members(source: Buffer, at: number, except?: ReadonlySet<string>): void {
    let i = at + 4;
    for (let type = source[i]; type; type = source[i]) {
      const start = i + 1;
      const end = endOfKey(source, start);
      i = except?.has(source.toString('latin1', start, end))
        ? endOfValue(source, type, end + 1)
        : this.element(source, type, start, end);
    }
  }

  /** One member whose key stands from `start` to `end`; answers where its value ends. */
  element(source: Buffer, type: number, start: number, end: number): number {
    const named = this.open(source, start, end);
    const next = this.#value(source, type, end + 1);
    this.close(source, start, end, named);
    return next;
  }

  #items(source: Buffer, at: number): void {
    let i = at + 4;
    for (let type = source[i]; type; type = source[i]) {
      this.openItem(ITEM);
      i = this.#value(source, type, endOfKey(source, i + 1) + 1);
      this.close(ITEM, 0, ITEM.length, true);
    }
  }

  #value(source: Buffer, type: number, at: number): number {
    switch (type) {
      case DOUBLE:
        this.number(source.readDoubleLE(at));
        return at + 8;
      case STRING: {
        const end = at + 4 + source.readInt32LE(at);
        this.text(source, at + 4, end - 1);
        return end;
      }
      case DOCUMENT:
        this.begin(type);
        this.members(source, at);
        this.end(type);
        return at + source.readInt32LE(at);
      case ARRAY:
        this.begin(type);
        this.#items(source, at);
        this.end(type);
        return at + source.readInt32LE(at);
      case BOOLEAN:
        this.ascii(source[at] === 1 ? 'true' : 'false');
        return at + 1;
      case NULL:
      case UNDEFINED:
        this.nothing();
        return at;
      case INT32:
        this.integer(source.readInt32LE(at));
        return at + 4;
      case INT64:
        this.#long(source, at);
        return at + 8;
      default:
        return this.#foreign(source, type, at);
    }
  }

  #long(source: Buffer, at: number): void {
    const value = longAt(source, at);
    if (Number.isSafeInteger(value)) this.number(value);
    else this.ascii(source.readBigInt64LE(at).toString());
  }

  /** Types that JSON does not know, as text. */
  #foreign(source: Buffer, type: number, at: number): number {
    const end = endOfValue(source, type, at);
    if (type === OBJECT_ID) {
      this.string(source.toString('hex', at, end));
    } else if (type === DATE) {
      const date = new Date(longAt(source, at));
      if (Number.isNaN(date.getTime())) this.nothing();
      else this.string(date.toISOString());
    } else if (type === BINARY) {
      this.string(binaryText(source, at, end));
    } else {
      this.string(BSON.EJSON.stringify(decode(source, type, at, end)));
    }
    return end;
  }

  string(text: string): void {
    const encoded = Buffer.from(text);
    this.text(encoded, 0, encoded.length);
  }

  /** As JSON does: what is not finite is null, -0 is 0. */
  number(value: number): void {
    if ((value | 0) === value) this.integer(value);
    else if (Number.isFinite(value)) this.ascii(String(value));
    else this.nothing();
  }

  /** An integer of 32 bits. */
  protected integer(value: number): void {
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

  protected ascii(text: string): void {
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

  /** Copies text, with what the format does not allow in it replaced. */
  protected escaped(source: Uint8Array, start: number, end: number, table: Escapes): void {
    this.reserve(end - start);
    let bytes = this.bytes;
    let length = this.length;
    for (let i = start; i < end; i++) {
      const byte = source[i] as number;
      const replacement = table[byte];
      if (replacement === undefined || (byte === NONCHARACTER && !isNoncharacter(source, i))) {
        bytes[length++] = byte;
        continue;
      }
      if (byte === NONCHARACTER) i += 2;
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

  #grow(least: number): void {
    const usual = this.bytes.length === 0 ? this.#capacity : LONG;
    const larger = Buffer.allocUnsafe(Math.max(least, this.bytes.length * 2, usual));
    this.bytes.copy(larger, 0, 0, this.length);
    this.bytes = larger;
  }

  /** The keys `finish` prints are few and the same for every document. */
  #key(key: string): Buffer {
    let encoded = this.#keys.get(key);
    if (encoded === undefined) {
      encoded = Buffer.from(key);
      this.#keys.set(key, encoded);
    }
    return encoded;
  }
}

class JsonPrinter extends Printer {
  root(): void {}

  open(source: Uint8Array, start: number, end: number): boolean {
    this.#separate();
    this.text(source, start, end);
    this.ascii(':');
    return true;
  }

  openItem(): void {
    this.#separate();
  }

  close(): void {}

  begin(type: number): void {
    this.ascii(type === ARRAY ? '[' : '{');
  }

  end(type: number): void {
    this.ascii(type === ARRAY ? ']' : '}');
  }

  text(source: Uint8Array, start: number, end: number): void {
    this.ascii('"');
    this.escaped(source, start, end, IN_JSON);
    this.ascii('"');
  }

  nothing(): void {
    this.ascii('null');
  }

  /** A comma, except after the { or [ that the first member follows. What was taken already ended a member. */
  #separate(): void {
    const last = this.length === 0 ? 0 : this.bytes[this.length - 1];
    if (last !== 0x7b && last !== 0x5b) this.ascii(',');
  }
}

const NOWHERE = -1;

class XmlPrinter extends Printer {
  /** Where the content of the element opened last begins: closed there, it is empty. */
  #content = NOWHERE;

  override take(): Buffer {
    this.#content = NOWHERE;
    return super.take();
  }

  root(name: Buffer): void {
    this.ascii(PROLOG);
    this.open(name, 0, name.length);
  }

  open(source: Uint8Array, start: number, end: number): boolean {
    const named = namesElement(source, start, end);
    if (named) {
      this.reserve(end - start + 1);
      this.bytes[this.length++] = 0x3c;
      this.copy(source, start, end);
      this.ascii('>');
    } else {
      this.ascii('<entry key="');
      this.escaped(source, start, end, IN_XML_ATTRIBUTE);
      this.ascii('">');
    }
    this.#content = this.length;
    return named;
  }

  openItem(name: Buffer): void {
    this.open(name, 0, name.length);
  }

  close(source: Uint8Array, start: number, end: number, named: boolean): void {
    if (this.length === this.#content) {
      this.length--;
      this.ascii('/>');
      return;
    }
    this.ascii('</');
    if (named) this.copy(source, start, end);
    else this.ascii('entry');
    this.ascii('>');
  }

  begin(): void {}

  end(): void {}

  text(source: Uint8Array, start: number, end: number): void {
    this.escaped(source, start, end, IN_XML_TEXT);
  }

  nothing(): void {
    this.length--;
    this.ascii(' nil="true">');
    this.#content = this.length;
  }
}

/** What a view makes of top-level keys, and the computed elements of the current document. */
class KeyTable<Context> implements StoredMembers {
  readonly #view: Projection<Context>;
  /** by a cheap hash of their bytes, so that an ordinary key costs one look */
  readonly #special: ({ key: Buffer; slot: number }[] | undefined)[] = new Array(256).fill(undefined);
  readonly #slots = new Map<string, number>();
  readonly #types: number[] = [];
  readonly #starts: number[] = [];
  readonly #ends: number[] = [];
  #source: Buffer = Buffer.alloc(0);

  constructor(view: Projection<Context>) {
    this.#view = view;
    for (const key of view.computed ?? []) this.#add(key, this.#slots.size);
    for (const key of view.hidden) this.#add(key, HIDDEN);
  }

  #add(text: string, slot: number): void {
    const key = Buffer.from(text);
    const bucket = bucketOf(key, 0, key.length);
    this.#special[bucket] = [...(this.#special[bucket] ?? []), { key, slot }];
    if (slot !== HIDDEN) this.#slots.set(text, slot);
  }

  /** Prints the members of one stored document. */
  print(bson: Uint8Array, out: Printer, context: Context): void {
    const source = asBuffer(bson);
    this.#source = source;
    this.#types.fill(0);
    let i = 4;
    for (let type = source[i]; type; type = source[i]) {
      const start = i + 1;
      const end = endOfKey(source, start);
      const slot = this.#slotOf(source, start, end);
      if (slot === SHOWN) {
        i = out.element(source, type, start, end);
        continue;
      }
      i = endOfValue(source, type, end + 1);
      if (slot === HIDDEN) continue;
      this.#types[slot] = type;
      this.#starts[slot] = end + 1;
      this.#ends[slot] = i;
    }
    this.#view.printComputed?.(this, out, context);
  }

  #slotOf(source: Buffer, start: number, end: number): number {
    const bucket = this.#special[bucketOf(source, start, end)];
    if (bucket === undefined) return SHOWN;
    for (const { key, slot } of bucket) if (isKey(key, source, start, end)) return slot;
    return SHOWN;
  }

  #find(key: string): Element | undefined {
    const slot = this.#slots.get(key);
    const type = slot === undefined ? undefined : this.#types[slot];
    if (slot === undefined || !type) return undefined;
    return { type, start: this.#starts[slot] as number, end: this.#ends[slot] as number };
  }

  number(key: string, ...path: string[]): number | undefined {
    let found = this.#find(key);
    for (const step of path) {
      if (found?.type !== DOCUMENT && found?.type !== ARRAY) return undefined;
      found = elementOf(this.#source, found.start, step);
    }
    return numberOf(this.#source, found);
  }

  text(key: string): string | undefined {
    return textOf(this.#source, this.#find(key));
  }

  raw(key: string): { type: number; bytes: Buffer } | undefined {
    const found = this.#find(key);
    return found && { type: found.type, bytes: this.#source.subarray(found.start, found.end) };
  }
}

const prepared = new WeakMap<object, unknown>();

/** One for each view: printing a document is one turn, so that nobody else can come in between. */
function columnsOf<Context>(view: Projection<Context>): KeyTable<Context> {
  const known = prepared.get(view) as KeyTable<Context> | undefined;
  if (known !== undefined) return known;
  const columns = new KeyTable(view);
  prepared.set(view, columns);
  return columns;
}

/** One object as a document of its own: `{…}` or `<device>…</device>` as the root. */
export function printObject<Context>(
  bson: Uint8Array,
  view: Projection<Context>,
  format: Format,
  context: Context,
): Buffer {
  const out = printer(format, bson.length * 2 + 512);
  const name = Buffer.from(view.element);
  out.root(name);
  out.begin(DOCUMENT);
  columnsOf(view).print(bson, out, context);
  out.end(DOCUMENT);
  out.close(name, 0, name.length, true);
  return out.take();
}

/** A status body whose `details` are the object (contract 4). */
export function printStatus<Context>(
  status: { code: number; message: string },
  bson: Uint8Array,
  view: Projection<Context>,
  format: Format,
  context: Context,
): Buffer {
  const out = printer(format, bson.length * 2 + 512);
  out.root(RESPONSE);
  out.begin(DOCUMENT);
  out.member('code', status.code);
  out.member('message', status.message);
  out.open(DETAILS, 0, DETAILS.length);
  out.begin(DOCUMENT);
  columnsOf(view).print(bson, out, context);
  out.end(DOCUMENT);
  out.close(DETAILS, 0, DETAILS.length, true);
  out.end(DOCUMENT);
  out.close(RESPONSE, 0, RESPONSE.length, true);
  return out.take();
}

/**
 * A list: `{"total_documents":N,"result":[…]}`, or `response` with the elements `total_documents` and `result`,
 * and `metadata` between them if the header is given any (contract 4, 8).
 */
export function openList<Context>(view: Projection<Context>, format: Format, context: Context): ListPrinter {
  const out = printer(format, SHORT);
  const columns = columnsOf(view);
  const name = Buffer.from(view.element);
  let count = 0;

  const openResult = () => {
    out.open(RESULT, 0, RESULT.length);
    out.begin(ARRAY);
  };
  return {
    get count() {
      return count;
    },
    get size() {
      return out.length;
    },
    append(bson) {
      if (count++ === 0) openResult();
      out.openItem(name);
      out.begin(DOCUMENT);
      columns.print(bson, out, context);
      out.end(DOCUMENT);
      out.close(name, 0, name.length, true);
    },
    take: () => out.take(),
    header(total_documents, metadata) {
      const header = printer(format, 1024);
      header.root(RESPONSE);
      header.begin(DOCUMENT);
      header.member('total_documents', total_documents);
      if (metadata !== undefined) header.members(asBuffer(BSON.serialize({ metadata })), 0);
      return header.take();
    },
    footer() {
      if (count === 0) openResult();
      out.end(ARRAY);
      out.close(RESULT, 0, RESULT.length, true);
      out.end(DOCUMENT);
      out.close(RESPONSE, 0, RESPONSE.length, true);
      return out.take();
    },
  };
}

const whole: Projection = { element: '', hidden: new Set() };

/** A stored document as it lies in the database, as plain JSON: nothing in it is interpreted. */
export function toPlainJson(bson: Uint8Array): Record<string, unknown> {
  return JSON.parse(printObject(bson, whole, 'json', undefined).toString()) as Record<string, unknown>;
}

function printer(format: Format, capacity: number): Printer {
  return format === 'json' ? new JsonPrinter(capacity) : new XmlPrinter(capacity);
}

function bucketOf(source: Buffer, start: number, end: number): number {
  return start === end ? 0 : ((end - start) * 5 + (source[start] as number) * 3 + (source[end - 1] as number)) & 255;
}

function binaryText(source: Buffer, at: number, end: number): string {
  const bytes = source.subarray(at + 5, end);
  const is_uuid = source[at + 4] === UUID && bytes.length === 16;
  return is_uuid ? new BSON.UUID(bytes).toString() : bytes.toString('base64');
}

function isNoncharacter(source: Uint8Array, at: number): boolean {
  return source[at + 1] === 0xbf && (source[at + 2] as number) >= 0xbe;
}
