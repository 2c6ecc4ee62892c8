import mongoose from 'mongoose';
import type { RawCursor } from '../db/raw-find.js';
import type { Values } from '../schema/fields.js';
import { formatPosition, keyPathsOf, keysetSortOf, type Position } from '../schema/keyset.js';
import type { ListRequest } from '../schema/list-parameters.js';
import type { ListedType } from '../schema/resource.js';
import { bsonType, findElement, getDocument, readNumber, readText, toBuffer } from '../serialize/bson.js';
import type { Bson } from './page.js';

/** The request in the order by which `after` continues it. */
export function sortByKeyset<Request extends ListRequest>(listed: ListedType, request: Request): Request {
  const key = keysetSortOf(listed);
  return { ...request, sort: { key, paths: listed.sorts.get(key) ?? [key], direction: 1 } };
}

/**
 * Builds the conditions of the objects after a position: one for each key that may be the first greater one, in order of
 * the list, as each of them is a range of an index.
 * @param within keys that are the same for all objects of the list
 */
export function buildRangesAfter(
  listed: ListedType,
  { account, position, within }: { account: string; position: Position; within: Values },
): Values[] {
  if (position.length === 0) return [{}];
  const { clusteredBy } = listed;
  if (clusteredBy !== undefined) {
    const values = [account, ...keyPathsOf(listed).map((path, index) => toStored(path, position[index]))];
    return [{ _id: { $gt: Object.fromEntries(clusteredBy.map((member, index) => [member, values[index]])) } }];
  }
  const keys = keyPathsOf(listed).map((path, index) => ({ path, value: toStored(path, position[index]) }));
  const ranges: Values[] = [];
  for (let greater = keys.length - 1; greater >= 0; greater--) {
    const { path = '', value } = keys[greater] ?? {};
    if (path in within) continue;
    const equal = keys.slice(0, greater).map((key) => [key.path, { $eq: key.value }]);
    ranges.push({ ...Object.fromEntries(equal), [path]: { $gt: value } });
  }
  return ranges;
}

function toStored(path: string, value: string | number | undefined): unknown {
  if (path === 'n') return BigInt(`0x${value}`);
  return path === '_id' ? new mongoose.mongo.UUID(Buffer.from(String(value), 'hex')) : value;
}

/** Leaves large fields out of what the database sends. */
export function buildListProjection({ omittedFromLists }: ListedType): { projection: object } {
  return { projection: Object.fromEntries(omittedFromLists.map((path) => [path, 0])) };
}

/** Reads the objects of ranges one after the other, `max` of them; infinite: all. */
export async function* readInRanges(
  ranges: readonly Values[],
  max: number,
  find: (range: Values, limit: { limit?: number }) => RawCursor,
): AsyncGenerator<readonly Bson[]> {
  let limit = max;
  for (const range of ranges)
    for await (const batch of find(range, Number.isFinite(limit) ? { limit } : {}).batches) {
      yield batch;
      limit -= batch.length;
      if (limit <= 0) return;
    }
}

/** Returns the value of `next` after a stored object. */
export function formatNext(listed: ListedType, bson: Bson): string {
  const source = toBuffer(listed.clusteredBy === undefined ? bson : (getDocument(bson, '_id') ?? bson));
  return formatPosition(
    keyPathsOf(listed).map((path) => {
      const element = findElement(source, 0, path);
      if (element?.type === bsonType.int64) return source.readBigInt64LE(element.start).toString(16).padStart(16, '0');
      if (element?.type === bsonType.binary)
        return source.toString('hex', element.start + id_header_bytes, element.end);
      return readText(source, element) ?? readNumber(source, element) ?? '';
    }),
  );
}

/** Length and subtype before the bytes of an id. */
const id_header_bytes = 5;

/** Ends after `max` objects; `last` is the last of them if there are more. @param batches hold one more if there is */
export function limitBatches(batches: AsyncIterable<readonly Bson[]>, max: number) {
  let last: Bson | undefined;
  async function* limited(): AsyncGenerator<readonly Bson[]> {
    let remaining = max;
    let previous: Bson | undefined;
    for await (const batch of batches) {
      const kept = batch.slice(0, remaining);
      remaining -= kept.length;
      previous = kept.at(-1) ?? previous;
      if (kept.length > 0) yield kept;
      if (batch.length === kept.length) continue;
      last = previous;
      return;
    }
  }
  return { batches: limited(), last: () => last };
}
