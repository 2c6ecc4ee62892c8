import mongoose, { type mongo } from 'mongoose';
import { type Collection, type Database, read_limit_ms } from '../db/database.js';
import { planQuery } from '../db/query-plan.js';
import { findRaw } from '../db/raw-find.js';
import { AppError } from '../errors.js';
import { device, stream } from '../resources/index.js';
import { parseStreamId } from '../resources/stream-id.js';
import type { ListRequest } from '../schema/validation.js';
import type { OperationContext } from './context.js';
import type { Bson } from './page.js';
import { assertExists } from './resources.js';

const chunk_size = 10_000;

/**
 * Deletes matching streams of a device, or the page of them that `max` and `offset` select
 * (reference/streams.md#deletion). @throws AppError notFound (4041) without the device
 */
export async function removeStreams(ctx: OperationContext, id: string, request: ListRequest): Promise<void> {
  const streams = ctx.store.db.collection(stream.plural);
  const { filter, sort, hint } = planQuery(stream, ctx.account, request, { device: id });
  await assertExists(ctx, device, id);
  const { params, offset, max } = request;
  if (params.max === undefined && offset === 0) {
    await streams.deleteMany(filter);
    return;
  }
  const query = { sort, ...(hint && { hint }), skip: offset };
  let remaining = params.max === undefined ? Number.POSITIVE_INFINITY : max;
  while (remaining > 0) {
    const deleted = await deleteChunk(streams, filter, { ...query, limit: Math.min(remaining, chunk_size) });
    if (deleted < chunk_size) return;
    remaining -= deleted;
  }
}

/** Loads one stream by its `id_developer`. @throws AppError notFound (4041) */
export async function showStream({ store, account }: OperationContext, id: string): Promise<Bson> {
  const query = { filter: buildStreamFilter(account, id), limit: 1, maxTimeMS: read_limit_ms };
  const first = await findRaw(store.db.collection(stream.plural), query).batches.next();
  const document = first.done === true ? undefined : first.value[0];
  if (document === undefined) throw new AppError('notFound');
  return document;
}

/** Deletes one stream by its `id_developer`. @throws AppError notFound (4041) */
export async function removeStream({ store, account }: OperationContext, id: string): Promise<void> {
  const { deletedCount } = await store.db.collection(stream.plural).deleteOne(buildStreamFilter(account, id));
  if (deletedCount === 0) throw new AppError('notFound');
}

/** @throws AppError notFound (4041) for an identifier that no stream of the account can have */
function buildStreamFilter(account: string, id_developer: string) {
  const id = parseStreamId(id_developer, account);
  if (id === undefined) throw new AppError('notFound');
  return { _id: new mongoose.mongo.UUID(id), account };
}

/** Deletes the streams of all accounts received before `moment` (epoch milliseconds), by the time in their ids. */
export async function removeStreamsBefore(db: Database, moment: number): Promise<void> {
  const streams = db.collection(stream.plural);
  const filter = { _id: { $lt: db.buildMinId(moment) } };
  while ((await deleteChunk(streams, filter, { sort: { _id: 1 }, limit: chunk_size })) === chunk_size);
}

/** @returns the number of streams found */
async function deleteChunk(streams: Collection, filter: object, query: mongo.FindOptions): Promise<number> {
  const options = { projection: { _id: 1 }, maxTimeMS: read_limit_ms, ...query };
  const page = await streams.find(filter, options).toArray();
  if (page.length > 0) await streams.deleteMany({ _id: { $in: page.map(({ _id }) => _id) } });
  return page.length;
}
