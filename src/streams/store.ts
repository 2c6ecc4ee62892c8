import mongoose, { type mongo } from 'mongoose';
import { buildBounds, type ClusteredDocument, deleteRange, type RangeCondition } from '../db/clustered.js';
import { type Database, read_limit_ms } from '../db/database.js';
import type { Id } from '../db/ids.js';
import { planQuery, type QueryPlan } from '../db/query-plan.js';
import { showOne } from '../db/raw-find.js';
import { AppError } from '../errors.js';
import { groupBy } from '../lib/group-by.js';
import type { OperationContext } from '../objects/context.js';
import type { Bson } from '../objects/page.js';
import { assertExists, assertWithinReach } from '../objects/resources.js';
import type { RecordedRemoval } from '../objects/tree/removed-nodes.js';
import { writeTombstones } from '../objects/tree/tombstones.js';
import { withReview } from '../objects/values/reviews.js';
import { device, stream } from '../resources/index.js';
import { parseStreamId } from '../resources/stream-key.js';
import type { Values } from '../schema/fields.js';
import type { ListRequest } from '../schema/list-parameters.js';
import { roundToHour } from '../summaries/hours.js';
import { findHours, writeMarks, writeMarksOfMatching } from '../summaries/marks.js';
import { removeBases } from '../summaries/retention.js';
import type { StreamDocument, StreamKey } from './documents.js';

const { UUID } = mongoose.mongo;

/** Returns the conditions on the streams of a device. @throws AppError notFound (4041) */
export async function findDeviceStreams(ctx: OperationContext, id: string): Promise<Values> {
  return buildDeviceCondition(id, await assertExists(ctx, device, id));
}

/** Returns the conditions on the streams of a device, which match nothing if it does not exist. */
export async function matchDeviceStreams(ctx: OperationContext, id: string): Promise<Values> {
  const { db, loader } = ctx.store;
  const node = await loader(device.plural).locate(ctx, id);
  return buildDeviceCondition(id, node ?? { _id: db.newId() });
}

/** Entries, of up to 1,000 devices each, of the removal journal whose streams lists leave out. */
const max_hiding = 10;

/** Returns the conditions on the streams of an account: those of devices that are being removed are deleted last. */
export async function matchLastingStreams({ store: { db }, account }: OperationContext): Promise<Values> {
  const removals = db.collection<RecordedRemoval>('removals');
  const query = { account, plural: device.plural, done: false };
  const entries = await removals.find(query, { projection: { 'nodes._id': 1 }, limit: max_hiding }).toArray();
  return entries.length === 0 ? {} : { parent: { $nin: entries.flatMap(({ nodes }) => nodes.map(({ _id }) => _id)) } };
}

/** Streams of a deleted device that had the identifier may still be there. */
function buildDeviceCondition(id: string, { _id }: { _id: Id }): Values {
  return { '_id.device': id, parent: _id };
}

/**
 * Deletes matching streams of a device, or the page of them that `max` and `offset` select
 * (reference/streams.md#deletion). @returns the number of hours without streams whose summaries are deleted
 * @throws AppError notFound (4041) without the device
 */
export async function removeStreams(ctx: OperationContext, id: string, request: ListRequest): Promise<number> {
  const streams = ctx.store.db.collection<mongo.Document>(stream.plural);
  const { store, account, now } = ctx;
  const node = await assertExists(ctx, device, id);
  const plan = planQuery(stream, ctx, request, buildDeviceCondition(id, node));
  const { params, offset, max } = request;
  const begun_at = performance.now();
  const readClock = () => now + (performance.now() - begun_at) / 1000;
  const sender = { account, device: id, parent: node._id };
  const count = await withReview(store.db, [{ _id: node._id, account }], now, async () =>
    params.max === undefined && offset === 0
      ? deleteRange(streams as never, plan.filter as RangeCondition, undefined, (piece) =>
          writeMarksOfMatching(store.db, piece, sender, readClock()),
        )
      : removePage(streams, plan, { offset, max: params.max === undefined ? Number.POSITIVE_INFINITY : max }, (chunk) =>
          writeMarks(store.db, [...findHours(chunk).values()], readClock()),
        ),
  );
  const isSpan = Object.keys(params).every((param) => param === 'at_from' || param === 'at_to');
  const summaries = isSpan ? await removeBases(store.db, sender, params, readClock()) : 0;
  await recordStreamRemoval(ctx, id, { count, filters: params, ...(summaries > 0 && { summaries }) });
  return summaries;
}

const chunk_size = 1000;

/** Deletes a part of a list. @returns the number of deleted streams */
async function removePage(
  streams: mongo.Collection,
  { filter, sort }: QueryPlan,
  { offset, max }: { offset: number; max: number },
  beforeDelete: (chunk: readonly StreamDocument[]) => Promise<void>,
): Promise<number> {
  let count = 0;
  for (let isFull = true; isFull && count < max; ) {
    const limit = Math.min(max - count, chunk_size);
    const projection = { parent: 1, _t: 1 };
    const options = { projection, sort, skip: offset, limit, maxTimeMS: read_limit_ms, promoteValues: false };
    const chunk = await streams.find<StreamDocument>(filter, options).toArray();
    isFull = chunk.length === limit;
    count += chunk.length;
    await beforeDelete(chunk);
    const keys = chunk.map(({ _id }) => _id);
    await removeByKeys(streams, keys);
  }
  return count;
}

/** Deletes one stream after the other in one command: for several ids at once MongoDB would read the whole collection. */
export async function removeByKeys(streams: mongo.Collection, keys: readonly mongo.Document['_id'][]): Promise<void> {
  const deletions = keys.map((_id) => ({ deleteOne: { filter: { _id } } }));
  if (deletions.length > 0) await streams.bulkWrite(deletions, { ordered: false });
}

/** Hands the removal of streams to the event log (reference/events.md#types); single streams have no tombstones. */
async function recordStreamRemoval(
  ctx: OperationContext,
  id: string,
  data: { count: number; filters: Values; summaries?: number },
): Promise<void> {
  if (data.count === 0 && data.summaries === undefined) return;
  const { store, account, user, request_id } = ctx;
  const { db } = store;
  const { ancestors = [] } = (await store.loader(device.plural).locate(ctx, id)) ?? {};
  const subject = { object: db.newId(), resource: 'streams', id_developer: id, ancestors, data };
  await writeTombstones(db, db.newId(), [{ ...subject, account, user, request_id }]);
}

/** Loads one stream by its `id_developer`. @throws AppError notFound (4041) */
export async function showStream(ctx: OperationContext, id: string): Promise<Bson> {
  return showOne(ctx.store.db.collection(stream.plural), await buildStreamFilter(ctx, id));
}

/** Deletes one stream by its `id_developer`. @throws AppError notFound (4041) */
export async function removeStream(ctx: OperationContext, id: string): Promise<void> {
  const filter = await buildStreamFilter(ctx, id);
  const { store, account, now } = ctx;
  const streams = store.db.collection<StreamDocument>(stream.plural);
  const device = { _id: filter.parent, account };
  const { device: name, at } = filter._id;
  await writeMarks(store.db, [{ account, device: name, parent: filter.parent, at: roundToHour(at.value) }], now);
  const { deletedCount } = await withReview(store.db, [device], now, () => streams.deleteOne(filter));
  if (deletedCount === 0) throw new AppError('notFound');
  await recordStreamRemoval(ctx, filter._id.device, { count: 1, filters: { id_developer: id } });
}

/** @throws AppError notFound (4041) for an identifier that no stream of the account can have */
async function buildStreamFilter(ctx: OperationContext, id_developer: string) {
  const { store, account } = ctx;
  const identity = parseStreamId(id_developer, account);
  if (identity === undefined) throw new AppError('notFound');
  const parent = new UUID(identity.parent);
  const sender = await store.loader(device.plural).node(parent);
  if (sender?.account !== account) throw new AppError('notFound');
  await assertWithinReach(ctx, device, sender.id_developer);
  const { Double, Long } = mongoose.mongo;
  const [at, n] = [new Double(identity.at), Long.fromBigInt(identity.n)];
  const _id: StreamKey = { account, device: sender.id_developer, at, n };
  return { _id, parent };
}

/** A stream of a message that may have been stored before. */
export interface RepeatedStream {
  device: string;
  /** Epoch seconds; undefined: the time of its receipt. */
  at: number | undefined;
  message: Id;
}

/** Finds out which streams of a repeated message are stored. @param received_from epoch seconds, not after the message was first received */
export async function findStored(
  db: Database,
  account: string,
  streams: readonly RepeatedStream[],
  received_from: number,
): Promise<ReadonlySet<string>> {
  const byTime = groupBy(streams, ({ at, device }) => `${at} ${device}`);
  const stored = new Set<string>();
  await Promise.all(
    [...byTime.values()].map(async (same) => {
      const [{ device: id, at }] = same as [RepeatedStream];
      const _id =
        at === undefined
          ? { ...buildBounds({ account, device: id }, 'at'), $gte: { account, device: id, at: received_from } }
          : buildBounds({ account, device: id, at }, 'n');
      const filter = { _id, message: { $in: same.map(({ message }) => message) } };
      const options = { projection: { _id: 0, message: 1 }, maxTimeMS: read_limit_ms };
      for await (const { message } of db.collection<ClusteredDocument>(stream.plural).find(filter, options))
        stored.add(String(message));
    }),
  );
  return stored;
}
