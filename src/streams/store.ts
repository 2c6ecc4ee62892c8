import mongoose from 'mongoose';
import { type Database, read_limit_ms, type StoredDocument } from '../db/database.js';
import { deleteInChunks } from '../db/delete-in-chunks.js';
import type { Id } from '../db/ids.js';
import { planQuery } from '../db/query-plan.js';
import { findOneRaw } from '../db/raw-find.js';
import { AppError } from '../errors.js';
import type { OperationContext } from '../objects/context.js';
import type { Bson } from '../objects/page.js';
import { assertExists, assertWithinReach } from '../objects/resources.js';
import { writeTombstones } from '../objects/tombstones.js';
import { device, stream } from '../resources/index.js';
import { parseStreamId } from '../resources/stream-id.js';
import type { Values } from '../schema/fields.js';
import type { ListRequest } from '../schema/list-parameters.js';
import { getString } from '../serialize/bson.js';

/**
 * Deletes matching streams of a device, or the page of them that `max` and `offset` select
 * (reference/streams.md#deletion). @throws AppError notFound (4041) without the device
 */
export async function removeStreams(ctx: OperationContext, id: string, request: ListRequest): Promise<void> {
  const streams = ctx.store.db.collection(stream.plural);
  const { filter, sort, hint } = planQuery(stream, ctx, request, { device: id });
  await assertExists(ctx, device, id);
  const { params, offset, max } = request;
  let count = 0;
  if (params.max === undefined && offset === 0) count = (await streams.deleteMany(filter)).deletedCount;
  else {
    const limit = params.max === undefined ? Number.POSITIVE_INFINITY : max;
    count = await deleteInChunks(streams, filter, { sort, ...(hint && { hint }), skip: offset, limit });
  }
  await recordStreamRemoval(ctx, id, { count, filters: params });
}

/** Hands the removal of streams to the event log (reference/events.md#types); single streams have no tombstones. */
async function recordStreamRemoval(
  ctx: OperationContext,
  id: string,
  data: { count: number; filters: Values },
): Promise<void> {
  if (data.count === 0) return;
  const { store, account, user, request_id } = ctx;
  const { db } = store;
  const { ancestors = [] } = (await store.loader(device.plural).locate(ctx, id)) ?? {};
  const subject = { object: db.newId(), resource: 'streams', id_developer: id, ancestors, data, root: true };
  await writeTombstones(db, db.newId(), [{ ...subject, account, user, request_id }]);
}

/** Loads one stream by its `id_developer`. @throws AppError notFound (4041) */
export async function showStream(ctx: OperationContext, id: string): Promise<Bson> {
  const { store, account } = ctx;
  const streams = store.db.collection(stream.plural);
  const bson = await findOneRaw(streams, buildStreamFilter(account, id), { maxTimeMS: read_limit_ms });
  if (bson === undefined) throw new AppError('notFound');
  await assertWithinReach(ctx, device, getString(bson, 'device') ?? '');
  return bson;
}

/** Finds out which streams of a device are stored, by their internal ids. */
export async function findStoredIds(
  db: Database,
  { account, device: id, ids }: { account: string; device: string; ids: readonly Id[] },
): Promise<ReadonlySet<string>> {
  const options = { projection: { _id: 1 }, maxTimeMS: read_limit_ms };
  const stored = await db
    .collection(stream.plural)
    .find({ account, device: id, _id: { $in: ids } }, options)
    .toArray();
  return new Set(stored.map(({ _id }) => String(_id)));
}

/** Deletes one stream by its `id_developer`. @throws AppError notFound (4041) */
export async function removeStream(ctx: OperationContext, id: string): Promise<void> {
  const { store, account, limit } = ctx;
  if (limit !== undefined) await showStream(ctx, id);
  const options = { projection: { device: 1 } };
  const streams = store.db.collection<StoredDocument & { device: string }>(stream.plural);
  const removed = await streams.findOneAndDelete(buildStreamFilter(account, id), options);
  if (removed === null) throw new AppError('notFound');
  await recordStreamRemoval(ctx, removed.device, { count: 1, filters: { id_developer: id } });
}

/** @throws AppError notFound (4041) for an identifier that no stream of the account can have */
function buildStreamFilter(account: string, id_developer: string) {
  const id = parseStreamId(id_developer, account);
  if (id === undefined) throw new AppError('notFound');
  return { _id: new mongoose.mongo.UUID(id), account };
}

/** Deletes the streams of all accounts received before `moment` (epoch milliseconds), by the time in their ids. */
export async function removeStreamsBefore(db: Database, moment: number): Promise<void> {
  await deleteInChunks(db.collection(stream.plural), { _id: { $lt: db.buildMinId(moment) } }, { sort: { _id: 1 } });
}
