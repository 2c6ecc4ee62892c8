import mongoose from 'mongoose';
import type { Values } from '../../schema/fields.js';
import { formatPosition, keyPathsOf, keysetSortOf, type Position } from '../../schema/keyset.js';
import type { ListRequest } from '../../schema/list-parameters.js';
import type { ListedType } from '../../schema/resource.js';
import { bsonType, findElement, getDocument, readNumber, readText, toBuffer } from '../../serialize/bson.js';
import type { Bson } from '../page.js';

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

/** Returns the value of `next` after the last object of a page; undefined at the end of the list. */
export function formatNext(listed: ListedType, bson: Bson | undefined): string | undefined {
  if (bson === undefined) return undefined;
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

/**
 * Cuts a page out of the batches of a list. @param seeksNext reads on after a full page
 * @returns also `last`, then the last object of the page if others follow
 */
export function limitToPage(
  batches: AsyncIterable<readonly Bson[]>,
  { offset, max }: Pick<ListRequest, 'offset' | 'max'>,
  seeksNext = false,
): { batches: AsyncGenerator<readonly Bson[]>; last: () => Bson | undefined } {
  let last: Bson | undefined;
  async function* cut(): AsyncGenerator<readonly Bson[]> {
    let [skipped, remaining] = [offset, max];
    let previous: Bson | undefined;
    for await (const batch of batches) {
      const kept = batch.slice(skipped, skipped + remaining);
      const isFollowed = batch.length > skipped + kept.length;
      skipped = Math.max(0, skipped - batch.length);
      remaining -= kept.length;
      previous = kept.at(-1) ?? previous;
      if (kept.length > 0) yield kept;
      if (isFollowed) last = previous;
      if (isFollowed || (remaining === 0 && !seeksNext)) return;
    }
  }
  return { batches: cut(), last: () => last };
}
