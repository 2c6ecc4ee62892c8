import type { DataPath, PathStep } from '../schema/data-path.js';
import { type BsonElement, bsonType, endOfKey, endOfValue, findAtKeys } from './bson.js';
import { buildDocument } from './selection.js';

/** Paths as a tree over their steps. */
class PathTree {
  isWhole = false;
  readonly #byKey = new Map<string, PathTree>();
  readonly #byIndex = new Map<number, PathTree>();

  add(steps: readonly PathStep[]): void {
    const [step, ...rest] = steps;
    if (step === undefined) {
      this.isWhole = true;
      return;
    }
    const child = this.#byKey.get(step.key) ?? new PathTree();
    this.#byKey.set(step.key, child);
    if (step.index !== undefined) this.#byIndex.set(step.index, child);
    child.add(rest);
  }

  inDocument(key: string): PathTree | undefined {
    return this.#byKey.get(key);
  }

  inArray(index: number): PathTree | undefined {
    return this.#byIndex.get(index);
  }
}

/** Copies parts of BSON documents. Its leaves are scalars, and empty objects and arrays. */
export class LeafCopier {
  readonly #paths = new PathTree();
  readonly #max: number;
  #remaining = 0;

  /** @param max leaves of a copy @param paths the parts to copy; absent: all */
  constructor(max: number, paths: readonly DataPath[] = [{ text: '', steps: [] }]) {
    this.#max = max;
    for (const { steps } of paths) this.#paths.add(steps);
  }

  /** Copies the first leaves in their order and their nesting; items of arrays keep their places. */
  copy(bson: Buffer): Buffer {
    this.#remaining = this.#max;
    if (this.#paths.isWhole && countLeaves(bson, this.#max + 1) <= this.#max) return bson;
    return this.#copyContainer(bson, bsonType.document, this.#paths) ?? buildDocument([]);
  }

  #copyContainer(source: Buffer, container: number, paths: PathTree): Buffer | undefined {
    const copied: Buffer[] = [];
    let filled = 0;
    let i = 4;
    for (let index = 0, type = source[i]; type && this.#remaining > 0; index++, type = source[i]) {
      const keyEnd = endOfKey(source, i + 1);
      const end = endOfValue(source, type, keyEnd + 1);
      const head = source.subarray(i, keyEnd + 1);
      const value = source.subarray(keyEnd + 1, end);
      i = end;
      const isArray = container === bsonType.array;
      const part = this.#copyValue(
        value,
        type,
        paths.isWhole ? paths : findPart(paths, head, isArray ? index : undefined),
      );
      if (part === undefined) continue;
      if (isArray) {
        for (; filled < index; filled++) copied.push(Buffer.from([bsonType.null, ...Buffer.from(`${filled}\0`)]));
        filled = index + 1;
      }
      copied.push(head, part);
    }
    return copied.length === 0 ? undefined : buildDocument(copied);
  }

  #copyValue(value: Buffer, type: number, paths: PathTree | undefined): Buffer | undefined {
    if (paths === undefined) return undefined;
    const isContainer = type === bsonType.document || type === bsonType.array;
    if (isContainer && value.length > empty_length) return this.#copyContainer(value, type, paths);
    if (!paths.isWhole) return undefined;
    this.#remaining--;
    return value;
  }
}

/** Counts the leaves of a document or array, up to `limit`. */
function countLeaves(source: Buffer, limit: number): number {
  let count = 0;
  let i = 4;
  for (let type = source[i]; type && count < limit; type = source[i]) {
    const start = endOfKey(source, i + 1) + 1;
    const end = endOfValue(source, type, start);
    const isFilled = (type === bsonType.document || type === bsonType.array) && end - start > empty_length;
    count += isFilled ? countLeaves(source.subarray(start, end), limit - count) : 1;
    i = end;
  }
  return count;
}

/** Bytes of an empty document or array. */
const empty_length = 5;

/** @param head type and key of a member @param index place of an item of an array */
function findPart(paths: PathTree, head: Buffer, index: number | undefined): PathTree | undefined {
  return index === undefined ? paths.inDocument(head.toString('utf8', 1, head.length - 1)) : paths.inArray(index);
}

/** Finds the value at a path of a BSON document. */
export function findAtPath(bson: Buffer, { steps }: DataPath): { type: number; value: Buffer } | undefined {
  let found: BsonElement | undefined = { type: bsonType.document, start: 0, end: bson.length };
  for (const { key, index } of steps) {
    if (found?.type === bsonType.array && index === undefined) return undefined;
    found = findAtKeys(bson, found, [Buffer.from(key).toString('latin1')]);
  }
  return found && { type: found.type, value: bson.subarray(found.start, found.end) };
}
