import type { mongo } from 'mongoose';
import { read_limit_ms } from '../../db/database.js';
import type { Id } from '../../db/ids.js';
import { findRaw, type RawCursor, type RawQuery } from '../../db/raw-find.js';
import { readAhead, readInBatches } from '../../lib/batches.js';
import { isRowFormat, type ListRequest } from '../../schema/list-parameters.js';
import { type OperationContext, readInTurns } from '../context.js';
import type { Bson, Page } from '../page.js';
import { limitToPage } from './keyset.js';
import type { ObjectSelection } from './selection.js';

/** Options that read by an index, within the time limit of a request. */
export function readOptions(hint: ObjectSelection['hint']): { hint?: mongo.Hint; maxTimeMS: number } {
  return { ...(hint && { hint }), maxTimeMS: read_limit_ms };
}

/** Counts all objects, from the cache if it can know. */
export function count({ store }: OperationContext, selection: ObjectSelection): Promise<number> {
  const { listed, filter, hint, scope, examined } = selection;
  const options = readOptions(hint);
  return scope === undefined
    ? store.db.collection(listed.plural).countDocuments(filter, options)
    : store.counts.count(listed.plural, scope, { ...options, ...(examined && { examined }) });
}

/** Reads all objects, in the order of the index unless `query` sorts. */
export function readBatches(
  { store }: OperationContext,
  { listed, filter, hint }: ObjectSelection,
  query: Omit<RawQuery, 'filter' | 'hint'> = {},
): AsyncGenerator<readonly Bson[]> {
  return findRaw(store.db.collection(listed.plural), { filter, ...readOptions(hint), ...query }).batches;
}

/** The part of a list that a request asks for, without fields that lists leave out. */
export function buildQuery(
  { listed, filter, sort }: ObjectSelection,
  { offset, max }: Pick<ListRequest, 'offset' | 'max'>,
) {
  const projection = Object.fromEntries(listed.omittedFromLists.map((path) => [path, 0]));
  return { filter, sort, projection, skip: offset, ...(Number.isFinite(max) && { limit: max }) };
}

/** Reads the ranges of a selection one after the other. @param options as of `findRaw` */
export function findInRanges(
  { store }: OperationContext,
  { listed, ranges }: ObjectSelection,
  query: RawQuery,
  ...options: [first_batch_size?: number, limits?: Parameters<typeof findRaw>[3]]
): RawCursor {
  const collection = store.db.collection(listed.plural);
  if (ranges === undefined) return findRaw(collection, query, ...options);
  let exhausted = false;
  async function* batches(parts: readonly object[]): AsyncGenerator<readonly Bson[]> {
    let { skip = 0, limit = Number.POSITIVE_INFINITY } = query;
    for (const range of parts) {
      const filter = { $and: [query.filter, range] };
      if (skip > 0) {
        const skipped = await collection.countDocuments(filter, { limit: skip, maxTimeMS: read_limit_ms });
        skip -= skipped;
        if (skip > 0) continue;
        skip = skipped;
      }
      const part = { ...query, filter, skip, ...(Number.isFinite(limit) && { limit }) };
      const cursor = findRaw(collection, part, ...options);
      for await (const batch of cursor.batches) {
        limit -= batch.length;
        exhausted = cursor.exhausted && (limit === 0 || range === parts.at(-1));
        yield batch;
      }
      if (limit === 0) return;
      skip = 0;
    }
    exhausted = true;
  }
  return {
    batches: batches(ranges),
    get exhausted() {
      return exhausted;
    },
  };
}

/** Reads the internal ids of all objects in pieces of `size`, in the order of the index unless `query` sorts. */
export async function* readIds(
  { store }: OperationContext,
  { listed, filter, hint }: Pick<ObjectSelection, 'listed' | 'filter' | 'hint'>,
  size: number,
  query: Pick<mongo.FindOptions, 'sort'> = {},
): AsyncGenerator<readonly Id[]> {
  const options = { projection: { _id: 1 }, batchSize: size, ...readOptions(hint), ...query };
  const cursor = store.db.collection(listed.plural).find(filter, options);
  for await (const batch of readInBatches(cursor, size)) yield batch.map(({ _id }) => _id);
}

/** Reports whether a list is sent as rows, without the limits of a page (reference/exports.md#formats). */
export function isExport({ output }: ListRequest): boolean {
  return output !== undefined && isRowFormat(output.format);
}

/** Documents of the first reply, which may be large and is held in memory as a whole. */
const first_export_size = 101;
/** Time limit of one command: a filter that keeps little may examine millions of objects for a batch. */
const command_limit_ms = 600_000;

/** Reads all objects, or the first `max` of them, as fast as the client takes them. */
export async function readExport(
  ctx: OperationContext,
  selection: ObjectSelection,
  request: ListRequest,
): Promise<Page> {
  const { hint, readInOrder } = selection;
  if (readInOrder !== undefined) {
    const total = await count(ctx, selection);
    const { batches } = limitToPage(readInOrder(ctx, selection, total), request);
    return { total_documents: 0, batches: readAhead(withShares(ctx, batches)) };
  }
  const query = { ...buildQuery(selection, request), noCursorTimeout: true, ...(hint && { hint }) };
  // a search may take long after its client has left
  const limits = { socketTimeoutMS: command_limit_ms, signal: ctx.caller?.left };
  const { batches } = findInRanges(ctx, selection, query, first_export_size, limits);
  return { total_documents: 0, batches: readAhead(withShares(ctx, batches)) };
}

/** @throws AppError overloaded (5033) beyond the exports of the process or the share of the account */
async function* withShares<T>(ctx: OperationContext, batches: AsyncIterable<T>): AsyncGenerator<T> {
  const release = ctx.store.exports.take(ctx.account, 1, ctx.caller);
  try {
    yield* readInTurns(ctx, batches);
  } finally {
    release();
  }
}
