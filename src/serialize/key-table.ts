import type { MemberWriter, StoredMembers } from '../schema/projection.js';
import {
  type BsonElement,
  bsonType,
  endOfKey,
  endOfValue,
  findAtKeys,
  hashKey,
  isKey,
  readNumber,
  readText,
  toBuffer,
} from './bson.js';
import type { Writer } from './writer.js';

// slots of keys that are not computed; computed ones have 0, 1, …
const shown = -2;
const hidden = -1;
const nothing = Buffer.alloc(0);

/** Decides which top-level keys are shown, and remembers the computed elements of the current document. */
export class KeyTable implements StoredMembers {
  /** Buckets by a cheap hash of the key's bytes, so that an ordinary key costs one look-up. */
  readonly #buckets: ({ key: Buffer; slot: number }[] | undefined)[] = new Array(256).fill(undefined);
  readonly #slots = new Map<string, number>();
  readonly #types: number[] = [];
  readonly #starts: number[] = [];
  readonly #ends: number[] = [];
  readonly #otherwise: number;
  /** The embedded document of `#openSlot`. */
  readonly #innerTypes: number[] = [];
  readonly #innerStarts: number[] = [];
  #openSlot = hidden;
  source: Buffer = nothing;

  /** @param shownKeys the only keys to show; absent: all that are neither hidden nor computed */
  constructor(hiddenKeys: Iterable<string>, computedKeys: Iterable<string>, shownKeys?: Iterable<string>) {
    this.#otherwise = shownKeys === undefined ? shown : hidden;
    for (const key of computedKeys) {
      this.#add(key, this.#slots.size);
      this.#slots.set(key, this.#slots.size);
    }
    for (const key of hiddenKeys) this.#add(key, hidden);
    for (const key of shownKeys ?? []) this.#add(key, shown);
  }

  #add(text: string, slot: number): void {
    const key = Buffer.from(text);
    const bucket = hashKey(key, 0, key.length);
    this.#buckets[bucket] = [...(this.#buckets[bucket] ?? []), { key, slot }];
  }

  /** Writes the shown members of one document; its computed ones can be read until `release`. */
  writeShown(bson: Uint8Array, out: Writer): void {
    const source = toBuffer(bson);
    this.source = source;
    this.#openSlot = hidden;
    this.#types.fill(0);
    let i = 4;
    for (let type = source[i]; type; type = source[i]) {
      const start = i + 1;
      const end = endOfKey(source, start);
      const slot = this.#slotOf(source, start, end);
      if (slot === shown) {
        i = out.writeElement(source, type, start, end);
        continue;
      }
      i = endOfValue(source, type, end + 1);
      if (slot === hidden) continue;
      this.#types[slot] = type;
      this.#starts[slot] = end + 1;
      this.#ends[slot] = i;
    }
  }

  /** Lets go of the last document, which is part of a reply of up to 16 MB. */
  release(): void {
    this.source = nothing;
  }

  number(key: string, ...path: string[]): number | undefined {
    return readNumber(this.source, findAtKeys(this.source, this.#find(key), path));
  }

  text(key: string): string | undefined {
    return readText(this.source, this.#find(key));
  }

  raw(key: string): { type: number; bytes: Buffer } | undefined {
    const element = this.#find(key);
    return element && { type: element.type, bytes: this.source.subarray(element.start, element.end) };
  }

  start(key: string, place?: number): number {
    const slot = this.#slots.get(key);
    if (slot === undefined || !this.#types[slot]) return -1;
    if (place === undefined) return this.#starts[slot] as number;
    this.#open(slot);
    return this.#innerTypes[place] ? (this.#innerStarts[place] as number) : -1;
  }

  show(name: string, out: MemberWriter, key: string, place?: number): void {
    const at = this.start(key, place);
    if (at < 0) return;
    const type = place === undefined ? this.#types[this.#slots.get(key) as number] : this.#innerTypes[place];
    out.stored(name, this.source, type as number, at);
  }

  /** Finds the values of an embedded document. */
  #open(slot: number): void {
    if (this.#openSlot === slot) return;
    this.#openSlot = slot;
    this.#innerTypes.length = 0;
    this.#innerStarts.length = 0;
    if (this.#types[slot] !== bsonType.document) return;
    const { source } = this;
    let i = (this.#starts[slot] as number) + 4;
    for (let type = source[i]; type; type = source[i]) {
      const start = endOfKey(source, i + 1) + 1;
      this.#innerTypes.push(type);
      this.#innerStarts.push(start);
      i = endOfValue(source, type, start);
    }
  }

  #slotOf(source: Buffer, start: number, end: number): number {
    const bucket = this.#buckets[hashKey(source, start, end)];
    if (bucket === undefined) return this.#otherwise;
    for (const { key, slot } of bucket) if (isKey(key, source, start, end)) return slot;
    return this.#otherwise;
  }

  #find(key: string): BsonElement | undefined {
    const slot = this.#slots.get(key);
    const type = slot === undefined ? undefined : this.#types[slot];
    if (slot === undefined || !type) return undefined;
    return { type, start: this.#starts[slot] as number, end: this.#ends[slot] as number };
  }
}
