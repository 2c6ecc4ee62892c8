import type { mongo } from 'mongoose';
import { type ClusteredDocument, deleteRange, type RangeCondition } from '../db/clustered.js';
import type { Database } from '../db/database.js';
import { findOne } from '../db/raw-find.js';
import { withTransaction } from '../db/transaction.js';
import { stream } from '../resources/index.js';
import { deriveSummaries, limitPaths, mergeSummaries, type SummaryTarget } from './derive.js';
import {
  buildHourKey,
  buildSpanRange,
  emptySummary,
  type Hour,
  hour_s,
  roundToHour,
  settle_s,
  summariesOf,
} from './hours.js';

/** Streams that one transaction removes. */
const piece_size = 5000;
const conflict_limit_ms = 5000;

type Sender = Omit<SummaryTarget, 'from' | 'to' | 'range'>;

/**
 * Removes the streams of a device before a time (epoch seconds), and keeps in the summaries of their hours what they say. Stops
 * at an hour that is marked. @param mayGoOn asked after each piece but the last
 */
export async function removeSummarized(
  db: Database,
  sender: Sender,
  to: number,
  mayGoOn: () => Promise<boolean>,
): Promise<void> {
  const streams = db.collection<ClusteredDocument>(stream.plural);
  let rest = buildSpanRange(sender, { to });
  for (;;) {
    const next = await findOne(streams, rest, { projection: { _id: 1 }, sort: { _id: 1 }, skip: piece_size });
    const range = next === undefined ? rest : { ...rest, _id: { ...rest._id, $lt: next._id } };
    const target = { ...sender, from: 0, to, range };
    const isRemoved = await withTransaction(db.collection(stream.plural), conflict_limit_ms, (session) =>
      removePiece(db, target, session),
    );
    if (!isRemoved || next === undefined || !(await mayGoOn())) return;
    rest = { ...rest, _id: { ...rest._id, $gte: next._id } };
  }
}

/** @returns whether the hours could take over what their streams say */
async function removePiece(
  db: Database,
  target: SummaryTarget & { range: RangeCondition },
  session: mongo.ClientSession,
): Promise<boolean> {
  const summaries = summariesOf(db);
  const removed = await deriveSummaries(db, [target], session);
  const times = removed.map(({ at }) => at);
  const span = buildSpanRange(target, { from: Math.min(...times), to: Math.max(...times) + hour_s });
  const stored =
    removed.length === 0 ? [] : await summaries.find(span as object, { session, promoteLongs: false }).toArray();
  const hours = new Map(stored.map((hour) => [Number(hour._id.at), hour]));
  const writes = removed.flatMap(({ at, summary }) => {
    const hour = hours.get(at);
    if (hour?.streams === undefined || hour.mark !== undefined) return [];
    const base = limitPaths(mergeSummaries(hour.base ?? emptySummary, summary), target.measures);
    return [
      { updateOne: { filter: { _id: buildHourKey({ ...target, at }), mark: null }, update: { $set: { base } } } },
    ];
  });
  if (writes.length < removed.length) return false;
  if (writes.length > 0) await summaries.bulkWrite(writes as never, { session });
  await db.collection(stream.plural).deleteMany(target.range as object, { session });
  return true;
}

/** Removes the summaries of a device before a time (epoch seconds) whose streams are gone. */
export async function removeOldSummaries(db: Database, sender: Omit<Hour, 'at'>, before: number): Promise<void> {
  const streams = db.collection<ClusteredDocument>(stream.plural);
  const options = { projection: { _id: 1 }, sort: { _id: 1 } } as const;
  const first = await findOne(streams, buildSpanRange(sender, { to: before }), options);
  const to = first === undefined ? before : roundToHour(Number(first._id.at));
  await deleteRange(summariesOf(db) as never, { ...buildSpanRange(sender, { to: roundToHour(to) }), mark: null });
}

/**
 * Takes what retention has left of hours that lie wholly in a span, bounds included, out of their summaries.
 * @param now epoch seconds @returns the number of these hours
 */
export async function removeBases(
  db: Database,
  sender: Omit<Hour, 'at'>,
  { at_from = 0, at_to = Number.POSITIVE_INFINITY }: { at_from?: number; at_to?: number },
  now: number,
): Promise<number> {
  const to = at_to === Number.POSITIVE_INFINITY ? undefined : roundToHour(at_to);
  const span = buildSpanRange(sender, { from: Math.ceil(at_from / hour_s) * hour_s, to });
  const change = {
    $unset: { base: 1 },
    $set: { account: sender.account, mark: db.newId() },
    $max: { due_at: now + settle_s },
  } as const;
  const { modifiedCount } = await summariesOf(db).updateMany({ ...span, base: { $exists: true } } as object, change);
  return modifiedCount;
}
