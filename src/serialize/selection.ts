import type { MemberWriter } from '../schema/projection.js';
import { bsonType, endOfKey, endOfValue, readKeys, toBuffer } from './bson.js';

/** The members that `fields` selects, as a tree over the parts of their paths (reference/exports.md#fields). */
export class FieldSelection {
  readonly #parts = new Map<string, FieldSelection>();
  /** The value is selected with everything in it. */
  isWhole = false;

  constructor(paths: Iterable<string> = []) {
    for (const path of paths) this.#add(path);
  }

  #add(path: string): void {
    let node: FieldSelection = this;
    for (const part of path.split('.')) {
      const next = node.#parts.get(part) ?? new FieldSelection();
      node.#parts.set(part, next);
      node = next;
    }
    node.isWhole = true;
  }

  /** Finds the selection in the member `key`, which may hold dots itself. @returns undefined if it is not selected */
  of(key: string): FieldSelection | undefined {
    if (!key.includes('.')) return this.#parts.get(key);
    let node: FieldSelection = this;
    for (const part of key.split('.')) {
      const next = node.#parts.get(part);
      if (next === undefined) return undefined;
      node = next;
    }
    return node;
  }

  /**
   * Copies the selected members of a BSON document.
   * @param except keys to leave out, decoded as Latin-1
   * @returns undefined if none is selected
   */
  select(bson: Uint8Array, except?: ReadonlySet<string>): Buffer | undefined {
    if (this.isWhole && except === undefined) return toBuffer(bson);
    const source = toBuffer(bson);
    const copied: Buffer[] = [];
    let i = 4;
    for (let type = source[i]; type; type = source[i]) {
      const keyEnd = endOfKey(source, i + 1);
      const end = endOfValue(source, type, keyEnd + 1);
      const isExcept = except?.has(source.toString('latin1', i + 1, keyEnd)) === true;
      const member = isExcept ? undefined : this.isWhole ? this : this.of(source.toString('utf8', i + 1, keyEnd));
      if (member?.isWhole) copied.push(source.subarray(i, end));
      else if (member !== undefined && type === bsonType.document) {
        const inner = member.select(source.subarray(keyEnd + 1, end));
        if (inner !== undefined) copied.push(source.subarray(i, keyEnd + 1), inner);
      }
      i = end;
    }
    return copied.length === 0 ? undefined : buildDocument(copied);
  }
}

/** Builds a BSON document of the bytes of its members. */
export function buildDocument(members: readonly Buffer[]): Buffer {
  const length = members.reduce((sum, member) => sum + member.length, 5);
  const header = Buffer.alloc(4);
  header.writeInt32LE(length);
  return Buffer.concat([header, ...members, Buffer.alloc(1)], length);
}

/** Passes the selected ones of the members that it is given to `out`. */
export function writeSelected(out: MemberWriter, selection: FieldSelection): MemberWriter {
  return {
    member(key, value) {
      if (selection.of(key)?.isWhole) out.member(key, value);
    },
    stored(key, source, type, at) {
      if (selection.of(key)?.isWhole) out.stored(key, source, type, at);
    },
    ascii(key, bytes, length) {
      if (selection.of(key)?.isWhole) out.ascii(key, bytes, length);
    },
    merged(key, base, own) {
      const selected = selection.of(key);
      const visibleBase =
        own && base ? selected?.select(base, readKeys(toBuffer(own))) : base && selected?.select(base);
      out.merged(key, visibleBase, own && selected?.select(own));
    },
  };
}
