import type { mongo } from 'mongoose';
import type { Database, JobDeps, StoredObject } from '../../db/database.js';
import { deleteInChunks } from '../../db/delete-in-chunks.js';
import { hasOnlyDuplicates } from '../../db/driver-errors.js';
import { createDueRunner } from '../../db/due-work.js';
import { type Id, keyOfId } from '../../db/ids.js';
import { type LeasedJob, startPeriodicJob, type Turn } from '../../db/leased-job.js';
import { findMany } from '../../db/raw-find.js';
import { AppError } from '../../errors.js';
import { readInBatches, splitIntoBatches } from '../../lib/batches.js';
import { groupBy } from '../../lib/group-by.js';
import { ignore } from '../../lib/promises.js';
import { device } from '../../resources/index.js';
import { findLastValues, findNextTimes } from './last-values.js';
import { type MeasuredPath, measuredPathsOf, removeUnusedPaths } from './measured-paths.js';
import { reviewsOf, scheduleReview, type ValueReview } from './reviews.js';
import type { StreamingDevice } from './stream-values.js';
import {
  buildValue,
  type DeviceValue,
  findStored,
  type KeptPath,
  keyOfValue,
  type SentValue,
  toKeptPaths,
  valuesOf,
} from './values.js';

const look_period_ms = 1000;
const fill_period_ms = 1000;
const clean_period_ms = 3_600_000;
const max_reviews = 100;
/** Devices whose streams one command reads. */
const piece_size = 250;

/**
 * Computes values again where streams were deleted, have come to their time, or were stored by a process that has crashed. One
 * instance does so.
 */
export function startValueReviews(deps: JobDeps): LeasedJob {
  const { db, log, clock } = deps;
  const runDue = createDueRunner<ValueReview>({
    db,
    open: () => reviewsOf(db),
    account: 'account',
    piece_size: max_reviews,
    run: (due, now) => runReviews(db, due, now),
    log,
    failure: 'values of devices are not computed yet; retrying',
  });
  const work = () => runDue(clock() / 1000);
  return startPeriodicJob({ db, log, name: 'value-reviews', period_ms: look_period_ms, work });
}

async function runReviews(db: Database, due: readonly ValueReview[], now: number): Promise<void> {
  const ids = new Map(due.flatMap(({ devices }) => devices.map((id) => [keyOfId(id), id] as const)));
  const next = await refreshByIds(db, [...ids.values()], now);
  for (const { _id, account, devices, revision } of due) {
    const own = next.get(keyOfId(_id));
    for (const id of devices) {
      const at = next.get(keyOfId(id));
      if (at !== undefined && !id.equals(_id)) await scheduleReview(db, { _id: id, account }, at);
    }
    // a review that was requested since the look-up stays
    if (own === undefined) await reviewsOf(db).deleteOne({ _id, revision });
    else await reviewsOf(db).updateOne({ _id, revision }, { $set: { due_at: own, revision: db.newId() } });
  }
}

/** Computes the values of devices. @returns when their next streams count (epoch seconds), by `keyOfId` */
async function refreshByIds(
  db: Database,
  ids: readonly Id[],
  now: number,
): Promise<ReadonlyMap<string, number | undefined>> {
  const next = new Map<string, number | undefined>();
  for (const piece of splitIntoBatches(ids, piece_size)) {
    const projection = { account: 1, id_developer: 1 };
    const all = db.collection<StoredObject>(device.plural);
    const devices = await findMany(all, { _id: { $in: piece } }, { projection });
    for (const [account, own] of groupBy(devices, (each) => each.account)) {
      const measured = await findMany(measuredPathsOf(db), { account });
      for (const [key, at] of await refreshPiece(db, own, measured, now)) next.set(key, at);
    }
  }
  return next;
}

async function refreshPiece(
  db: Database,
  devices: readonly StreamingDevice[],
  measured: readonly MeasuredPath[],
  now: number,
): Promise<ReadonlyMap<string, number | undefined>> {
  if (measured.length === 0) return new Map();
  await refreshValues(db, devices, toKeptPaths(measured), now);
  return findNextTimes(db, devices, now);
}

/** Reads the values at newly declared paths from the stored streams, and deletes those of paths that are declared no more. */
export function startValueFills(deps: JobDeps): LeasedJob {
  const { db, log } = deps;
  let cleaned_at = Number.NEGATIVE_INFINITY;
  async function work(turn: Turn): Promise<void> {
    await fillPaths(deps, turn);
    if (performance.now() - cleaned_at < clean_period_ms) return;
    await removeAbandoned(db, turn);
    cleaned_at = performance.now();
  }
  return startPeriodicJob({ db, log, name: 'value-fills', period_ms: fill_period_ms, work });
}

async function fillPaths(deps: JobDeps, turn: Turn): Promise<void> {
  const { db, log } = deps;
  const filter = { fill_at: { $lte: Date.now() } };
  if (!(await db.findDue([{ collection: measuredPathsOf(db), filter }]))) return;
  const due = await findMany(measuredPathsOf(db), filter, { limit: 1000 });
  for (const account of new Set(due.map((path) => path.account))) {
    const own = due.filter((path) => path.account === account);
    await fillAccount(deps, account, own, turn).catch((error: unknown) => {
      log.warn({ err: error }, 'values at a new path are not complete yet; retrying');
    });
  }
}

async function fillAccount(
  { db, clock }: JobDeps,
  account: string,
  paths: readonly MeasuredPath[],
  turn: Turn,
): Promise<void> {
  const options = {
    projection: { account: 1, id_developer: 1 },
    sort: { id_developer: 1 },
    hint: { account: 1, id_developer: 1 },
    batchSize: piece_size,
  } as const;
  const devices = db.collection<StoredObject>(device.plural).find({ account }, options);
  for await (const piece of readInBatches(devices, piece_size)) {
    if (!turn.isLeaseHeld()) return;
    const startedAt = performance.now();
    const next = await refreshPiece(db, piece, paths, clock() / 1000);
    for (const { _id } of piece) {
      const at = next.get(keyOfId(_id));
      if (at !== undefined) await scheduleReview(db, { _id, account }, at);
    }
    // others get half of the time
    await turn.pause(performance.now() - startedAt);
  }
  await measuredPathsOf(db).updateMany({ _id: { $in: paths.map(({ _id }) => _id) } }, { $unset: { fill_at: 1 } });
}

async function removeAbandoned(db: Database, turn: Turn): Promise<void> {
  for (const account of await measuredPathsOf(db).distinct('account')) {
    if (!turn.isLeaseHeld()) return;
    await removeUnusedPaths(db, account);
  }
  // read before the paths: those that are new by then have values later
  const stored = await valuesOf(db).distinct('path');
  const paths = new Set((await measuredPathsOf(db).distinct('_id')).map(keyOfId));
  for (const path of stored) if (!paths.has(keyOfId(path))) await deleteInChunks(valuesOf(db) as never, { path });
}

const max_attempts = 20;

/**
 * Makes the stored values of devices those of their streams, also after streams were deleted. A value is written only if it is
 * as it was before the streams were read; where one was replaced, both are read again. @param now epoch seconds
 */
export async function refreshValues(
  db: Database,
  devices: readonly StreamingDevice[],
  paths: readonly KeptPath[],
  now: number,
): Promise<void> {
  if (paths.length === 0) return;
  let outdated = devices;
  for (let attempt = 0; outdated.length > 0; attempt++) {
    if (attempt === max_attempts) throw new AppError('database', {}, { cause: new Error('values do not settle') });
    const keys = outdated.flatMap(({ _id }) => paths.map((path) => ({ parent: _id, path: path._id })));
    const stored = await findStored(db, keys);
    const sent = await findLastValues(db, outdated, paths, now);
    outdated = await writeRefreshed(db, outdated, paths, { stored, sent });
  }
}

/**
 * @returns devices that have to be read again: a value was written since it was read, or was replaced after a stream may
 * have been compared with it
 */
async function writeRefreshed(
  db: Database,
  devices: readonly StreamingDevice[],
  paths: readonly KeptPath[],
  { stored, sent }: { stored: ReadonlyMap<string, DeviceValue>; sent: ReadonlyMap<string, SentValue> },
): Promise<readonly StreamingDevice[]> {
  const writes: mongo.AnyBulkWriteOperation<DeviceValue>[] = [];
  const written: StreamingDevice[] = [];
  const replaced: StreamingDevice[] = [];
  for (const device of devices)
    for (const path of paths) {
      const key = keyOfValue({ parent: device._id, path: path._id });
      const [before, last] = [stored.get(key), sent.get(key)];
      const write = planWrite(before, last && buildValue(db, device, path._id, last));
      if (write === undefined) continue;
      writes.push(write);
      written.push(device);
      if (before !== undefined) replaced.push(device);
    }
  if (writes.length === 0) return [];
  const none = { insertedCount: 0, matchedCount: 0, deletedCount: 0 };
  const { insertedCount, matchedCount, deletedCount } = await valuesOf(db)
    .bulkWrite(writes, { ordered: false })
    .catch(ignore(hasOnlyDuplicates, none));
  const isComplete = insertedCount + matchedCount + deletedCount === writes.length;
  return [...new Set(isComplete ? replaced : written)];
}

function planWrite(
  before: DeviceValue | undefined,
  last: DeviceValue | undefined,
): mongo.AnyBulkWriteOperation<DeviceValue> | undefined {
  if (before === undefined) return last && { insertOne: { document: last } };
  const { _id, revision } = before;
  if (last === undefined) return { deleteOne: { filter: { _id, revision } } };
  if (before.at === Number(last.at) && before.n.equals(last.n)) return undefined;
  const { _id: _, ...members } = last;
  return { updateOne: { filter: { _id, revision }, update: { $set: members } } };
}
